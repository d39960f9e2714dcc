"""Greedy search: the most probable token, at each step. Its loop, `walk`, also serves sampling.

Legend: B sentences, K hypotheses a sentence, R = B·K rows, V target vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from nmt.models.base import Seq2Seq
from nmt.search.base import NOTHING, Hypothesis, check_n_best, check_options
from nmt.search.candidates import constrain, end_where_full, first_of_largest, in_chunks
from nmt.search.pool import Paths, Pool, Sentences, Waiting, run


@dataclass
class Walks(Pool):
    """Hypotheses that grow without looking at each other."""

    streams: Tensor
    """(B, w) where the random numbers of each begin."""


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
        positions: int | None = None,
    ) -> list[list[Hypothesis]]:
        """As in `Search`; one hypothesis each."""
        with torch.inference_mode():
            waiting = Waiting(model, src, src_lengths, max_lengths, prefixes, positions)
            nowhere = torch.zeros(len(src), 1, dtype=torch.int64, device=src.device)
            return walk(model, waiting, nowhere, best, self.length_penalty, self.no_repeat_ngram)

    def keeping(self, count: int) -> Self:
        """As in `Search`."""
        check_n_best(count, 1)
        return self


def best(log_probs: Tensor, streams: Tensor, step: int) -> Tensor:
    """The most probable token of each row; the lower id of equals."""
    return first_of_largest(log_probs)


def walk(
    model: Seq2Seq, waiting: Waiting, streams: Tensor, choose: Choose, alpha: float, no_repeat_ngram: int
) -> list[list[Hypothesis]]:
    """As many hypotheses for each sentence as `streams` (B, w) has columns, whose tokens `choose` takes one after the other.

    A sentence is over when all its hypotheses have ended.
    """
    results: list[list[Hypothesis]] = [[] for _ in streams]
    width = streams.shape[1]

    def begin(sentences: Sentences) -> Walks:
        count = len(sentences.place)
        state = model.start(sentences.memory)
        if width > 1:
            state = state.select(torch.arange(count, device=streams.device).repeat_interleave(width))
        over = torch.zeros(count, dtype=torch.bool, device=streams.device)
        return Walks(sentences, state, Paths.empty(count, width, streams.device), over, streams[sentences.place])

    def step(pool: Walks) -> bool:
        paths, sentences = pool.live, pool.sentences
        hidden, pool.state = model.step(paths.last(model.start_token), pool.state, sentences.memory)

        def follow(hidden: Tensor, tokens: Tensor, forced: Tensor, streams: Tensor) -> tuple[Tensor, ...]:
            log_probs = constrain(model.log_probs(hidden), tokens, forced, no_repeat_ngram)
            token = choose(log_probs, streams, paths.length).unsqueeze(1)
            return log_probs.gather(1, token), token

        value, token = in_chunks(follow, hidden, paths.tokens.flatten(0, 1), sentences.forced(paths), pool.streams.flatten())
        pool.live = extended(paths, *end_where_full(value, token, sentences.full(paths)))
        return pool.report(results, pool.live, pool.live.ended().all(dim=1), alpha)

    run(waiting, begin, step)
    return results


def extended(paths: Paths, value: Tensor, token: Tensor) -> Paths:
    """The hypotheses with `token` (R, 1) of log-probability `value` after them; those that have ended with NOTHING."""
    over = paths.ended()
    return paths.extend(token.view_as(over).masked_fill(over, NOTHING), value.view_as(over).masked_fill(over, 0.0))
