"""Pairs of lines to pairs of ids: what can be trained on goes into the shards, the rest is counted by reason."""

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nmt.data.corpus import Corpus, Drops, Pairs, Reason, TextFilter
from nmt.data.report import SideStatistics
from nmt.data.shards import ParallelWriter, Sequences
from nmt.data.subword import Subword
from nmt.data.text import open_text


@dataclass(frozen=True)
class Encoded:
    """Pairs and the ids of both sides."""

    pairs: Pairs
    source: Sequences
    target: Sequences


@dataclass(frozen=True)
class Encoder:
    """The subword models of both sides, and the limits of a training pair."""

    source: Subword
    target: Subword
    max_length: int
    """Subwords of the longer side, EOS not counted."""
    max_ratio: float | None
    """Subwords of the longer side by those of the shorter."""
    threads: int
    """Chunks encoded at a time, each in its own: while Python makes lists of one's ids, native code is busy with the others."""

    def encode(self, pairs: Pairs) -> Encoded:
        """The ids of all `pairs`."""
        source = Sequences.of(self.source.encode_batch(pairs.source))
        target = Sequences.of(self.target.encode_batch(pairs.target))
        return Encoded(pairs, source, target)

    def fit(self, encoded: Encoded, drops: Drops) -> Encoded:
        """The pairs that can be trained on; the others are added to `drops`."""
        source, target = encoded.source.lengths, encoded.target.lengths
        longer, shorter = np.maximum(source, target), np.minimum(source, target)
        faults: dict[Reason, npt.NDArray[np.bool_]] = {"empty": shorter == 0, "too_long": longer > self.max_length}
        if self.max_ratio is not None:
            faults["ratio"] = longer > self.max_ratio * shorter
        fits = np.ones(len(encoded.pairs), bool)
        for reason, faulty in faults.items():  # the first that a pair has is the one that counts
            for i in map(int, np.flatnonzero(fits & faulty)):
                drops.add(reason, encoded.pairs.numbers[i])
            fits &= ~faulty
        if fits.all():
            return encoded
        return Encoded(encoded.pairs.where(fits.tolist()), encoded.source.where(fits), encoded.target.where(fits))


@dataclass(frozen=True)
class Split:
    """What was written of the training or the validation set."""

    pairs: int
    """Lines of each side's text; those left out of the shards counted."""
    sizes: dict[str, int]
    """Of the shards, as config.json has them."""
    drops: Drops


def write_valid(directory: Path, chunks: Iterable[Pairs], encoder: Encoder) -> tuple[Split, set[tuple[str, str]]]:
    """Write the validation set: its text whole, since scores count every line, its shards without what cannot be trained on.

    Returns the set's distinct pairs too. The ratio of lengths does not matter here.
    """
    encoder = replace(encoder, max_ratio=None)
    drops = Drops()
    size = 0
    distinct: set[tuple[str, str]] = set()
    with (
        open_text(directory / "valid.source.txt") as source_text,
        open_text(directory / "valid.target.txt") as target_text,
        ParallelWriter.create(directory, "valid", len(encoder.source), len(encoder.target)) as writer,
    ):
        for pairs in chunks:
            for source, target in zip(pairs.source, pairs.target, strict=True):
                source_text.write(source)
                target_text.write(target)
                distinct.add((source, target))
            fit = encoder.fit(encoder.encode(pairs), drops)
            writer.append(fit.source, fit.target)
            size += len(pairs)
    return Split(size, writer.sizes, drops), distinct


@contextmanager
def _lists_at_ease() -> Iterator[None]:
    """Let Python look for unreachable cycles less often: a list of ids for each line, gone at once, has it look all the time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def write_train(
    directory: Path,
    corpus: Corpus,
    text_filter: TextFilter,
    aside: set[int],
    valid: set[tuple[str, str]],
    encoder: Encoder,
    sides: tuple[SideStatistics, SideStatistics],
    on_read: Callable[[int], None],
) -> tuple[Split, int]:
    """Write the training shards: all pairs but those numbered in `aside`, `sides` counting what goes in.

    Returns also how many of their pairs stand in `valid`, word for word. `on_read` is told how many pairs were read.
    """
    drops = text_filter.drops
    repeated = 0
    with (
        _lists_at_ease(),
        ParallelWriter.create(directory, "train", len(encoder.source), len(encoder.target)) as writer,
        ThreadPoolExecutor(encoder.threads) as beside,
    ):

        def finish(running: Future[Encoded]) -> int:
            fit = encoder.fit(running.result(), drops)
            writer.append(fit.source, fit.target)
            sides[0].add(fit.pairs.source, fit.source)
            sides[1].add(fit.pairs.target, fit.target)
            return sum(pair in valid for pair in zip(fit.pairs.source, fit.pairs.target, strict=True))

        running: deque[Future[Encoded]] = deque()
        for chunk in corpus.chunks():
            running.append(beside.submit(encoder.encode, text_filter.keep(chunk).without(aside)))
            if len(running) > encoder.threads:
                repeated += finish(running.popleft())
            on_read(len(chunk.pairs))
        repeated += sum(map(finish, running))
    return Split(writer.sizes["pairs"], writer.sizes, drops), repeated
