"""The updates of a run, one after the other, without end."""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from nmt.data.batching import Batch, batches, collate, split
from nmt.data.resample import Cutter, resampled
from nmt.data.shards import Dataset


@dataclass(frozen=True)
class Update:
    """The pairs of one update, as its micro-batches; none of these is empty.

    Of several processes each has its own micro-batches, maybe none, and the numbers are those of all of them.
    """

    parts: list[Batch]
    tokens: int
    """Target positions that count in the loss."""
    real: int
    """Positions of both sides that are not padding."""
    padded: int
    """All positions of both sides."""
    last: bool
    """Whether it ends its epoch."""
    first: int = 0
    """The number of the first of `parts` among the micro-batches of all processes."""


@dataclass(frozen=True)
class Feed:
    """How updates are made of data; from any (epoch, position) on they are the same each time."""

    dataset: Dataset
    start_token: int
    batch_tokens: int
    """The budget of an update."""
    accumulate: int
    """Micro-batches that an update is split into, in each process."""
    bpe_dropout: float
    seed: int
    directory: Path
    """Holds the temporary files of BPE-dropout."""
    rank: int = 0
    size: int = 1
    """Which of how many processes this is: all have the same updates, and each its own part of every one."""

    def updates(self, epoch: int, position: int) -> Generator[Update, None, None]:
        """From update `position` of `epoch` on. The next one is made, by another thread, while one is used."""
        source = self._updates(epoch, position)
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(next, source)
            while True:
                update = coming.result()
                coming = pool.submit(next, source)
                yield update

    def _updates(self, epoch: int, position: int) -> Iterator[Update]:
        dropout = self.bpe_dropout
        cutters = (Cutter(self.dataset.source, dropout), Cutter(self.dataset.target, dropout)) if dropout else None
        while True:
            data = self.dataset.train
            if cutters is not None:
                data = resampled(data, cutters, self.batch_tokens, seed=self.seed, epoch=epoch, directory=self.directory)
            lengths = data.lengths
            order = batches(lengths, self.batch_tokens, seed=self.seed, epoch=epoch)
            first = self.rank * self.accumulate
            for number in range(position, len(order)):
                parts = [part for part in split(order[number], lengths, self.size * self.accumulate) if len(part)]
                yield Update(
                    parts=[collate(data, part, self.start_token) for part in parts[first : first + self.accumulate]],
                    tokens=int(lengths[order[number], 1].sum()),
                    real=int(lengths[order[number]].sum()),
                    padded=sum(len(part) * int(lengths[part].max(axis=0).sum()) for part in parts),
                    last=number == len(order) - 1,
                    first=first,
                )
            epoch, position = epoch + 1, 0
