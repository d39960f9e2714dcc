"""A parallel corpus: two texts of one line count, read together in chunks as often as needed, and what is dropped of them.

Pipes are copied to a file first. Nothing here grows with the corpus but the digests of `dedup`.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain, compress, islice
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, get_args

from nmt.data.files import reason
from nmt.data.text import BLOCK, Errors, display, open_bytes, read_lines, rereadable
from nmt.errors import NmtError

CHUNK = 4096
"""Pairs read, and encoded, at a time."""

CHARACTERS = 1 << 22
"""So many, and there are fewer pairs: memory follows neither the lines nor their length."""

FEW = 64
"""Pairs after which characters are counted."""

FIRST_LINES = 5
"""Line numbers of dropped pairs that a report shows of each reason."""

Reason = Literal["invalid_utf8", "empty", "duplicate", "too_long", "ratio"]
REASONS: tuple[Reason, ...] = get_args(Reason)


class Pair(NamedTuple):
    """Line `number` (from 1) of both sides."""

    number: int
    source: str
    target: str


@dataclass(frozen=True)
class Pairs:
    """Pairs of lines by column: to make an object of each would take longer than to read it."""

    numbers: Sequence[int]
    source: list[str]
    target: list[str]

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> "Pairs":
        return cls([pair.number for pair in pairs], [pair.source for pair in pairs], [pair.target for pair in pairs])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Pair:
        return Pair(self.numbers[index], self.source[index], self.target[index])

    def where(self, chosen: Sequence[bool]) -> "Pairs":
        """Those whose entry is true."""
        return Pairs(list(compress(self.numbers, chosen)), list(compress(self.source, chosen)), list(compress(self.target, chosen)))

    def without(self, numbers: AbstractSet[int]) -> "Pairs":
        """All but those of these numbers."""
        if numbers.isdisjoint(self.numbers):
            return self
        return self.where([number not in numbers for number in self.numbers])


@dataclass
class Drops:
    """Pairs left out: how many for each reason, and the first line numbers."""

    counts: Counter[Reason] = field(default_factory=Counter)
    lines: dict[Reason, list[int]] = field(default_factory=lambda: {reason: [] for reason in REASONS})

    def add(self, reason: Reason, number: int) -> None:
        self.counts[reason] += 1
        self.lines[reason] = sorted([*self.lines[reason], number])[:FIRST_LINES]

    def __str__(self) -> str:
        """For a message: "empty 3 (first in line 7), too_long 40 (first in line 1)"."""
        dropped = [reason for reason in REASONS if self.counts[reason]]
        return ", ".join(f"{reason} {self.counts[reason]:,} (first in line {self.lines[reason][0]})" for reason in dropped)


class Chunk(NamedTuple):
    """Consecutive lines of both sides."""

    pairs: Pairs
    damaged: frozenset[int]
    """Numbers of the lines that were not UTF-8 on either side."""


class TextFilter:
    """Tells which pairs are text on both sides and, with `dedup`, stand there for the first time. One for each pass."""

    def __init__(self, dedup: bool) -> None:
        self.drops = Drops()
        self._dedup = dedup
        self._seen: set[bytes] = set()

    def keep(self, chunk: Chunk) -> Pairs:
        """The pairs of the next chunk that pass; the others are added to `drops`."""
        pairs = chunk.pairs
        faults: dict[int, Reason] = {}
        for lines in (pairs.source, pairs.target):
            faults |= {number: "empty" for number, line in zip(pairs.numbers, lines, strict=True) if not line or line.isspace()}
        faults |= dict.fromkeys(chunk.damaged, "invalid_utf8")
        if self._dedup:
            whole = pairs.without(faults.keys())
            repeated = map(self._repeated, whole.source, whole.target)
            faults |= dict.fromkeys(compress(whole.numbers, repeated), "duplicate")
        for number, fault in faults.items():
            self.drops.add(fault, number)
        return pairs.without(faults.keys())

    def _repeated(self, source: str, target: str) -> bool:
        """By 128 bits of the pair: among 10^12 pairs two different ones share theirs with a probability of 10^-15."""
        digest = hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=16).digest()
        repeated = digest in self._seen
        self._seen.add(digest)
        return repeated


@dataclass(frozen=True)
class Side:
    """A text of the corpus: where it is read, and what messages call it."""

    path: str
    name: str


class Corpus:
    """Two texts whose lines belong together."""

    def __init__(self, source: str, target: str, errors: Errors, spool: Path) -> None:
        """Copies what can be read only once to `spool`.*, both at the same time: one writer may feed both."""
        self._errors = errors
        self.source, self.target = _spooled([source, target], [Path(f"{spool}.source"), Path(f"{spool}.target")])

    def chunks(self) -> Iterator[Chunk]:
        """All pairs of lines, CHUNK or fewer at a time, fewer where they are long.

        Raises NmtError with both counts where one text ends before the other.
        """
        damaged: set[int] = set()
        source, target = (read_lines(side.path, self._errors, damaged.add, side.name) for side in (self.source, self.target))
        first = 1
        while True:
            src, tgt, characters = list[str](), list[str](), 0
            while len(src) == len(tgt) < CHUNK and characters < CHARACTERS:
                some = list(islice(source, FEW)), list(islice(target, FEW))
                if not any(some):
                    break
                src += some[0]
                tgt += some[1]
                characters += sum(map(len, chain(*some)))
            if len(src) != len(tgt):
                counts = [first - 1 + len(lines) + sum(1 for _ in rest) for lines, rest in ((src, source), (tgt, target))]
                raise NmtError(
                    f"{self.source.name} has {counts[0]:,} lines and {self.target.name} has {counts[1]:,}: "
                    "line n of the one must translate line n of the other"
                )
            if not src:
                return
            yield Chunk(Pairs(range(first, first + len(src)), src, tgt), frozenset(damaged))
            damaged.clear()
            first += len(src)


def _write(stream: BinaryIO, to: Path, data: bytes) -> None:
    """All of `data`. NmtError that names the copy: an OSError would be taken for one of what is read."""
    try:
        while data:
            data = data[stream.write(data) :]
    except OSError as error:
        raise NmtError(f"{to}: cannot be written ({reason(error)})") from None


def _spooled(paths: Sequence[str], copies: Sequence[Path]) -> list[Side]:
    """Where each text can be read again and again: its own place, or the copy made here of a pipe.

    In threads, for a writer that feeds two pipes may stop at either. They do not outlive an interrupt.
    """
    failures: list[BaseException] = []

    def copy(path: str, to: Path) -> None:
        try:
            with open(to, "wb", buffering=0) as written, open_bytes(path, display(path)) as read:
                while data := read(BLOCK):
                    _write(written, to, data)
        except BaseException as error:
            failures.append(error)

    once = [not rereadable(path) for path in paths]
    threads = [threading.Thread(target=copy, args=pair, daemon=True) for pair in compress(zip(paths, copies, strict=True), once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [Side(str(to) if moved else path, display(path)) for path, to, moved in zip(paths, copies, once, strict=True)]
