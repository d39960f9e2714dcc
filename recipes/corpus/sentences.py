"""Sentences with places for values, English and German side by side; for other languages the values alone.

`{kind}` or `{kind2}` draws a value of that kind, `{kind.form}` writes one of its forms.
"""

ENGLISH_GERMAN = """
The meeting will take place on {coming_date}.
Die Besprechung findet am {coming_date} statt.

{name} was born on {date}.
{name} wurde am {date} geboren.

I know that {name} was born in {city} on {date}.
Ich weiß, dass {name} am {date} in {city} geboren wurde.

The contract of {date} is no longer valid.
Der Vertrag vom {date} ist nicht mehr gültig.

Please send us the documents by {coming_date}.
Bitte schicken Sie uns die Unterlagen bis zum {coming_date}.

Since {name} is ill, the concert has been postponed to {coming_date}.
Da {name} krank ist, wurde das Konzert auf den {coming_date} verschoben.

According to the invoice of {date}, you still owe us {price}.
Laut der Rechnung vom {date} schulden Sie uns noch {price}.

{sir} will be in {city} until {coming_date}.
{sir} ist bis zum {coming_date} in {city}.

The letter is dated {numeric_date}.
Der Brief ist auf den {numeric_date} datiert.

Does the course begin on {day}?
Beginnt der Kurs am {day}?

On {day}, we are flying {country.to}.
Am {day} fliegen wir {country.to}.

The exhibition is open from {day} to {day2}.
Die Ausstellung ist vom {day} bis zum {day2} geöffnet.

{name} wants to travel {country.to} on {day}.
{name} will am {day} {country.to} reisen.

The factory has been closed since {month_of_year}.
Die Fabrik ist seit {month_of_year} geschlossen.

We have lived in {city} since {month_of_year}.
Wir wohnen seit {month_of_year} in {city}.

{place} was opened in {year}.
{place.der} wurde im Jahr {year} eröffnet.

{name} moved to {city} in {year}.
{name} ist im Jahr {year} nach {city} gezogen.

My great-grandfather was born in {year_in_words}.
Mein Urgroßvater wurde {year_in_words} geboren.

Today is {spoken_day}.
Heute ist {spoken_day}.

Her birthday is on {spoken_day}.
Sie hat {spoken_day.am} Geburtstag.

The train to {city} leaves at {time}.
Der Zug nach {city} fährt um {time} Uhr ab.

When the bus arrived at {time}, nobody was waiting.
Als der Bus um {time} Uhr ankam, wartete niemand.

The flight from {city} lands at {time}.
Der Flug aus {city} landet um {time} Uhr.

{name} asks whether the film starts at {time}.
{name} fragt, ob der Film um {time} Uhr anfängt.

The pharmacy is open from {time} to {time2}.
Die Apotheke ist von {time} bis {time2} Uhr geöffnet.

{name} will meet us {place.at} at {time}.
{name} trifft uns um {time} Uhr {place.am}.

I spoke with {sir} on {weekday} at {time}.
Ich habe am {weekday} um {time} Uhr mit {sir.herrn} gesprochen.

It is {clock}.
Es ist {clock}.

He came home at {clock}.
Er kam um {clock} nach Hause.

I get up at {clock} every {weekday}.
Ich stehe jeden {weekday} um {clock} auf.

Can you pick me up {place.at} at {clock}?
Kannst du mich um {clock} {place.am} abholen?

I would like to reserve a table for {clock}.
Ich möchte einen Tisch für {clock} reservieren.

Could you please call {sir} at {clock}?
Könnten Sie bitte {sir.herrn} um {clock} anrufen?

{name} bought {thing.a} for {price}.
{name} hat {thing.einen} für {price} gekauft.

{thing.the} costs {price}.
{thing.der} kostet {price}.

How can {thing.a} cost {price}?
Wie kann {thing.ein} {price} kosten?

I paid {price} for {thing.the}.
Ich habe {price} für {thing.den} bezahlt.

{name} sold {name.his} {thing} for {amount}.
{name} hat {name.sein}{thing.after_ein_accusative} für {amount} verkauft.

Do you have {thing.a} for less than {price}?
Haben Sie {thing.einen} für weniger als {price}?

If {thing.the} costs more than {price}, I will not buy it.
Wenn {thing.der} mehr als {price} kostet, kaufe ich {thing.ihn} nicht.

{name} told me that {thing.the} costs {price}.
{name} hat mir erzählt, dass {thing.der} {price} kostet.

Although {thing.the} cost only {price}, {name} did not buy it.
Obwohl {thing.der} nur {price} kostete, hat {name} {thing.ihn} nicht gekauft.

The rent rose from {rent} to {rent2}.
Die Miete stieg von {rent} auf {rent2}.

A ticket costs {euros2} for adults and {euros} for children.
Eine Karte kostet {euros2} für Erwachsene und {euros} für Kinder.

You owe me {amount}.
Du schuldest mir {amount}.

{name} has to pay {amount} because {name.his} dog bit the mailman.
{name} muss {amount} bezahlen, weil {name.sein} Hund den Briefträger gebissen hat.

We counted {count} {goods}.
Wir haben {count} {goods} gezählt.

The village has {count} inhabitants.
Das Dorf hat {count} Einwohner.

I think that we need {count} {goods}.
Ich glaube, dass wir {count} {goods} brauchen.

The man who sold {count} {goods} comes {country.from}.
Der Mann, der {count} {goods} verkauft hat, kommt {country.from}.

In {month}, {count} {people} came to {city}.
Im {month} kamen {count} {people} nach {city}.

Why are there only {count} {people} {place.at}?
Warum sind nur {count} {people} {place.am}?

You will find the answer on page {page}.
Die Antwort finden Sie auf Seite {page}.

Open the book at page {page}.
Schlagen Sie das Buch auf Seite {page} auf.

Write down the number {words}.
Schreiben Sie die Zahl {words} auf.

He counted to {words}.
Er zählte bis {words}.

The answer is {words}, not {words2}.
Die Antwort ist {words}, nicht {words2}.

{name} has to learn {words} words by {weekday}.
{name} muss bis {weekday} {words} Wörter lernen.

This is the {ordinal} time that you have been late.
Das ist das {ordinal} Mal, dass du zu spät kommst.

{name} finished the race in {ordinal} place.
{name} hat das Rennen auf dem {ordinal.en} Platz beendet.

The {rank} guest receives {thing.a}.
Der {rank} Gast bekommt {thing.einen}.

Only {percent} of the {people} speak {language}.
Nur {percent} der {people} sprechen {language}.

Sales rose by {percent} in {month}.
Der Umsatz stieg im {month} um {percent}.

Prices fell by {percent}.
Die Preise sind um {percent} gefallen.

The river is {river} long.
Der Fluss ist {river} lang.

This rope is only {length} long.
Dieses Seil ist nur {length} lang.

The mountain that we want to climb is {height} high.
Der Berg, den wir besteigen wollen, ist {height} hoch.

It is {distance} from {place} to {place2}.
{place.vom} bis {place2.zum} sind es {distance}.

Go straight on for {distance} and then turn left.
Gehen Sie {distance} geradeaus und biegen Sie dann links ab.

The package weighs {weight}.
Das Paket wiegt {weight}.

Add {volume} of water.
Fügen Sie {volume} Wasser hinzu.

I think that {volume} of water is enough.
Ich glaube, dass {volume} Wasser genügen.

The park is {area} in size.
Der Park ist {area} groß.

The temperature fell to {temperature}.
Die Temperatur fiel auf {temperature}.

On {weekday}, it was {temperature} in {city}.
Am {weekday} waren es in {city} {temperature}.

The car was going at {speed}.
Das Auto fuhr mit {speed}.

The trip takes {duration}.
Die Reise dauert {duration}.

We waited for {short_duration} because the train was late.
Wir haben {short_duration} gewartet, weil der Zug Verspätung hatte.

{name} has been learning {language} for {long_duration}.
{name} lernt seit {long_duration.dative} {language}.

After {short_duration}, the doctor finally came.
Nach {short_duration.dative} kam endlich der Arzt.

How did you learn {language} in only {days_to_months}?
Wie hast du in nur {days_to_months.dative} {language} gelernt?

Nobody knew that {sir} had lived {country.in} for {long_duration}.
Niemand wusste, dass {sir} {long_duration} {country.in} gelebt hatte.

The trip from {place} to {place2} takes {short_duration}.
Die Fahrt {place.vom} {place2.zum} dauert {short_duration}.

He called me {ago}.
Er hat mich {ago} angerufen.

The company was founded {long_ago}.
Die Firma wurde {long_ago} gegründet.

The film begins {later}.
Der Film fängt {later} an.

{name} will come back {later}.
{name} kommt {later} zurück.

We have customers {countries.in}.
Wir haben Kunden {countries.in}.

They speak {languages}.
Sie sprechen {languages}.

I need {things}.
Ich brauche {things}.

{name} lives {country.in} and speaks {language}.
{name} wohnt {country.in} und spricht {language}.

{name}, who comes {country.from}, speaks {languages}.
{name}, {name.der} {country.from} kommt, spricht {languages}.

She translates books from {language} into {language2}.
Sie übersetzt Bücher {language.aus} {language2.ins}.

Has {name} ever been {country.to}?
War {name} schon einmal {country.in}?

{name} gave {name2} {thing.a}.
{name} hat {name2} {thing.einen} geschenkt.

{name} is very happy with {name.his} {thing}.
{name} ist mit {name.sein}{thing.after_ein_dative} sehr zufrieden.

I did not know that {place} is closed {weekday.every}.
Ich wusste nicht, dass {place.der} {weekday.every} geschlossen ist.

How do {name} and {name2} get from {place} to {place2}?
Wie kommen {name} und {name2} {place.vom} {place2.zum}?
"""

EXPRESSIONS = (
    "{date} | {full_date} | {numeric_date} | {day} | {day}, {time} | {month_of_year} | {full_date}, {time} | {time} – {time2} | "
    "{duration} | {ago} | {later} | {price} | {euros} – {euros2} | {amount} | {count} | {percent} | {words} | {words} – {words2} | "
    "{length} | {distance}, {short_duration} | {weight} | {volume} | {area} | {temperature} | {speed} | {countries} | {languages}"
)
"""What CLDR and num2words alone can say in any of their languages: no sentences, so order and agreement hardly differ."""


def templates(source: str, target: str) -> list[tuple[str, str]]:
    """Source and target side of each template, for languages of `expressions.LOCALES`."""
    if {source, target} == {"de", "en"}:
        pairs = [block.split("\n") for block in ENGLISH_GERMAN.strip().split("\n\n")]
        return [(english, german) if source == "en" else (german, english) for english, german in pairs]
    return [(expression, expression) for expression in EXPRESSIONS.split(" | ")]
