"""Greedy search: the most probable token, at each step. Its loop, `walk`, also serves sampling.

Legend: B sentences, K hypotheses a sentence, R = B·K rows, V target vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

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
    in_chunks,
    report,
    rows_of,
)

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""(log_probs (R, V) with -inf where a token may not follow, where the random numbers of a row begin (R,), step) -> token (R,)."""


@dataclass(frozen=True)
class Greedy:
    """One hypothesis a sentence. Of equally probable tokens the lower id is taken."""

    own_threads: ClassVar[bool] = False

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
            nowhere = torch.zeros(len(src), 1, dtype=torch.int64, device=src.device)
            return walk(model, sentences, nowhere, best, self.length_penalty, self.no_repeat_ngram)

    def keeping(self, count: int) -> Self:
        """As in `Search`."""
        check_n_best(count, 1)
        return self


def best(log_probs: Tensor, streams: Tensor, step: int) -> Tensor:
    """The most probable token of each row; the lower id of equals."""
    return log_probs.argmax(dim=1)


def walk(
    model: Seq2Seq, sentences: Sentences, streams: Tensor, choose: Choose, alpha: float, no_repeat_ngram: int
) -> list[list[Hypothesis]]:
    """As many hypotheses for each sentence as `streams` (B, w) has columns, whose tokens `choose` takes one after the other.

    A sentence leaves the batch, with its memory, when all its hypotheses have ended.
    """
    results: list[list[Hypothesis]] = [[] for _ in sentences.place]
    width = streams.shape[1]
    state = model.start(sentences.memory)
    token = torch.full_like(sentences.place, model.start_token)
    paths = Paths.empty(len(token), width, token.device)
    while len(sentences.place):
        hidden, state = model.step(token, state, sentences.memory)
        if paths.length == 0 and width > 1:  # until now the hypotheses of a sentence were one
            rows = torch.arange(len(token), device=token.device).repeat_interleave(width)
            hidden, state = hidden[rows], state.select(rows)

        def follow(hidden: Tensor, tokens: Tensor, forced: Tensor, streams: Tensor, step: int = paths.length) -> tuple[Tensor, ...]:
            log_probs = constrain(model.log_probs(hidden), tokens, forced, no_repeat_ngram)
            token = choose(log_probs, streams, step).unsqueeze(1)
            return log_probs.gather(1, token), token

        value, token = in_chunks(follow, hidden, paths.tokens.flatten(0, 1), sentences.forced(paths), streams.flatten())
        paths = extended(paths, *end_where_full(value, token, sentences.full(paths)))
        done = paths.ended().all(dim=1)
        if done.any():
            report(results, sentences.place, paths, done, alpha)
            keep = (~done).nonzero().flatten()
            state = state.select(rows_of(keep, width))
            sentences, paths, streams = sentences.select(keep), paths.select(keep), streams[keep]
        token = paths.tokens[:, :, -1].flatten()
    return results


def extended(paths: Paths, value: Tensor, token: Tensor) -> Paths:
    """The hypotheses with `token` (R, 1) of log-probability `value` after them; those that have ended with NOTHING."""
    over = paths.ended()
    return paths.extend(token.view_as(over).masked_fill(over, NOTHING), value.view_as(over).masked_fill(over, 0.0))
