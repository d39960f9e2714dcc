"""English and German words with the forms that their grammar needs: gender, case, number, prepositions with articles.

A German form is named by the word that it stands for: `{thing.einen}` is the indefinite accusative of any gender.
"""

from collections.abc import Callable
from random import Random

from babel import dates

from corpus.expressions import (
    COUNTRIES,
    KINDS,
    LANGUAGES,
    LOCALES,
    Kind,
    Phrase,
    Value,
    codes,
    draw_day,
    draw_number,
    in_words,
    join,
    say_country,
    say_language,
)

# Endings for masculine, feminine, neuter: the definite article, ein and the possessives, and the adjective after each.
ENDINGS = {
    "nominative": {"der": ("der", "die", "das"), "ein": ("", "e", ""), "weak": ("e", "e", "e"), "mixed": ("er", "e", "es")},
    "accusative": {"der": ("den", "die", "das"), "ein": ("en", "e", ""), "weak": ("en", "e", "e"), "mixed": ("en", "e", "es")},
    "dative": {"der": ("dem", "der", "dem"), "ein": ("em", "er", "em"), "weak": ("en",) * 3, "mixed": ("en",) * 3},
}


def table(text: str) -> list[list[str]]:
    """Rows divided by | or line ends, fields by blanks; _ stands for a blank within a field."""
    rows = text.replace("\n", "|").split("|")
    return [[field.replace("_", " ") for field in row.split()] for row in rows if row.strip()]


THINGS = table("""
    table m Tisch | lamp f Lampe | book n Buch | bicycle n Fahrrad | coat m Mantel | suitcase m Koffer | camera f Kamera
    sofa n Sofa | watch f Uhr | chair m Stuhl | carpet m Teppich | bag f Tasche | shirt n Hemd | jacket f Jacke
    umbrella m Regenschirm | guitar f Gitarre | computer m Computer | mirror m Spiegel | bed n Bett | armchair m Sessel
    blanket f Decke | ring m Ring | hat m Hut | desk m Schreibtisch | shelf n Regal | scarf m Schal | dress n Kleid | tent n Zelt
""")
# German: what stands before an ending, so that teuer has lost its e.
ADJECTIVES = table("""
    new neu | old alt | red rot | blue blau | green grün | black schwarz | white weiß | brown braun | small klein | large groß
    beautiful schön | cheap billig | expensive teur | used gebraucht | elegant elegant
""")
PLACES = table("""
    station m Bahnhof an | airport m Flughafen an | museum n Museum in | library f Bibliothek in | hotel n Hotel in
    school f Schule in | market m Markt auf | bank f Bank in | hospital n Krankenhaus in | theater n Theater in
    university f Universität an | park m Park in | restaurant n Restaurant in | church f Kirche in | town_hall n Rathaus in
    castle n Schloss in | harbor m Hafen an | pharmacy f Apotheke in | stadium n Stadion in | zoo m Zoo in | café n Café in
    swimming_pool n Schwimmbad in | gas_station f Tankstelle an | bus_stop f Bushaltestelle an | bakery f Bäckerei in
""")
CITIES = table("""
    Berlin Berlin | Hamburg Hamburg | Vienna Wien | Munich München | Cologne Köln | Zurich Zürich | Geneva Genf | Rome Rom
    Paris Paris | London London | Prague Prag | Warsaw Warschau | Milan Mailand | Venice Venedig | Lisbon Lissabon
    Brussels Brüssel | Copenhagen Kopenhagen | Athens Athen | Moscow Moskau | Nuremberg Nürnberg | Naples Neapel
    Florence Florenz | Frankfurt Frankfurt | Dresden Dresden | Leipzig Leipzig | Madrid Madrid | Oslo Oslo | Hanover Hannover
""")
NAMES = table("""
    f Anna | m Paul | f Maria | m Lukas | f Sophie | m Thomas | f Julia | m Peter | f Emma | m Martin | f Laura | m David
    f Clara | m Felix | f Nina | m Daniel | f Eva | m Simon | f Lena | m Robert
""")
SURNAMES = codes("Weber Schmidt Meyer Fischer Wagner Becker Hoffmann Schulz Koch Bauer Richter Klein Wolf Neumann Schwarz")
GOODS = table("""
    tickets Karten | apples Äpfel | chairs Stühle | cars Autos | trees Bäume | eggs Eier | bottles Flaschen | photos Fotos
    stamps Briefmarken | bicycles Fahrräder | books Bücher | flowers Blumen | cups Tassen | glasses Gläser | candles Kerzen
    postcards Postkarten | horses Pferde | newspapers Zeitungen | lamps Lampen | shirts Hemden | umbrellas Regenschirme
""")
PEOPLE = table("""
    visitors Besucher | guests Gäste | students Studenten | employees Mitarbeiter | children Kinder | tourists Touristen
    passengers Fahrgäste | participants Teilnehmer | players Spieler | doctors Ärzte | teachers Lehrer | soldiers Soldaten
""")
# Countries whose German name has an article: code, article, English article.
WITH_ARTICLE = {
    "CH": ("die", ""),
    "TR": ("die", ""),
    "SK": ("die", ""),
    "UA": ("die", ""),
    "MN": ("die", ""),
    "IR": ("der", ""),
    "IQ": ("der", ""),
    "LB": ("der", ""),
    "US": ("adjective", "the "),
    "NL": ("plural", "the "),
}
ALL_COUNTRIES = [*COUNTRIES, *WITH_ARTICLE]


def one_of(rows: list[list[str]] | list[str]) -> Callable[[Random], Value]:
    return lambda random: (random.randrange(len(rows)),)


def word(rows: list[list[str]], english: Callable[[list[str]], str], german: Callable[[list[str]], str]) -> Kind:
    """One row of a table; every row must be learned."""

    def say(value: Value, language: str) -> str:
        row = rows[int(value[0])]
        return english(row) if language == "en" else german(row)

    return Kind(one_of(rows), say, held_out=False)


def draw_thing(random: Random) -> Value:
    # -1: no adjective, in half of the cases.
    return random.choice((-1, random.randrange(len(ADJECTIVES)))), random.randrange(len(THINGS))


def say_thing(value: Value, language: str) -> Phrase:
    quality, index = int(value[0]), int(value[1])
    english, gender, german = THINGS[index]
    column = "mfn".index(gender)
    if language == "en":
        text = english if quality < 0 else f"{ADJECTIVES[quality][0]} {english}"
        article = "an" if text[0] in "aeiou" and not text.startswith("used") else "a"
        return Phrase(text, {"the": f"the {text}", "a": f"{article} {text}"})
    forms = {"er": ("er", "sie", "es")[column], "ihn": ("ihn", "sie", "es")[column]}
    for case, der, ein in (("nominative", "der", "ein"), ("accusative", "den", "einen"), ("dative", "dem", "einem")):
        ending = {name: column_of[column] for name, column_of in ENDINGS[case].items()}
        weak, mixed = (f"{ADJECTIVES[quality][1]}{ending[name]} {german}" if quality >= 0 else german for name in ("weak", "mixed"))
        forms[der] = f"{ending['der']} {weak}"
        # After ein, kein, sein, ihr: "{name.sein}{thing.after_ein_dative}".
        forms[f"after_ein_{case}"] = f"{ending['ein']} {mixed}"
        forms[ein] = f"ein{ending['ein']} {mixed}"
    return Phrase(german, forms)


def german_place(row: list[str]) -> str:
    _, gender, german, preposition = row
    der, dem = (ENDINGS[case]["der"]["mfn".index(gender)] for case in ("nominative", "dative"))

    def after(word: str) -> str:
        contracted = {"in dem": "im", "an dem": "am", "zu dem": "zum", "zu der": "zur", "von dem": "vom"}
        return f"{contracted.get(f'{word} {dem}', f'{word} {dem}')} {german}"

    return Phrase(german, {"der": f"{der} {german}", "am": after(preposition), "zum": after("zu"), "vom": after("von")})


def english_country(code: str) -> str:
    _, article = WITH_ARTICLE.get(code, ("", ""))
    # CLDR's own English name is by now Türkiye; German speakers and most English ones still write the older.
    name = "Turkey" if code == "TR" else say_country((code,), "en")
    return f"{article}{name}"


def german_country(code: str) -> Phrase:
    name = say_country((code,), "de")
    dative = name if name.endswith("n") else f"{name}n"
    article, _ = WITH_ARTICLE.get(code, ("", ""))
    forms = {
        "": (name, f"in {name}", f"nach {name}", f"aus {name}"),
        "die": (f"die {name}", f"in der {name}", f"in die {name}", f"aus der {name}"),
        "der": (f"der {name}", f"im {name}", f"in den {name}", f"aus dem {name}"),
        "plural": (f"die {name}", f"in den {dative}", f"in die {name}", f"aus den {dative}"),
        "adjective": ("die Vereinigten Staaten", *(f"{word} Vereinigten Staaten" for word in ("in den", "in die", "aus den"))),
    }[article]
    return Phrase(forms[0], dict(zip(("in", "to", "from"), forms[1:], strict=True)))


def say_country_in_sentence(value: Value, language: str) -> str:
    code = str(value[0])
    if language == "de":
        return german_country(code)
    name = english_country(code)
    return Phrase(name, {"in": f"in {name}", "to": f"to {name}", "from": f"from {name}"})


def say_countries(value: Value, language: str) -> str:
    codes = [str(code) for code in value]
    if language == "en":
        text = join([english_country(code) for code in codes], "en")
        return Phrase(text, {"in": f"in {text}"})
    countries = [german_country(code) for code in codes]
    return Phrase(join(list(countries), "de"), {"in": join([country.forms["in"] for country in countries], "de")})


def say_language_in_sentence(value: Value, language: str) -> str:
    name = say_language(value, language)
    return Phrase(name, {"ins": f"ins {name}e", "aus": f"aus dem {name}en"} if language == "de" else {})


def say_name(row: list[str]) -> Phrase:
    gender, name = row
    forms = {"his": ("his", "her"), "sein": ("sein", "ihr"), "der": ("der", "die")}
    return Phrase(name, {form: words["mf".index(gender)] for form, words in forms.items()})


def say_sir(value: Value, language: str) -> str:
    title, surname = int(value[0]), SURNAMES[int(value[1])]
    if language == "en":
        return f"{('Mr.', 'Ms.')[title]} {surname}"
    return Phrase(f"{('Herr', 'Frau')[title]} {surname}", {"herrn": f"{('Herrn', 'Frau')[title]} {surname}"})


def say_weekday(value: Value, language: str) -> str:
    name = dates.get_day_names("wide", locale=LOCALES[language])[int(value[0])]
    return Phrase(name, {"every": f"on {name}s" if language == "en" else f"{name.lower()}s"})


def say_month(value: Value, language: str) -> str:
    return str(dates.get_month_names("wide", locale=LOCALES[language])[int(value[0])])


def say_clock(value: Value, language: str) -> str:
    """Five minutes by five: half past three, halb vier."""
    hour, minute = int(value[0]), int(value[1])
    this, following = (in_words(number, language) for number in (hour, hour % 12 + 1))
    if language == "en":
        amount = {15: "a quarter", 30: "half"}.get(min(minute, 60 - minute)) or in_words(min(minute, 60 - minute), "en")
        return f"{this} o'clock" if minute == 0 else f"{amount} past {this}" if minute <= 30 else f"{amount} to {following}"
    if minute == 0:
        return f"{'ein' if hour == 1 else this} Uhr"
    return {
        5: f"fünf nach {this}",
        10: f"zehn nach {this}",
        15: f"Viertel nach {this}",
        20: f"zwanzig nach {this}",
        25: f"fünf vor halb {following}",
        30: f"halb {following}",
        35: f"fünf nach halb {following}",
        40: f"zwanzig vor {following}",
        45: f"Viertel vor {following}",
        50: f"zehn vor {following}",
        55: f"fünf vor {following}",
    }[minute]


def say_ordinal(value: Value, language: str) -> str:
    text = in_words(int(value[0]), language, "ordinal")
    return Phrase(text, {"en": f"{text}n"} if language == "de" else {})


def say_spoken_day(value: Value, language: str) -> str:
    month, day = say_month(value, language), in_words(int(value[1]), language, "ordinal")
    if language == "en":
        return f"the {day} of {month}"
    return Phrase(f"der {day} {month}", {"am": f"am {day}n {month}"})


def say_rank(value: Value, language: str) -> str:
    return in_words(int(value[0]), "en", "ordinal_num") if language == "en" else f"{value[0]}."


def draw_things(random: Random) -> Value:
    """Three different things, each with its adjective or none."""
    nouns = random.sample(range(len(THINGS)), 3)
    return tuple(part for noun in nouns for part in (draw_thing(random)[0], noun))


def say_things(value: Value, language: str) -> str:
    phrases = [say_thing(value[i : i + 2], language) for i in range(0, len(value), 2)]
    return join([phrase.a if language == "en" else phrase.einen for phrase in phrases], language)


def first(row: list[str]) -> str:
    return row[0]


def second(row: list[str]) -> str:
    return row[1]


ENGLISH_GERMAN = KINDS | {
    "thing": Kind(draw_thing, say_thing, held_out=False),
    "things": Kind(draw_things, say_things),
    "place": word(PLACES, lambda row: Phrase(f"the {row[0]}", {"at": f"at the {row[0]}"}), german_place),
    "city": word(CITIES, first, second),
    "name": word(NAMES, say_name, say_name),
    "sir": Kind(lambda random: (random.randrange(2), random.randrange(len(SURNAMES))), say_sir, held_out=False),
    "goods": word(GOODS, first, second),
    "people": word(PEOPLE, first, second),
    "country": Kind(lambda random: (random.choice(ALL_COUNTRIES),), say_country_in_sentence, held_out=False),
    "countries": Kind(lambda random: tuple(random.sample(ALL_COUNTRIES, random.randint(2, 3))), say_countries),
    "language": Kind(lambda random: (random.choice(LANGUAGES),), say_language_in_sentence, held_out=False),
    "weekday": Kind(lambda random: (random.randrange(7),), say_weekday, held_out=False),
    "month": Kind(lambda random: (random.randint(1, 12),), say_month, held_out=False),
    "clock": Kind(lambda random: (random.randint(1, 12), random.randrange(0, 60, 5)), say_clock),
    "spoken_day": Kind(draw_day, say_spoken_day),
    "ordinal": Kind(draw_number(3, 199), say_ordinal),
    "rank": Kind(draw_number(2, 999), say_rank),
    "year": Kind(lambda random: (random.randint(1500, 2029),), lambda value, _: str(value[0])),
    "year_in_words": Kind(
        lambda random: (random.randint(1850, 1999),), lambda value, language: in_words(int(value[0]), language, "year")
    ),
}
