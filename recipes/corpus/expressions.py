"""Kinds of values (dates, money, measures, numbers in words) and how speakers of a language write them.

What is written comes from Babel (Unicode CLDR) and num2words; this file draws the values. A no-break space becomes a
plain one, as people type.
"""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

from babel import Locale, dates, lists, numbers, units
from num2words import num2words

LOCALES = {
    "de": "de_DE",
    "en": "en_US",
    "es": "es_ES",
    "fr": "fr_FR",
    "it": "it_IT",
    "nl": "nl_NL",
    "pl": "pl_PL",
    "pt": "pt_BR",
    "sv": "sv_SE",
}
"""The languages that both libraries write well, and whose country's habits are meant."""

Value = tuple[int | str, ...]
"""Numbers and codes that mean the same in every language."""


class Phrase(str):
    """Text with inflected forms beside it: a template writes `{country}` for the text, `{country.to}` for its form `to`."""

    forms: dict[str, str]

    def __new__(cls, text: str, forms: dict[str, str]) -> "Phrase":
        phrase = super().__new__(cls, text)
        phrase.forms = forms
        return phrase

    def __getattr__(self, name: str) -> str:
        try:
            return self.forms[name]
        except KeyError:
            raise AttributeError(f"{str(self)!r} has no form {name!r}, only {sorted(self.forms)}") from None


Draw = Callable[[Random], Value]
Say = Callable[[Value, str], str]
"""Value and language -> what a speaker writes; a `Phrase` where the language inflects it."""


@dataclass(frozen=True)
class Kind:
    """One kind of value: how it is drawn and how it is said."""

    draw: Draw
    say: Say
    held_out: bool = True
    """False for small closed sets (names, nouns, countries), every member of which training must show."""


def typed(text: str) -> str:
    return text.replace("\u00a0", " ").replace("\u202f", " ")


def codes(text: str) -> list[str]:
    return text.split()


def integers(value: Value) -> list[int]:
    return [int(part) for part in value]


def join(items: list[str], language: str) -> str:
    return lists.format_list(items, locale=LOCALES[language])


def in_words(number: int, language: str, form: str = "cardinal") -> str:
    """A number spelled out; `form` is num2words' name of what is meant: cardinal, ordinal, year."""
    words: str = num2words(number, lang=language, to=form)
    # "two hundred thirty-four", as the locale's country says it.
    return words.replace(" and ", " ").replace(",", "") if language == "en" else words


def magnitude(random: Random, low: int, high: int) -> int:
    """A number from low to high; more digits are likelier, yet far less so than there are more such numbers."""
    shortest, longest = len(str(low)), len(str(high))
    digits = max(random.randint(shortest, longest), random.randint(shortest, longest))
    return random.randint(max(low, 10 ** (digits - 1)), min(high, 10**digits - 1))


# Dates and times


def draw_date(first: int, last: int) -> Draw:
    """Any day of the years first to last."""
    limits = datetime.date(first, 1, 1).toordinal(), datetime.date(last, 12, 31).toordinal()

    def draw(random: Random) -> Value:
        day = datetime.date.fromordinal(random.randint(*limits))
        return day.year, day.month, day.day

    return draw


def draw_day(random: Random) -> Value:
    return draw_date(2024, 2024)(random)[1:]  # a leap year: the 29th of February is a day too


def say_date(style: str) -> Say:
    def say(value: Value, language: str) -> str:
        year, month, day = integers(value)
        return typed(dates.format_date(datetime.date(year, month, day), style, locale=LOCALES[language]))

    return say


def say_day(value: Value, language: str) -> str:
    month, day = integers(value)
    return typed(dates.format_skeleton("MMMMd", datetime.date(2024, month, day), locale=LOCALES[language]))


def say_month_of_year(value: Value, language: str) -> str:
    year, month = integers(value)
    return typed(dates.format_skeleton("yMMMM", datetime.date(year, month, 1), locale=LOCALES[language]))


def say_time(value: Value, language: str) -> str:
    hour, minute = integers(value)
    return typed(dates.format_time(datetime.time(hour, minute), "short", locale=LOCALES[language]))


# Time spans


@dataclass(frozen=True)
class TimeUnit:
    name: Literal["minute", "hour", "day", "week", "month", "year"]
    seconds: int
    longest: int


UNITS: dict[str, TimeUnit] = {
    unit.name: unit
    for unit in (
        TimeUnit("minute", 60, 59),
        TimeUnit("hour", 3600, 48),
        TimeUnit("day", 86_400, 90),
        TimeUnit("week", 7 * 86_400, 30),
        TimeUnit("month", 30 * 86_400, 24),
        TimeUnit("year", 365 * 86_400, 99),
    )
}


def draw_duration(shortest: str, longest: str) -> Draw:
    names = list(UNITS)
    allowed = names[names.index(shortest) : names.index(longest) + 1]

    def draw(random: Random) -> Value:
        unit = random.choice(allowed)
        return unit, random.randint(2, UNITS[unit].longest)

    return draw


def say_duration(value: Value, language: str) -> str:
    unit, amount = value
    text = typed(units.format_unit(int(amount), f"duration-{unit}", locale=LOCALES[language]))
    # German has one more form, the dative plural: "seit 3 Tagen".
    return Phrase(text, {"dative": f"{text}n" if text.endswith(("Tage", "Monate", "Jahre")) else text})


def say_relative(sign: int) -> Say:
    """Time from now: "5 days ago" for sign -1, "in 5 days" for 1."""

    def say(value: Value, language: str) -> str:
        unit = UNITS[str(value[0])]
        seconds = sign * int(value[1]) * unit.seconds
        # A threshold out of reach: the unit that was drawn is the one to be named.
        return typed(dates.format_timedelta(seconds, unit.name, 1e9, add_direction=True, locale=LOCALES[language]))

    return say


# Money


def draw_price(currencies: tuple[str, ...]) -> Draw:
    def draw(random: Random) -> Value:
        cents = random.choice((0, 50, 90, 95, 99, random.randrange(100)))
        return random.choice(currencies), magnitude(random, 1, 999) * 100 + cents

    return draw


def say_price(value: Value, language: str) -> str:
    currency, cents = value
    return typed(numbers.format_currency(int(cents) / 100, str(currency), locale=LOCALES[language]))


def draw_amount(currencies: tuple[str, ...]) -> Draw:
    def draw(random: Random) -> Value:
        return random.choice(currencies), magnitude(random, 2, 9999)

    return draw


def say_amount(value: Value, language: str) -> str:
    """Whole amounts with the currency's name: 250 US dollars."""
    currency, amount = value
    return typed(
        numbers.format_currency(int(amount), str(currency), "#,##0", LOCALES[language], format_type="name", currency_digits=False)
    )


# Numbers and measures


def draw_number(low: int, high: int) -> Draw:
    return lambda random: (magnitude(random, low, high),)


def say_number(value: Value, language: str) -> str:
    return typed(numbers.format_decimal(int(value[0]), locale=LOCALES[language]))


def say_percent(value: Value, language: str) -> str:
    """The value counts tenths of a per cent."""
    locale = Locale.parse(LOCALES[language])
    pattern = locale.percent_formats[None].pattern.replace("#,##0", "#,##0.#")
    return typed(numbers.format_percent(int(value[0]) / 1000, pattern, locale))


Style = Literal["long", "short"]


def say_measure(style: Style) -> Say:
    def say(value: Value, language: str) -> str:
        return typed(units.format_unit(int(value[1]), str(value[0]), style, locale=LOCALES[language]))

    return say


def measure(limits: dict[str, tuple[int, int]], style: Style = "long") -> Kind:
    """Amounts within limits for each of CLDR's units."""

    def draw(random: Random) -> Value:
        unit = random.choice(list(limits))
        return unit, magnitude(random, *limits[unit])

    return Kind(draw, say_measure(style))


def draw_temperature(random: Random) -> Value:
    return "temperature-celsius", random.choice((-1, 1)) * random.randint(2, 45)


# Countries and languages

COUNTRIES = codes(
    "DE FR IT ES PT PL AT BE DK SE NO FI GR HU CZ RO BG HR SI RS RU CN JP IN BR MX CA AU AR CL PE EG MA KE ZA TH VN KR NZ EE "
    "LV LT LU NG CO"
)
LANGUAGES = codes("de en fr es it pt nl pl ru ja zh ko ar tr sv da no fi el hu cs ro bg hr uk vi th fa sk sl et lv lt ka")


def say_country(value: Value, language: str) -> str:
    return str(Locale.parse(LOCALES[language]).territories[str(value[0])])


def say_language(value: Value, language: str) -> str:
    return str(Locale.parse(LOCALES[language]).languages[str(value[0])])


def some(codes: list[str]) -> Draw:
    """Two to four different codes, in any order."""
    return lambda random: tuple(random.sample(codes, random.randint(2, 4)))


def say_each(say: Say) -> Say:
    return lambda value, language: join([say((code,), language) for code in value], language)


KINDS = {
    "date": Kind(draw_date(1950, 2023), say_date("long")),
    "coming_date": Kind(draw_date(2024, 2035), say_date("long")),
    "numeric_date": Kind(draw_date(2000, 2023), say_date("short")),
    "full_date": Kind(draw_date(2024, 2035), say_date("full")),
    "day": Kind(draw_day, say_day),
    "month_of_year": Kind(lambda random: (random.randint(1950, 2023), random.randint(1, 12)), say_month_of_year),
    "time": Kind(lambda random: (random.randrange(24), random.randrange(60)), say_time),
    "duration": Kind(draw_duration("minute", "year"), say_duration),
    "short_duration": Kind(draw_duration("minute", "hour"), say_duration),
    "long_duration": Kind(draw_duration("week", "year"), say_duration),
    "days_to_months": Kind(draw_duration("day", "month"), say_duration),
    "ago": Kind(draw_duration("minute", "month"), say_relative(-1)),
    "long_ago": Kind(draw_duration("month", "year"), say_relative(-1)),
    "later": Kind(draw_duration("minute", "hour"), say_relative(1)),
    "price": Kind(draw_price(("EUR", "USD")), say_price),
    "euros": Kind(draw_price(("EUR",)), say_price),
    "amount": Kind(draw_amount(("EUR", "USD", "CHF")), say_amount),
    "rent": Kind(draw_amount(("EUR",)), say_amount),
    "count": Kind(draw_number(2, 9999), say_number),
    "page": Kind(draw_number(2, 999), say_number),
    "percent": Kind(draw_number(11, 999), say_percent),  # above 1: "nur 1 %" would want a verb in the singular
    "words": Kind(draw_number(13, 9999), lambda value, language: in_words(int(value[0]), language)),
    "length": measure({"length-meter": (2, 99), "length-centimeter": (2, 999)}),
    "river": measure({"length-kilometer": (2, 6999)}),
    "height": measure({"length-meter": (300, 8999)}),
    "distance": measure({"length-kilometer": (2, 99), "length-meter": (2, 999)}),
    "weight": measure({"mass-kilogram": (2, 999), "mass-gram": (2, 999)}),
    "volume": measure({"volume-liter": (2, 99), "volume-milliliter": (2, 999)}),
    "area": measure({"area-square-meter": (2, 999), "area-square-kilometer": (2, 9999)}),
    "temperature": Kind(draw_temperature, say_measure("long")),
    "speed": measure({"speed-kilometer-per-hour": (2, 299)}, "short"),
    "countries": Kind(some(COUNTRIES), say_each(say_country)),
    "languages": Kind(some(LANGUAGES), say_each(say_language)),
}
