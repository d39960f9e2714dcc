"""Greedy search: the most probable token, at each step. Its loop, `walk`, also serves sampling.

Legend: B sentences, K hypotheses a sentence, R = B·K rows, V target vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from nmt.models.base import Seq2Seq
from nmt.search.base import (
    NOTHING,
    Hypothesis,
    Paths,
    Sentences,
    check_n_best,
    check_options,
    constrain,
    end_where_full,
    report,
    rows_of,
)

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""(log_probs (R, V) with -inf where a token may not follow, place (B,) of the sentences in the call, step) -> token (R,)."""


@dataclass(frozen=True)
class Greedy:
    """One hypothesis a sentence. Of equally probable tokens the lower id is taken."""

    length_penalty: float = 0.0
    """A in score = log_prob / ((5 + |y|) / 6)^A; 0 compares log-probabilities, more favours longer translations."""
    no_repeat_ngram: int = 0
    """Never produce a sequence of so many subwords twice in a translation; 0 is off."""

    def __post_init__(self) -> None:
        check_options(self.length_penalty, self.no_repeat_ngram)

    def __call__(
        self,
        model: Seq2Seq,
        src: Tensor,
        src_lengths: Tensor,
        max_lengths: Sequence[int],
        prefixes: Sequence[Sequence[int]] = (),
    ) -> list[list[Hypothesis]]:
        """As in `Search`; one hypothesis each."""
        with torch.inference_mode():
            sentences = Sentences.encode(model, src, src_lengths, max_lengths, prefixes)
            return walk(model, sentences, 1, best, self.length_penalty, self.no_repeat_ngram)

    def keeping(self, count: int) -> Self:
        """As in `Search`."""
        check_n_best(count, 1)
        return self


def best(log_probs: Tensor, place: Tensor, step: int) -> Tensor:
    """The most probable token of each row; the lower id of equals."""
    return log_probs.argmax(dim=1)


def walk(
    model: Seq2Seq, sentences: Sentences, width: int, choose: Choose, alpha: float, no_repeat_ngram: int
) -> list[list[Hypothesis]]:
    """`width` hypotheses for each sentence, whose tokens `choose` takes one after the other.

    A sentence leaves the batch, with its memory, when all its hypotheses have ended.
    """
    results: list[list[Hypothesis]] = [[] for _ in sentences.place]
    state = model.start(sentences.memory)
    token = torch.full_like(sentences.place, model.start_token)
    paths = Paths.empty(len(token), width, token.device)
    while len(sentences.place):
        hidden, state = model.step(token, state, sentences.memory)
        log_probs = model.log_probs(hidden)
        if paths.length == 0 and width > 1:  # until now the hypotheses of a sentence were one
            rows = torch.arange(len(token), device=token.device).repeat_interleave(width)
            log_probs, state = log_probs[rows], state.select(rows)
        constrain(log_probs, paths, sentences, no_repeat_ngram)
        paths = follow(log_probs, choose(log_probs, sentences.place, paths.length), paths, sentences)
        done = paths.ended().all(dim=1)
        if done.any():
            report(results, sentences.place, paths, done, alpha)
            keep = (~done).nonzero().flatten()
            sentences, paths, state = sentences.select(keep), paths.select(keep), state.select(rows_of(keep, width))
        token = paths.tokens[:, :, -1].flatten()
    return results


def follow(log_probs: Tensor, token: Tensor, paths: Paths, sentences: Sentences) -> Paths:
    """The hypotheses with `token` (R,) after them; those that have ended, or end here, with NOTHING."""
    token = token.unsqueeze(1)
    value, token = end_where_full(log_probs.gather(1, token), token, sentences.full(paths))
    over = paths.ended()
    return paths.extend(token.view_as(over).masked_fill(over, NOTHING), value.view_as(over).masked_fill(over, 0.0))
