"""Pairs of lines to pairs of ids: what can be trained on goes into the shards, the rest is counted by reason."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from nmt.data.corpus import Chunk, Corpus, Drops, Pair, Reason, TextFilter
from nmt.data.report import SideStatistics
from nmt.data.shards import ParallelWriter
from nmt.data.subword import Subword
from nmt.data.text import open_text


@dataclass(frozen=True)
class Encoded:
    """Pairs and the ids of both sides."""

    pairs: list[Pair]
    source: list[list[int]]
    target: list[list[int]]


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

    def encode(self, pairs: list[Pair]) -> Encoded:
        """The ids of all `pairs`."""
        source = self.source.encode_batch([pair.source for pair in pairs], self.threads)
        target = self.target.encode_batch([pair.target for pair in pairs], self.threads)
        return Encoded(pairs, source, target)

    def fit(self, encoded: Encoded, drops: Drops) -> Encoded:
        """The pairs that can be trained on; the others are added to `drops`."""
        kept = []
        for i, (src, tgt) in enumerate(zip(encoded.source, encoded.target, strict=True)):
            reason = self._fault(len(src), len(tgt))
            if reason is None:
                kept.append(i)
            else:
                drops.add(reason, encoded.pairs[i].number)
        if len(kept) == len(encoded.pairs):
            return encoded
        return Encoded([encoded.pairs[i] for i in kept], [encoded.source[i] for i in kept], [encoded.target[i] for i in kept])

    def _fault(self, source: int, target: int) -> Reason | None:
        if not source or not target:
            return "empty"
        longer, shorter = max(source, target), min(source, target)
        if longer > self.max_length:
            return "too_long"
        if self.max_ratio is not None and longer > self.max_ratio * shorter:
            return "ratio"
        return None


@dataclass(frozen=True)
class Split:
    """What was written of the training or the validation set."""

    pairs: int
    """Lines of each side's text; those left out of the shards counted."""
    sizes: dict[str, int]
    """Of the shards, as config.json has them."""
    drops: Drops


def write_valid(
    directory: Path, texts: Iterable[tuple[list[str], list[str]]], encoder: Encoder
) -> tuple[Split, set[tuple[str, str]]]:
    """Write the validation set: its text whole, since scores count every line, its shards without what cannot be trained on.

    `texts` are consecutive lines of both sides. Returns the set's distinct pairs too. The ratio of lengths does not matter here.
    """
    encoder = replace(encoder, max_ratio=None)
    drops = Drops()
    number = 1
    distinct: set[tuple[str, str]] = set()
    with (
        open_text(directory / "valid.source.txt") as source_text,
        open_text(directory / "valid.target.txt") as target_text,
        ParallelWriter.create(directory, "valid", len(encoder.source), len(encoder.target)) as writer,
    ):
        for source, target in texts:
            pairs = [Pair(i, src, tgt) for i, (src, tgt) in enumerate(zip(source, target, strict=True), number)]
            for pair in pairs:
                source_text.write(pair.source)
                target_text.write(pair.target)
                distinct.add((pair.source, pair.target))
            fit = encoder.fit(encoder.encode(pairs), drops)
            writer.append(fit.source, fit.target)
            number += len(pairs)
    return Split(number - 1, writer.sizes, drops), distinct


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
        ParallelWriter.create(directory, "train", len(encoder.source), len(encoder.target)) as writer,
        ThreadPoolExecutor(1) as beside,
    ):

        def begin(chunk: Chunk) -> Future[Encoded]:
            return beside.submit(encoder.encode, [pair for pair in text_filter.keep(chunk) if pair.number not in aside])

        def finish(running: Future[Encoded]) -> int:
            fit = encoder.fit(running.result(), drops)
            writer.append(fit.source, fit.target)
            sides[0].add([pair.source for pair in fit.pairs], fit.source)
            sides[1].add([pair.target for pair in fit.pairs], fit.target)
            return sum((pair.source, pair.target) in valid for pair in fit.pairs)

        running: Future[Encoded] | None = None  # native threads encode one chunk while Python is busy with its neighbours
        for chunk in corpus.chunks():
            following = begin(chunk)
            if running is not None:
                repeated += finish(running)
            running = following
            on_read(len(chunk.source))
        if running is not None:
            repeated += finish(running)
    return Split(writer.sizes["pairs"], writer.sizes, drops), repeated
