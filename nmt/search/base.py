"""What every search shares: how it is called, the hypotheses it returns, the score that ranks them.

`pool` has what they do alike with sentences, `candidates` with probabilities.

A search is a frozen dataclass of its options. It is called as

    search(model, src, src_lengths, max_lengths, prefixes, positions) -> list[list[Hypothesis]]

and sees a network only through the protocol of `models.base`.

Legend: B sentences, S source positions.

What a search promises, whatever the strategy:

- A sentence's hypotheses do not depend on its company, to the last bit: every operation works on one row at a time,
  equal values are told apart by their place in the row, and sums are kept in float64.
- `<pad>`, `<s>` and `<unk>` are never chosen: the first two mean nothing in a text, the third is a confession and no
  translation. Their probability stays where the model put it: `log_prob` is the model's own, never renormalised.
- A hypothesis may have `max_lengths[i]` tokens and then `</s>`. One that is full and whose best (for samples: drawn) next
  token is not `</s>` is cut: not finished, with nothing for `</s>` in its `log_prob`. It competes by its score as the others do.
- A prefix is forced by masking all other candidates, so `log_prob` includes it; it is exempt from the other constraints.
  A limit that leaves no room after a prefix is lifted to one token more than the prefix.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from nmt.errors import NotNumbersError, UsageError
from nmt.models.base import Seq2Seq
from nmt.vocab import EOS, PAD

NOTHING = PAD
"""Stands in a matrix of tokens where a hypothesis was cut, and after its end."""

MOST_PENALTY = 20
"""Exponents beyond it overflow at lengths that occur; 0 to 2 is what people use."""


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

    own_threads: ClassVar[bool]
    """It works in threads that it has already: processes forked from this one would lack them."""

    def __call__(
        self,
        model: Seq2Seq,
        src: Tensor,
        src_lengths: Tensor,
        max_lengths: Sequence[int],
        prefixes: Sequence[Sequence[int]] = (),
        positions: int | None = None,
    ) -> list[list[Hypothesis]]:
        """Best first, for each sentence.

        src (B, S) and src_lengths (B,) as in `Seq2Seq.encode`; `max_lengths[i]` ≥ 1 counts target tokens without `</s>`;
        `prefixes[i]` are ids that every hypothesis of sentence i must begin with (empty: free; `()` for all: all free).
        So many source `positions` (None: all) bound the sentences that run together, and those that wait for others midway.
        The model is in evaluation mode. Raises ValueError for arguments that contradict each other, NotNumbersError where the
        network's numbers are not numbers.
        """
        ...

    def keeping(self, count: int) -> "Search":
        """The search that gives at least the first `count` ≥ 1 of these hypotheses, in fewer steps if it can.

        Raises UsageError where it does not make so many.
        """
        ...


def check_n_best(count: int, most: int) -> None:
    """Raise UsageError where more hypotheses are wanted than a search makes."""
    if count > most:
        raise UsageError(
            f"--n-best {count} is more than the {most} hypothes{'is' if most == 1 else 'es'} that the search makes; "
            "use --search beam with a --beam-size that is no smaller"
        )


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6) ** alpha, with 1 for alpha 0 (Wu et al. 2016, arXiv 1609.08144, eq. 14)."""
    return math.pow((5 + length) / 6, alpha)


def check_options(length_penalty: float, no_repeat_ngram: int) -> None:
    """Raise UsageError for impossible values of the options that all searches have."""
    if not abs(length_penalty) <= MOST_PENALTY:  # so written, NaN is refused too
        raise UsageError(f"length penalty must be a number between -{MOST_PENALTY} and {MOST_PENALTY}, not {length_penalty}")
    if no_repeat_ngram < 0:
        raise UsageError(f"no-repeat-ngram must be 0 (off) or more, not {no_repeat_ngram}")


def hypothesis(tokens: list[int], token_log_probs: list[float], log_prob: float, alpha: float) -> Hypothesis:
    """The hypothesis of one row of `Paths`."""
    if math.isnan(log_prob):
        raise NotNumbersError("the network's probabilities are not numbers: its training diverged or its weights are damaged")
    counted = sum(token != NOTHING for token in tokens)
    finished = EOS in tokens
    return Hypothesis(
        tokens=tuple(tokens[: counted - finished]),
        log_prob=log_prob,
        score=log_prob / length_penalty(counted, alpha),
        finished=finished,
        token_log_probs=tuple(token_log_probs[:counted]),
    )
