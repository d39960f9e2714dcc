"""Longer text than Multi30k has: lines that follow each other as one."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from random import Random

from experiments.common import Sides, lines_of


def joined(lines: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """`lines` as fewer: so many of them as one, in order; the last has what is left."""
    left = iter(lines)
    return [line for size in sizes if (line := " ".join(islice(left, size)))]


def evenly(lines: Sequence[str], size: int) -> list[str]:
    """The same number in each."""
    return joined(lines, [size] * len(lines))


def mixture(sides: Sides, most: int, folder: Path) -> Sides:
    """Files in `folder` in which 1 to `most` pairs are one, as chance, which is the same each time, will have it."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [lines_of(side) for side in sides]
    chance = Random(1)
    sizes = [chance.randint(1, most) for _ in texts[0]]
    source, target = (folder / side.name.removesuffix(".gz") for side in sides)
    for place, lines in zip((source, target), texts, strict=True):
        place.write_text("".join(f"{line}\n" for line in joined(lines, sizes)), encoding="utf-8", newline="\n")
    return source, target
