"""Pairs -> updates -> micro-batches -> tensors.

What an epoch looks like is a pure function of the lengths, the seed and the epoch, so a run can be resumed in its middle
with nothing stored but a position. Legend: n pairs, B sentences of a batch, S source positions, T target positions.
"""

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmt.data.seeds import Use, generator
from nmt.errors import NmtError
from nmt.vocab import EOS, PAD

Ints = npt.NDArray[np.int64]


class Lines(Protocol):
    """Ids of many lines, without EOS (`shards.Sequences`)."""

    def gather(self, indices: Ints, /) -> tuple[npt.NDArray[np.integer], Ints]: ...


class Pairs(Protocol):
    """Two sides of equal length (`shards.ParallelData`)."""

    @property
    def src(self) -> Lines: ...
    @property
    def tgt(self) -> Lines: ...


def batches(lengths: Ints, budget: int, *, seed: int, epoch: int) -> list[Ints]:
    """The updates of an epoch: for each the indices of its pairs. A pure function of its arguments.

    lengths (n, 2) counts the positions of each side, EOS included. Each pair is in exactly one update, and the padded
    positions of each side of an update, pairs × longest, are at most `budget`. Like lengths stand together; which of the
    equally long do, and the order of the updates, differ from epoch to epoch. The first update of all is the one with the
    longest pairs: what does not fit into memory is known at once and not after hours.

    Works on the epoch as a whole: about 50 bytes and half a microsecond a pair.

    Raises NmtError where one pair alone is longer than the budget.
    """
    longest = lengths.max(axis=1, initial=0)
    too_long = np.flatnonzero(longest > budget)
    if len(too_long):
        pair = int(too_long[0])
        raise NmtError(
            f"pair {pair + 1:,} of the training data has {longest[pair]} positions, more than --batch-tokens {budget}: "
            f"raise --batch-tokens, or preprocess with a smaller --max-length ({len(too_long)} such pairs)"
        )
    random = generator(Use.ORDER, seed, epoch)
    order = random.permutation(len(lengths))
    order = order[np.argsort(_likeness(lengths[order]), kind="stable")]
    updates = np.split(order, _cuts(longest[order], budget)) if len(order) else []
    last = len(updates) - 1
    ranks = random.permutation(len(updates))
    if epoch == 0 and updates:
        ranks = np.concatenate(([last], ranks[ranks != last]))
    return [updates[rank] for rank in ranks]


def split(batch: Ints, lengths: Ints, parts: int) -> list[Ints]:
    """An update's pairs as exactly `parts` micro-batches, for accumulation or for processes.

    Like lengths together, none lost; the largest padded micro-batch is as small as cutting their order allows. A part is empty
    where there are fewer pairs than parts.
    """
    order = batch[np.argsort(_likeness(lengths[batch]), kind="stable")]
    longest = lengths[order].max(axis=1, initial=0)
    low, high = int(longest.max(initial=0)), int(len(order) * longest.max(initial=0))
    while low < high:
        middle = (low + high) // 2
        if len(_cuts(longest, middle)) < parts:
            high = middle
        else:
            low = middle + 1
    pieces = np.split(order, _cuts(longest, low))
    return pieces + [order[:0]] * (parts - len(pieces))


def _likeness(lengths: Ints) -> Ints:
    """A number a pair; pairs of near numbers have near lengths on both sides.

    By the longer side first, since that is what the budget counts; within it by the difference of the sides, up and down in turn,
    so that an update that spans two values of the longer side still holds like differences.
    """
    longest = lengths.max(axis=1, initial=0)
    difference = lengths[:, 0] - lengths[:, 1]
    turned: Ints = np.where(longest % 2 == 0, difference, -difference)
    key: Ints = longest * (2 * longest.max(initial=0) + 1) + turned
    return key


def _cuts(longest: Ints, budget: int) -> list[int]:
    """Where to cut pairs, ascending by `longest`, so that each piece is as long as pairs × longest ≤ budget allows."""
    cuts: list[int] = []
    start = 0
    while True:
        window = longest[start : start + budget // int(longest[start])] if start < len(longest) else longest[:0]
        start += int(np.searchsorted(window * np.arange(1, len(window) + 1), budget, side="right"))
        if start >= len(longest):
            return cuts
        cuts.append(start)


@dataclass
class Batch:
    """What a network is trained on; ids int64, padded with PAD on the right."""

    src: Tensor
    """(B, S), each row ends in EOS before its padding."""
    src_lengths: Tensor
    """(B,), EOS counted."""
    prefix: Tensor
    """(B, T), the start token and the target."""
    target: Tensor
    """(B, T), the target and EOS."""
    tokens: int
    """Positions of `target` that are not padding."""

    def to(self, device: torch.device) -> Self:
        """The same on `device`; the host does not wait for the copy."""

        def move(tensor: Tensor) -> Tensor:
            return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)

        return type(self)(move(self.src), move(self.src_lengths), move(self.prefix), move(self.target), self.tokens)

    def twice(self) -> Self:
        """All pairs, and after them all once more."""

        def double(tensor: Tensor) -> Tensor:
            return torch.cat((tensor, tensor))

        return type(self)(double(self.src), double(self.src_lengths), double(self.prefix), double(self.target), 2 * self.tokens)


def collate(data: Pairs, indices: Ints, start_token: int) -> Batch:
    """The pairs `indices` of `data` as tensors on the CPU.

    Whole batches at a time: a loop over lines would hold up, at the rate of a GPU, the thread that feeds it.
    """
    src, src_lengths = data.src.gather(indices)
    tgt, tgt_lengths = data.tgt.gather(indices)
    prefix, target = _padded(tgt, tgt_lengths, first=1), _padded(tgt, tgt_lengths)
    prefix[:, 0] = start_token
    return Batch(
        src=torch.from_numpy(_ended(_padded(src, src_lengths), src_lengths)),
        src_lengths=torch.from_numpy(src_lengths + 1),
        prefix=torch.from_numpy(prefix),
        target=torch.from_numpy(_ended(target, tgt_lengths)),
        tokens=int(tgt_lengths.sum()) + len(indices),
    )


def _padded(ids: npt.NDArray[np.integer], lengths: Ints, first: int = 0) -> Ints:
    """Lines of `ids`, one after the other, as rows with room for one more, each from column `first` on; PAD elsewhere."""
    longest = int(lengths.max(initial=0))
    matrix = np.full((len(lengths), longest + 1), PAD, dtype=np.int64)
    matrix[:, first : first + longest][np.arange(longest) < lengths[:, None]] = ids
    return matrix


def _ended(matrix: Ints, lengths: Ints) -> Ints:
    """`matrix` with EOS behind each row's ids."""
    matrix[np.arange(len(matrix)), lengths] = EOS
    return matrix
