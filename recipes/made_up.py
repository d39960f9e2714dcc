"""A corpus that only its speed matters of: words as frequent as Zipf's law has them, sentences as long as some text's."""

from math import log
from pathlib import Path

import numpy as np


def write_corpus(folder: Path, pairs: int, vocabulary: int, mean_length: float) -> tuple[Path, Path]:
    """Write source and target side, a pure function of the numbers; returns their paths.

    There are four words fewer than `vocabulary`, which holds as many symbols. There is nothing to learn in it.
    """
    random = np.random.default_rng(1)
    words = np.array([_word(number) for number in range(vocabulary - 4)])
    chances = 1 / np.arange(1, len(words) + 1)
    chances /= chances.sum()
    source = random.lognormal(log(mean_length) - 0.6**2 / 2, 0.6, pairs)
    target = source * random.lognormal(0.0, 0.2, pairs)
    paths = folder / "train.source", folder / "train.target"
    for path, lengths in zip(paths, (source, target), strict=True):
        ends = lengths.clip(1, 150).astype(int).cumsum()
        drawn = words[random.choice(len(words), int(ends[-1]), p=chances)].tolist()
        starts = [0, *ends[:-1].tolist()]
        lines = (" ".join(drawn[start:end]) for start, end in zip(starts, ends.tolist(), strict=True))
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def _word(number: int) -> str:
    """Another one for each number."""
    letters = ""
    while number or not letters:
        number, letter = divmod(number, 26)
        letters += chr(ord("a") + letter)
    return letters
