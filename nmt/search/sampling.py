"""Sampling: each token is drawn from the network's distribution, flattened or sharpened by a temperature and cut by filters.

Temperature as softmax(z / τ); top-k (Fan et al. 2018, arXiv 1805.04833); top-p, or nucleus (Holtzman et al. 2020, arXiv
1904.09751); min-p (Nguyen et al. 2024, arXiv 2407.01082). They act in that order, the order of the transformers library:
each sees what the one before left, renormalised.

The draws of a hypothesis are a function of the seed, the source ids of its sentence and its number among the samples. They
depend on nothing else: not on the batch, the place in it, or earlier calls.

Legend: B sentences, R rows (hypotheses), V target vocabulary.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from nmt.errors import UsageError
from nmt.models.base import Seq2Seq
from nmt.search.base import Hypothesis, check_n_best, check_options
from nmt.search.candidates import top
from nmt.search.greedy import best, walk
from nmt.search.pool import Waiting


@dataclass(frozen=True)
class Sampling:
    """`samples` independent draws a sentence, best score first; the same translation may be drawn twice.

    `log_prob` is the network's own, at temperature 1 and without filters. Temperature 0 is greedy search, and so is top-k 1.
    """

    own_threads: ClassVar[bool] = False

    seed: int = 1
    """Seed of the draws; a line's draws depend on it and on the line alone."""
    temperature: float = 1.0
    """τ in p ~ exp(z / τ); 0 takes the most probable token."""
    top_k: int = 0
    """Draw from the k most probable tokens; 0 is off."""
    top_p: float = 1.0
    """Draw from the fewest most probable tokens that make up p, and equals of the last; 1 is off."""
    min_p: float = 0.0
    """Draw from tokens at least p times as probable as the most probable one; 0 is off."""
    samples: int = 1
    """Hypotheses drawn for each sentence."""
    length_penalty: float = 0.0
    """A in score = log_prob / ((5 + |y|) / 6)^A; 0 compares log-probabilities, more favours longer translations."""
    no_repeat_ngram: int = 0
    """Never produce a sequence of so many subwords twice in a translation; 0 is off."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"temperature must be a finite number, 0 or more, not {self.temperature}")
        if self.top_k < 0:
            raise UsageError(f"top-k must be 0 (off) or more, not {self.top_k}")
        for name, value in (("top-p", self.top_p), ("min-p", self.min_p)):
            if not 0 <= value <= 1:
                raise UsageError(f"{name} must be between 0 and 1, not {value}")
        if self.samples < 1:
            raise UsageError(f"samples must be at least 1, not {self.samples}")
        check_options(self.length_penalty, self.no_repeat_ngram)

    def __call__(
        self,
        model: Seq2Seq,
        src: Tensor,
        src_lengths: Tensor,
        max_lengths: Sequence[int],
        prefixes: Sequence[Sequence[int]] = (),
        positions: int | None = None,
    ) -> list[list[Hypothesis]]:
        """As in `Search`; `samples` hypotheses each."""

        def draw(log_probs: Tensor, streams: Tensor, step: int) -> Tensor:
            return self.choose(log_probs, uniform(streams, step))

        choose = best if self.temperature == 0 else draw
        with torch.inference_mode():
            waiting = Waiting(model, src, src_lengths, max_lengths, prefixes, positions)
            streams = self.streams(src, src_lengths)
            drawn = walk(model, waiting, streams, choose, self.length_penalty, self.no_repeat_ngram)
        return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score) for hypotheses in drawn]

    def keeping(self, count: int) -> Self:
        """As in `Search`: which of the samples are best is known when all are drawn."""
        check_n_best(count, self.samples)
        return self

    def streams(self, src: Tensor, src_lengths: Tensor) -> Tensor:
        """(B, samples) int64: where the random numbers of each hypothesis begin."""
        sources = [ids[:length] for ids, length in zip(src.tolist(), src_lengths.tolist(), strict=True)]
        starts = [[start_of_stream(self.seed, number, ids) for number in range(self.samples)] for ids in sources]
        return torch.tensor(starts, dtype=torch.int64, device=src.device).view(len(starts), self.samples)

    def choose(self, log_probs: Tensor, draw: Tensor) -> Tensor:
        """The token (R,) that each number of `draw` (R,) in [0, 1) means under `log_probs` (R, V): inverse transform sampling."""
        probs, tokens = self.distribution(log_probs)
        cumulative = probs.cumsum(dim=1, dtype=torch.float64)
        # The first place where the sum exceeds draw * total; a place without probability never is.
        place = torch.searchsorted(cumulative, draw.unsqueeze(1) * cumulative[:, -1:], right=True)
        place = place.clamp(max=probs.shape[1] - 1)  # of NaN there is no such place; the log-probability will show it
        return tokens.gather(1, place).squeeze(1)

    def distribution(self, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (R, C) up to a factor, 0 where filtered out, and the tokens (R, C) they belong to."""
        if self.top_k:
            log_probs, tokens = top(log_probs, self.top_k)
        else:
            tokens = torch.arange(log_probs.shape[1], device=log_probs.device).expand_as(log_probs)
        probs = self.tempered(log_probs)
        if self.top_p < 1:
            probs = probs.masked_fill(probs < least_of_nucleus(probs, self.top_p), 0.0)
        if self.min_p:
            probs = probs.masked_fill(probs < self.min_p * probs.amax(dim=1, keepdim=True), 0.0)
        return probs, tokens

    def tempered(self, values: Tensor) -> Tensor:
        """softmax(values / τ). The best value becomes 0 first, so that it stays one whatever τ makes of the others.

        A float32 holds no temperature beyond these bounds, and within them the limits, argmax and uniform, are reached.
        """
        temperature = min(max(self.temperature, 1e-30), 1e30)
        return ((values - values.amax(dim=1, keepdim=True)) / temperature).softmax(dim=1)


def least_of_nucleus(probs: Tensor, mass: float) -> Tensor:
    """The smallest probability (R, 1) among the fewest greatest of `probs` (R, C) that sum to `mass`; there is always one."""
    if probs.device.type == "cpu":  # numpy sorts a vocabulary thirty times as fast as torch does on a CPU
        ordered = torch.from_numpy(np.sort(probs.numpy(), axis=1)).flip(1)
    else:
        ordered = probs.sort(dim=1, descending=True).values
    before = ordered.cumsum(dim=1, dtype=torch.float64) - ordered
    return ordered.gather(1, (before < mass).sum(dim=1, keepdim=True).clamp(min=1) - 1)


def start_of_stream(seed: int, number: int, ids: list[int]) -> int:
    """A signed 64-bit integer from all bits of the seed, the number of the sample and the source ids of the sentence."""
    text = f"{seed} {number} {ids}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def uniform(start: Tensor, step: int) -> Tensor:
    """The number (R,) float64 in [0, 1) of `step` in the streams `start` (R,) int64: SplitMix64 (Steele, Lea, Flood 2014).

    A counter-based generator: each number is computed from its place, so rows may come and go. int64 wraps around as the
    published uint64 arithmetic does.
    """
    z = start + as_signed((step + 1) * 0x9E3779B97F4A7C15)
    z = (z ^ shift_right(z, 30)) * as_signed(0xBF58476D1CE4E5B9)
    z = (z ^ shift_right(z, 27)) * as_signed(0x94D049BB133111EB)
    z = z ^ shift_right(z, 31)
    return shift_right(z, 11).double() * 2.0**-53


def shift_right(bits: Tensor, count: int) -> Tensor:
    """`bits` as unsigned 64-bit integers, divided by 2 ** count."""
    return (bits >> count) & ((1 << (64 - count)) - 1)


def as_signed(bits: int) -> int:
    """The 64 low bits of `bits` as a signed integer."""
    return (bits + (1 << 63)) % (1 << 64) - (1 << 63)
