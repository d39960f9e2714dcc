"""The corpus of `make demo`: what train, valid and test may share, and whether its German is German."""

import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from corpus.english_german import ENGLISH_GERMAN
from corpus.expressions import LOCALES, Value
from corpus.sentences import templates
from demo_corpus import PARTS, Pair, generate, kind_of, slots

SCRIPT = Path(__file__).parents[2] / "recipes" / "demo_corpus.py"


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[Pair]]:
    sizes = {"train": 30_000, "valid": 500, "test": 500}
    return {part: list(islice(generate("en", "de", part, seed=1), sizes[part])) for part in PARTS}


@pytest.mark.parametrize("side", ["source", "target"])
def test_no_sentence_comes_twice_on_either_side(corpus: dict[str, list[Pair]], side: str) -> None:
    sentences = [getattr(pair, side).casefold() for part in PARTS for pair in corpus[part]]
    assert len(set(sentences)) == len(sentences) == 31_000


@pytest.mark.parametrize("language", [0, 1])
def test_no_held_out_value_stands_in_training(corpus: dict[str, list[Pair]], language: int) -> None:
    forms = {part: {value[language] for pair in corpus[part] for value in pair.values} for part in PARTS}
    assert len(forms["test"]) > 300
    assert not forms["test"] & forms["train"]
    assert not forms["test"] & forms["valid"]
    assert not forms["valid"] & forms["train"]


def test_held_out_values_that_no_other_expression_contains_are_nowhere_in_the_training_text(corpus: dict[str, list[Pair]]) -> None:
    # Whole dates, prices with cents and numbers in words that are not round: no other value ends in them or begins with them.
    text = "\n".join(pair.source for pair in corpus["train"])
    whole = re.compile(r"[A-Z][a-z]+ \d+, \d{4}|[€$][\d,]+\.\d\d|[a-z]+ (thousand|hundred) [a-z -]+(?<!hundred)")
    values = {value for pair in corpus["test"] for value, _ in pair.values if whole.fullmatch(value)}
    assert len(values) > 100
    assert not [
        value for value in values if re.search(rf"(?<!\w)(?<!thousand ){re.escape(value)}(?![\w-]| hundred| thousand)", text)
    ]


def test_every_pair_is_whole(corpus: dict[str, list[Pair]]) -> None:
    for pair in corpus["train"]:
        for text in (pair.source, pair.target):
            assert text and text == text.strip() and text[0] == text[0].upper()
            assert not re.search(r"[{}\n\t\u00a0\u202f]|  | [.?,]|\.\.", text), text
            assert text[-1] in ".?"


def test_every_sentence_of_the_list_is_trained_on(corpus: dict[str, list[Pair]]) -> None:
    for english, _ in templates("en", "de"):
        pattern = re.compile(re.sub(r"\\{[^}]*\\}", ".+", re.escape(english)), re.IGNORECASE)
        assert sum(pattern.fullmatch(pair.source) is not None for pair in corpus["train"]) > 20, english


def test_both_sides_of_a_template_use_the_same_values() -> None:
    for english, german in templates("en", "de"):
        assert slots(english) == slots(german)
        assert {kind_of(slot) for slot in slots(english)} <= set(ENGLISH_GERMAN)


def test_german_to_english_swaps_the_sides() -> None:
    pair = next(generate("de", "en", "train", seed=1))
    assert re.search(r"\b(der|die|das|ist|hat|am|um|wie|in|zu|ich|wir|von|sie|er|es)\b", pair.source, re.IGNORECASE)
    assert re.search(r"\b(the|is|has|on|at|how|in|to|we|from|she|he|it|i|a|by|for)\b", pair.target, re.IGNORECASE)


@pytest.mark.parametrize(
    ("kind", "value", "form", "german"),
    [
        ("date", (2019, 3, 5), "", "5. März 2019"),
        ("numeric_date", (2019, 3, 5), "", "05.03.19"),
        ("time", (15, 45), "", "15:45"),
        ("clock", (3, 30), "", "halb vier"),
        ("clock", (12, 45), "", "Viertel vor eins"),
        ("clock", (1, 0), "", "ein Uhr"),
        ("clock", (6, 25), "", "fünf vor halb sieben"),
        ("words", (234,), "", "zweihundertvierunddreißig"),
        ("year_in_words", (1984,), "", "neunzehnhundertvierundachtzig"),
        ("ordinal", (23,), "en", "dreiundzwanzigsten"),
        ("spoken_day", (3, 1), "am", "am ersten März"),
        ("price", ("EUR", 123450), "", "1.234,50 €"),
        ("amount", ("CHF", 1250), "", "1.250 Schweizer Franken"),
        ("percent", (457,), "", "45,7 %"),
        ("long_duration", ("year", 3), "dative", "3 Jahren"),
        ("ago", ("month", 5), "", "vor 5 Monaten"),
        ("later", ("hour", 2), "", "in 2 Stunden"),
        ("country", ("CH",), "in", "in der Schweiz"),
        ("country", ("TR",), "to", "in die Türkei"),
        ("country", ("IR",), "in", "im Iran"),
        ("country", ("IQ",), "to", "in den Irak"),
        ("country", ("NL",), "from", "aus den Niederlanden"),
        ("country", ("US",), "in", "in den Vereinigten Staaten"),
        ("country", ("FR",), "to", "nach Frankreich"),
        ("countries", ("FR", "CH", "LB"), "in", "in Frankreich, in der Schweiz und im Libanon"),
        ("language", ("es",), "ins", "ins Spanische"),
        ("language", ("de",), "aus", "aus dem Deutschen"),
    ],
)
def test_german_expressions(kind: str, value: Value, form: str, german: str) -> None:
    said = ENGLISH_GERMAN[kind].say(value, "de")
    assert (getattr(said, form) if form else said) == german


# Nouns of each gender with the adjectives that could go wrong: teuer drops its e.
@pytest.mark.parametrize(
    ("noun", "forms"),
    [
        ("table", {"der": "der teure Tisch", "den": "den teuren Tisch", "dem": "dem teuren Tisch"}),
        ("table", {"ein": "ein teurer Tisch", "einen": "einen teuren Tisch", "einem": "einem teuren Tisch", "ihn": "ihn"}),
        ("lamp", {"der": "die teure Lampe", "den": "die teure Lampe", "dem": "der teuren Lampe"}),
        ("lamp", {"ein": "eine teure Lampe", "einen": "eine teure Lampe", "einem": "einer teuren Lampe", "ihn": "sie"}),
        ("book", {"der": "das teure Buch", "den": "das teure Buch", "dem": "dem teuren Buch"}),
        ("book", {"ein": "ein teures Buch", "einen": "ein teures Buch", "einem": "einem teuren Buch", "ihn": "es"}),
    ],
)
def test_german_articles_and_adjectives_agree(noun: str, forms: dict[str, str]) -> None:
    from corpus.english_german import ADJECTIVES, THINGS

    quality = [english for english, _ in ADJECTIVES].index("expensive")
    thing = ENGLISH_GERMAN["thing"].say((quality, [english for english, *_ in THINGS].index(noun)), "de")
    assert {form: getattr(thing, form) for form in forms} == forms


def test_german_places_contract_preposition_and_article() -> None:
    from corpus.english_german import PLACES

    said = {row[0]: ENGLISH_GERMAN["place"].say((index,), "de") for index, row in enumerate(PLACES)}
    assert [getattr(said["station"], form) for form in ("der", "am", "zum", "vom")] == [
        "der Bahnhof",
        "am Bahnhof",
        "zum Bahnhof",
        "vom Bahnhof",
    ]
    assert [getattr(said["library"], form) for form in ("am", "zum", "vom")] == [
        "in der Bibliothek",
        "zur Bibliothek",
        "von der Bibliothek",
    ]
    assert said["market"].am == "auf dem Markt"
    assert said["hospital"].am == "im Krankenhaus"


def test_percentages_are_above_one() -> None:
    # "Nur 1 % der Besucher sprechen" would be a plural verb after a singular.
    percent, random = ENGLISH_GERMAN["percent"], Random(1)
    assert min(int(percent.draw(random)[0]) for _ in range(2000)) > 10


def test_all_names_of_languages_take_the_endings_of_the_templates() -> None:
    from corpus.expressions import LANGUAGES

    names = [ENGLISH_GERMAN["language"].say((code,), "de") for code in LANGUAGES]
    assert all(name.endswith("isch") or name == "Deutsch" for name in names)


@pytest.mark.parametrize("pair", ["en-fr", "es-sv", "pl-it", "pt-nl", "de-fr"])
def test_other_pairs_have_expressions(pair: str) -> None:
    source, target = pair.split("-")
    parts = {part: list(islice(generate(source, target, part, seed=1), 300)) for part in PARTS}
    for language in (0, 1):
        forms = {part: {value[language] for pair in parts[part] for value in pair.values} for part in PARTS}
        assert not forms["test"] & forms["train"]
    assert sum(pair.source != pair.target for pair in parts["train"]) > 200
    assert not [pair for pair in parts["train"] if "{" in pair.source + pair.target]


def test_all_pairs_of_the_locales_can_say_all_kinds() -> None:
    for language in LOCALES:
        other = "en" if language != "en" else "fr"
        assert len(list(islice(generate(language, other, "test", seed=2), 100))) == 100


def run(directory: Path, *options: str, hash_seed: str = "0") -> dict[str, bytes]:
    command = [sys.executable, str(SCRIPT), "-o", str(directory), "--size", "300", "--held-out", "20", *options]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": hash_seed})
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_the_files_depend_on_the_seed_alone(tmp_path: Path) -> None:
    first = run(tmp_path / "a", hash_seed="1")
    assert first == run(tmp_path / "b", hash_seed="2")
    assert first.keys() == {f"{part}.{language}" for part in PARTS for language in ("en", "de")}
    assert {name: content.count(b"\n") for name, content in first.items()} == {
        name: 300 if name.startswith("train") else 20 for name in first
    }
    assert first != run(tmp_path / "c", "--seed", "2")


def test_an_impossible_pair_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "-o", str(tmp_path / "x"), "--pair", "en-xx"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "en-xx" in done.stderr and not (tmp_path / "x").exists()
