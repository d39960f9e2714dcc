"""Write a parallel corpus whose text is made on the spot: python recipes/demo_corpus.py --pair en-de --size 30000 -o DIR.

English and German come as sentences; any other pair of the languages in corpus/expressions.py as expressions only: dates,
times, money, measures, durations, lists, numbers. Train, valid and test share no sentence, on either side, and no value
that can be held out: no date, price, amount or number of the test sentences stands in the training text in that form.
"""

import argparse
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from string import Formatter

from corpus.english_german import ENGLISH_GERMAN
from corpus.expressions import KINDS, LOCALES, Kind, Value
from corpus.sentences import templates

PARTS = ("train", "valid", "test")
SHARE = 16
"""One value in so many is for test, one for valid, the others for train."""


@dataclass(frozen=True)
class Pair:
    """A sentence in two languages, and its values of the kinds that are held out, as the two languages write them."""

    source: str
    target: str
    values: tuple[tuple[str, str], ...]


def part_of(text: str) -> str:
    """The part of the corpus to which a value belongs, named by its English form: the same in every run, whatever the seed."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    return {0: "test", 1: "valid"}.get(number % SHARE, "train")


def slots(template: str) -> list[str]:
    """The names of a template's values: "{day} to {day2}, {place.at}" -> ["day", "day2", "place"]."""
    fields = (field for _, field, _, _ in Formatter().parse(template) if field is not None)
    return sorted({field.split(".")[0] for field in fields})


def kind_of(slot: str) -> str:
    return slot.rstrip("0123456789")


def draw_values(names: list[str], kinds: dict[str, Kind], part: str, random: Random) -> dict[str, Value]:
    """A value that belongs to `part` for each of the slots; values of one kind differ, and those held out ascend."""
    values: dict[str, Value] = {}
    for name in dict.fromkeys(map(kind_of, names)):
        kind, mine = kinds[name], [slot for slot in names if kind_of(slot) == name]
        drawn: list[Value] = []
        while len(drawn) < len(mine):
            value = kind.draw(random)
            if value not in drawn and (not kind.held_out or part_of(kind.say(value, "en")) == part):
                drawn.append(value)
        values |= zip(mine, sorted(drawn) if kind.held_out else drawn, strict=True)
    return values


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def generate(source: str, target: str, part: str, seed: int) -> Iterator[Pair]:
    """Endless pairs of one part of the corpus, a pure function of the arguments; no sentence of either side comes twice."""
    random = Random(f"{source} {target} {part} {seed}")
    kinds = ENGLISH_GERMAN if {source, target} == {"de", "en"} else KINDS
    sides = templates(source, target)
    seen_sources, seen_targets = set[str](), set[str]()
    while True:
        template = random.choice(sides)
        names = slots(template[0])
        values = draw_values(names, kinds, part, random)
        said = [{name: kinds[kind_of(name)].say(values[name], language) for name in names} for language in (source, target)]
        source_text, target_text = (capitalised(text.format(**words)) for text, words in zip(template, said, strict=True))
        held_out = [name for name in names if kinds[kind_of(name)].held_out]
        # Where no value can be held out, the sentence itself is.
        if not held_out and part_of(source_text) != part:
            continue
        if source_text in seen_sources or target_text in seen_targets:
            continue
        seen_sources.add(source_text)
        seen_targets.add(target_text)
        yield Pair(source_text, target_text, tuple((said[0][name], said[1][name]) for name in held_out))


def write(directory: Path, source: str, target: str, sizes: dict[str, int], seed: int) -> None:
    """Files train.en, train.de, valid.en … in `directory`, one sentence a line."""
    directory.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        pairs = list(islice(generate(source, target, part, seed), sizes[part]))
        for language, lines in ((source, [pair.source for pair in pairs]), (target, [pair.target for pair in pairs])):
            text = "".join(f"{line}\n" for line in lines)
            (directory / f"{part}.{language}").write_text(text, encoding="utf-8", newline="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a parallel corpus whose text is made on the spot.")
    parser.add_argument("--pair", default="en-de", help=f"two different languages of {' '.join(LOCALES)} (en-de)")
    parser.add_argument("--size", type=int, default=30_000, help="pairs to train on (30000)")
    parser.add_argument("--held-out", type=int, default=500, help="pairs of valid and of test (500 each)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other sentences (1)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    source, _, target = options.pair.partition("-")
    if source == target or source not in LOCALES or target not in LOCALES:
        parser.error(f"--pair {options.pair}: two different languages of {' '.join(LOCALES)} are needed, such as en-de")
    sizes = {"train": options.size, "valid": options.held_out, "test": options.held_out}
    write(options.output, source, target, sizes, options.seed)


if __name__ == "__main__":
    main()
