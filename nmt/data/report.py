"""What preprocess found in a corpus: counts that a person checks before training, as JSON and as tables."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmt.data.corpus import REASONS
from nmt.data.shards import Sequences
from nmt.data.subword import Subword
from nmt.vocab import UNK

QUANTILES = {"shortest": 0.0, "1%": 0.01, "10%": 0.1, "median": 0.5, "90%": 0.9, "99%": 0.99, "longest": 1.0}

MOST_FREQUENT = 20
"""Characters without a piece that a report names."""


class SideStatistics:
    """Counts of one side of the training pairs, taken chunk by chunk."""

    def __init__(self, subword: Subword, stride: int) -> None:
        """Each `stride`-th line is decoded again for the round trip."""
        self._subword = subword
        self._stride = stride
        self._lengths = np.zeros(1, np.int64)  # lines of each length up to the longest: exact quantiles in flat memory
        self._words = self._unknown = self._tried = self._same = self._lines = 0
        self._characters: Counter[str] = Counter()

    def add(self, lines: Sequence[str], ids: Sequences) -> None:
        """More lines and their subwords."""
        found = np.bincount(ids.lengths, minlength=len(self._lengths))
        found[: len(self._lengths)] += self._lengths
        self._lengths = found
        self._words += sum(len(line.split()) for line in lines)
        unknown = np.flatnonzero(ids.tokens == UNK)
        self._unknown += len(unknown)
        for i in set((np.searchsorted(ids.offsets, unknown, "right") - 1).tolist()):
            self._characters.update(self._subword.uncovered(lines[i]))
        for i in range(-self._lines % self._stride, len(lines), self._stride):
            self._tried += 1
            self._same += self._subword.decode(ids[i].tolist()) == " ".join(lines[i].split())
        self._lines += len(lines)

    def summary(self) -> dict[str, Any]:
        """The counts as JSON has them."""
        subwords = int(self._lengths @ np.arange(len(self._lengths)))
        below = np.cumsum(self._lengths)
        return {
            "subwords": subwords,
            "words": self._words,
            "subwords_per_word": round(subwords / max(self._words, 1), 4),
            "length": {name: int(np.searchsorted(below, max(share * self._lines, 1))) for name, share in QUANTILES.items()},
            "unknown_subwords": self._unknown,
            "characters_not_covered": {
                "count": self._characters.total(),
                "most_frequent": [[character, count] for character, count in _ranked(self._characters)[:MOST_FREQUENT]],
            },
            "round_trip": {"lines": self._tried, "same": self._same},
        }


def _ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


@dataclass(frozen=True)
class Table:
    """The first column of `rows` is text, the others are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Report:
    """`values` is what report.json holds."""

    values: dict[str, Any]

    def tables(self) -> list[Table]:
        """For a person: what became of the pairs, and what each side is like."""
        pairs, dropped = self.values["pairs"], self.values["dropped"]
        rows = [("read", f"{pairs['read']:,}", "")]
        for reason in REASONS:
            if dropped[reason]["count"]:
                lines = [*map(str, dropped[reason]["first_lines"])]
                more = ["…"] if dropped[reason]["count"] > len(lines) else []
                rows.append((f"dropped: {reason}", f"{dropped[reason]['count']:,}", ", ".join(lines + more)))
        vocabulary = self.values["vocabulary"]
        rows += [
            ("validation", f"{pairs['valid']:,}", ""),
            ("training", f"{pairs['train']:,}", ""),
            ("seen by the subword trainer", f"{vocabulary['trained_on_pairs']:,}", ""),
            ("lines it skipped", f"{vocabulary['skipped_lines']:,}", ""),
        ]
        sides = [self.values["source"], self.values["target"]]
        measures = [
            ("vocabulary", f"{vocabulary['source']:,}", f"{vocabulary['target']:,}"),
            ("subwords a word", *(f"{side['subwords_per_word']:.2f}" for side in sides)),
            *((f"length: {name}", *(f"{side['length'][name]:,}" for side in sides)) for name in QUANTILES),
            ("unknown subwords", *(f"{side['unknown_subwords']:,}" for side in sides)),
            ("characters not covered", *(_characters(side["characters_not_covered"]) for side in sides)),
            (
                "same after a round trip",
                *(f"{_share(side['round_trip']):.2%}" for side in sides),
            ),
        ]
        return [
            Table("pairs", ("", "pairs", "first lines"), tuple(rows)),
            Table("training pairs", ("", "source", "target"), tuple(measures)),
        ]


def _share(round_trip: dict[str, int]) -> float:
    return round_trip["same"] / max(round_trip["lines"], 1)


def _characters(found: dict[str, Any]) -> str:
    """The count, and the three most frequent where they can be shown."""
    shown = " ".join(character for character, _ in found["most_frequent"][:3] if character.isprintable())
    return f"{found['count']:,} ({shown})" if shown else f"{found['count']:,}"
