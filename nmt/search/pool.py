"""Sentences on their way through a search: those that wait, those that run together, and the hypotheses of each so far.

Legend: B sentences, S source positions, w hypotheses a sentence, R = B·w rows, t tokens so far, P tokens of the longest prefix.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self, TypeVar

import torch
from torch import Tensor

from nmt.models.base import Batched, Memory, Seq2Seq, State, chosen, padded
from nmt.search.base import NOTHING, Hypothesis, hypothesis
from nmt.vocab import BOS, EOS, PAD


@dataclass
class Sentences(Batched):
    """What stays the same while a sentence is translated, one row a sentence still under way."""

    place: Tensor
    """(B,) its number in the call."""
    memory: Memory
    limit: Tensor
    """(B,) tokens that its hypotheses may have."""
    prefix: Tensor
    """(B, P) forced tokens, NOTHING after them."""

    def forced(self, paths: "Paths") -> Tensor:
        """The token (R, 1) of the prefix that must follow each of `paths`, NOTHING where any may; (R, 0) after all prefixes."""
        return self.prefix[:, paths.length : paths.length + 1].repeat_interleave(paths.width, dim=0)

    def full(self, paths: "Paths") -> Tensor:
        """(R,) bool: the hypothesis has as many tokens as it may."""
        return (self.limit == paths.length).repeat_interleave(paths.width)


LEAST_WIDTH = 16
"""The positions that a shorter source counts where they are limited: each row costs a whole vocabulary of log-probabilities a
step, so thousands of one-word lines would take gigabytes."""


class Waiting:
    """The sentences of a call that have not begun, longest source first: those that are under way together are alike."""

    def __init__(
        self,
        model: Seq2Seq,
        src: Tensor,
        src_lengths: Tensor,
        max_lengths: Sequence[int],
        prefixes: Sequence[Sequence[int]],
        positions: int | None,
    ) -> None:
        """Arguments as in `Search`. Raises ValueError where they contradict each other."""
        prefixes = prefixes or [()] * len(src)
        if not len(src) == len(src_lengths) == len(max_lengths) == len(prefixes):
            raise ValueError(
                f"{len(src)} sentences, {len(src_lengths)} lengths, {len(max_lengths)} limits, {len(prefixes)} prefixes"
            )
        if any(limit < 1 for limit in max_lengths):
            raise ValueError("a length limit must be at least 1")
        if any(token in (PAD, BOS, EOS) for prefix in prefixes for token in prefix):
            raise ValueError("a prefix may not hold control symbols")
        self.model, self.src, self.src_lengths, self.device = model, src, src_lengths, src.device
        longest = max(map(len, prefixes), default=0)
        padded = [[*prefix, *[NOTHING] * (longest - len(prefix))] for prefix in prefixes]
        limits = [max(limit, len(prefix) + 1 if prefix else 0) for limit, prefix in zip(max_lengths, prefixes, strict=True)]
        self.longest_limit = max(limits, default=0)
        self.limit = torch.tensor(limits, dtype=torch.int64, device=src.device)
        self.prefix = torch.tensor(padded, dtype=torch.int64, device=src.device).view(len(src), longest)
        self.positions = positions
        self.lengths: list[int] = src_lengths.tolist()
        self.order = sorted(range(len(src)), key=lambda place: -self.lengths[place])
        self.begun = 0

    def __bool__(self) -> bool:
        return self.begun < len(self.order)

    def places(self) -> int:
        """How many sentences like the next one may be under way together."""
        if self.positions is None:
            return len(self.order)
        return max(1, self.positions // max(self._size(self.order[self.begun]), LEAST_WIDTH))

    def take(self, count: int) -> Sentences:
        """The next `count` sentences, or as many as are left.

        Those of one size are encoded together: a few long ones would have the encoder work on the padding of all the others.
        """
        taken = self.order[self.begun : self.begun + count]
        self.begun += len(taken)
        parts = []
        for size, places in itertools.groupby(taken, self._size):
            place = torch.tensor(list(places), dtype=torch.int64, device=self.device)
            memory = self.model.encode(self.src[place, :size], self.src_lengths[place])
            parts.append(Sentences(place, memory, self.limit[place], self.prefix[place]))
        return functools.reduce(Sentences.join, parts)

    def _size(self, place: int) -> int:
        """S of a sentence, which no later one exceeds."""
        return min(padded(self.model, self.lengths[place]), self.src.shape[1])


@dataclass
class Paths(Batched):
    """Hypotheses under way or ended, w for each sentence, as tensors."""

    tokens: Tensor
    """(B, w, t) ids; `</s>` where it was chosen, NOTHING where a hypothesis was cut and after its end."""
    token_log_probs: Tensor
    """(B, w, t) float64, 0 where there is NOTHING."""
    log_prob: Tensor
    """(B, w) float64, their sum; -inf where there is no hypothesis."""

    @classmethod
    def empty(cls, sentences: int, width: int, device: torch.device, log_prob: float = 0.0) -> Self:
        """`width` hypotheses without tokens for each sentence, or `width` places for some with `log_prob` -inf."""
        return cls(
            tokens=torch.zeros(sentences, width, 0, dtype=torch.int64, device=device),
            token_log_probs=torch.zeros(sentences, width, 0, dtype=torch.float64, device=device),
            log_prob=torch.full((sentences, width), log_prob, dtype=torch.float64, device=device),
        )

    @property
    def width(self) -> int:
        """w."""
        return self.tokens.shape[1]

    @property
    def length(self) -> int:
        """t."""
        return self.tokens.shape[2]

    def last(self, start_token: int) -> Tensor:
        """(R,) the latest tokens."""
        if self.length == 0:
            return torch.full_like(self.log_prob, start_token, dtype=torch.int64).flatten()
        return self.tokens[:, :, -1].flatten()

    def ended(self) -> Tensor:
        """(B, w) bool: nothing follows."""
        if self.length == 0:
            return torch.zeros_like(self.log_prob, dtype=torch.bool)
        last = self.tokens[:, :, -1]
        return (last == EOS) | (last == NOTHING)

    def pick(self, order: Tensor) -> "Paths":
        """The hypotheses `order` (B, n) of each sentence, in that order."""
        return Paths(
            tokens=self.tokens.take_along_dim(order.unsqueeze(2), dim=1),
            token_log_probs=self.token_log_probs.take_along_dim(order.unsqueeze(2), dim=1),
            log_prob=self.log_prob.gather(1, order),
        )

    def extend(self, token: Tensor, token_log_prob: Tensor) -> "Paths":
        """Each hypothesis with one token (B, w) more."""
        value = token_log_prob.double()
        return Paths(
            tokens=torch.cat([self.tokens, token.unsqueeze(2)], dim=2),
            token_log_probs=torch.cat([self.token_log_probs, value.unsqueeze(2)], dim=2),
            log_prob=self.log_prob + value,
        )

    def hypotheses(self, sentence: int, alpha: float) -> list[Hypothesis]:
        """Those of one sentence, in order, scored under length penalty `alpha`."""
        rows = zip(
            self.tokens[sentence].tolist(),
            self.token_log_probs[sentence].tolist(),
            self.log_prob[sentence].tolist(),
            strict=True,
        )
        return [hypothesis(tokens, values, log_prob, alpha) for tokens, values, log_prob in rows if log_prob != -math.inf]


@dataclass
class Pool(Batched):
    """Sentences that run together, all after as many steps, and what a search remembers of each; a subclass may remember more.

    Who is over stays, and is computed in vain, until there are many: to move everything costs as much as some steps, and a kernel
    is made for each number of rows.
    """

    sentences: Sentences
    state: State
    """w rows a sentence."""
    live: Paths
    over: Tensor
    """(B,) bool: the sentence has been reported."""

    def select(self, index: Tensor) -> Self:
        rows = rows_of(index, self.live.width)
        return replace(
            self, **{each.name: chosen(getattr(self, each.name), rows if each.name == "state" else index) for each in fields(self)}
        )

    def report(self, results: list[list[Hypothesis]], paths: Paths, done: Tensor, alpha: float) -> bool:
        """Put the hypotheses `paths` of the sentences that are `done` (B,), and have not been reported, among `results`.

        Whether there were any. All leave the device together: each transfer from a GPU waits for it.
        """
        new = (done & ~self.over).nonzero().flatten()
        if not len(new):
            return False
        self.over = self.over | done
        ended = paths.select(new)
        ended = Paths(ended.tokens.cpu(), ended.token_log_probs.cpu(), ended.log_prob.cpu())
        for row, sentence in enumerate(self.sentences.place[new].tolist()):
            results[sentence] = ended.hypotheses(row, alpha)
        return True

    def shrunk(self, exactly: bool = False) -> Self:
        """With as many places as the next of `rung` that suffices, or exactly as many as are needed."""
        needed = len(self.over) - int(self.over.sum())
        size = needed if exactly else rung(needed)
        return self if size >= len(self.over) else self.select(self.over.byte().sort(stable=True).indices[:size])


P = TypeVar("P", bound=Pool)

STAGE = 16
"""Steps after which a pool that has shrunk waits for others that have come as far."""


def run(waiting: Waiting, begin: Callable[[Sentences], P], step: Callable[[P], bool]) -> None:
    """Until all sentences are over. `step` makes one step of a pool, and says whether somebody has ended.

    Most sentences end early and few late: what is left of a pool after a stage of steps is joined with what is left of others, so
    that few steps are made for few rows. All of a pool have made as many steps: none pays for the length of another.
    """
    parked: dict[int, P] = {}
    while waiting or parked:
        pool = _next(parked, waiting)
        if pool is None:
            pool = begin(waiting.take(waiting.places()))
        full = len(pool.over)
        while True:
            if step(pool):
                pool = pool.shrunk()
                if not len(pool.over):
                    break
            if pool.live.length % STAGE == 0 and (parked or waiting) and 2 * len(pool.over) < full:
                pool, stage = pool.shrunk(exactly=True), pool.live.length
                parked[stage] = parked[stage].join(pool) if stage in parked else pool
                break


def _next(parked: dict[int, P], waiting: Waiting) -> P | None:
    """The pool to go on with, which is parked no longer; None: the one that begins next.

    While sentences wait, it is one that is worth a pool, or the largest if there would be too many midway; then the one that has
    come least far, for what is left of it will join the others.
    """
    if not parked:
        return None
    if not waiting:
        return parked.pop(min(parked))
    stage = max(parked, key=lambda each: len(parked[each].over))
    many = sum(len(pool.over) for pool in parked.values()) >= waiting.places()
    return parked.pop(stage) if many or 2 * len(parked[stage].over) >= waiting.places() else None


def rung(count: int) -> int:
    """The least of 0, 1, 2, 3, 4, 6, 8, 12, 16, 24 … that is no smaller than `count`."""
    power = 1 << (count - 1).bit_length() if count > 1 else count
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power


def rows_of(sentences: Tensor, width: int) -> Tensor:
    """The rows of `sentences` (B,), where each has `width` rows."""
    return (sentences.unsqueeze(1) * width + torch.arange(width, device=sentences.device)).flatten()
