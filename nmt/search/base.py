"""What every search shares: the hypothesis it returns, the score that ranks, the constraints on candidates.

A search is a frozen dataclass of its options. It is called as

    search(model, src, src_lengths, max_lengths, prefixes) -> list[list[Hypothesis]]

and sees a network only through the protocol of `models.base`. Legend: B sentences, K hypotheses a sentence, R = B·K rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from nmt.models.base import Seq2Seq


@dataclass(frozen=True)
class Hypothesis:
    """One translation of one sentence."""

    tokens: tuple[int, ...]
    """Target ids without start token and without `</s>`."""
    log_prob: float
    """Sum of the model's log-probabilities of `tokens`, and of `</s>` where `finished`; natural log."""
    score: float
    """What ranks: `log_prob` divided by the length penalty of |y| tokens, `</s>` counted where `finished`."""
    finished: bool
    """False where the length limit cut it before `</s>`."""
    token_log_probs: tuple[float, ...]
    """One for each of `tokens`, then one for `</s>` where `finished`; their sum is `log_prob`."""


class Search(Protocol):
    """A strategy: how tokens are chosen."""

    def __call__(
        self,
        model: Seq2Seq,
        src: Tensor,
        src_lengths: Tensor,
        max_lengths: Sequence[int],
        prefixes: Sequence[Sequence[int]],
    ) -> list[list[Hypothesis]]:
        """Best first, for each sentence.

        src (B, S) and src_lengths (B,) as in `Seq2Seq.encode`; `max_lengths[i]` ≥ 1 counts target tokens without `</s>`;
        `prefixes[i]` are ids that every hypothesis of sentence i must begin with (empty: free).
        """
        ...


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6) ** alpha, with 1 for alpha 0 (Wu et al. 2016, arXiv 1609.08144, eq. 14)."""
    return math.pow((5 + length) / 6, alpha)
