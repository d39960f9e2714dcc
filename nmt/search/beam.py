"""Beam search that keeps live and finished hypotheses apart, so that a finished one never takes a live one's place.

Each step looks at the 2K best candidates of a sentence: each live hypothesis can end only once, so at least K of them are not
ends and the beam stays full. A sentence stops when its best live hypothesis cannot beat the worst of K finished ones under the
length penalty, not when the first K have finished (as in the beam search of tensor2tensor and flax; the penalty is that of
Wu et al. 2016, arXiv 1609.08144).

Legend: B sentences, K size of the beam, w ≤ K live hypotheses a sentence now, C candidates a sentence, V target vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from nmt.errors import UsageError
from nmt.models.base import Seq2Seq, State
from nmt.search.base import NOTHING, Hypothesis, check_n_best, check_options, length_penalty
from nmt.search.candidates import constrain, end_where_full, in_chunks, top
from nmt.search.greedy import Greedy
from nmt.search.pool import Paths, Pool, Sentences, Waiting, run


@dataclass
class Beams(Pool):
    """Live and finished hypotheses of the sentences under way."""

    finished: Paths


@dataclass(frozen=True)
class Beam:
    """The `n_best` best hypotheses that a beam of `size` meets, best first, no token sequence twice.

    To ask for fewer saves steps, and gives the first of more. There are fewer than `n_best` only where fewer exist: a vocabulary,
    or what limit and constraints leave of it, smaller than the beam. Ties go to the hypothesis that ended earlier, then to the
    candidate of the better live hypothesis, then to the lower id. A beam of 1 is greedy search itself: with 2 candidates and the
    stop rule above it would be a little more than that.
    """

    own_threads: ClassVar[bool] = False

    size: int = 5
    """Hypotheses kept for each sentence."""
    length_penalty: float = 0.0
    """A in score = log_prob / ((5 + |y|) / 6)^A; 0 compares log-probabilities, more favours longer translations."""
    no_repeat_ngram: int = 0
    """Never produce a sequence of so many subwords twice in a translation; 0 is off."""
    n_best: int | None = None
    """Hypotheses returned; all `size` where not said."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"beam size must be at least 1, not {self.size}")
        if self.n_best is not None and not 1 <= self.n_best <= self.size:
            raise UsageError(f"n-best must be between 1 and the beam size, {self.size}, not {self.n_best}")
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
        """As in `Search`; `n_best` hypotheses each."""
        if self.size == 1:
            return Greedy(self.length_penalty, self.no_repeat_ngram)(model, src, src_lengths, max_lengths, prefixes, positions)
        with torch.inference_mode():
            return self.search(model, Waiting(model, src, src_lengths, max_lengths, prefixes, positions))

    def keeping(self, count: int) -> Self:
        """As in `Search`."""
        check_n_best(count, self.n_best or self.size)
        return replace(self, n_best=count)

    def search(self, model: Seq2Seq, waiting: Waiting) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence."""
        results: list[list[Hypothesis]] = [[] for _ in waiting.order]
        penalties = penalty_table(waiting.longest_limit, self.length_penalty, waiting.device)

        def begin(sentences: Sentences) -> Beams:
            count = len(sentences.place)
            over = torch.zeros(count, dtype=torch.bool, device=waiting.device)
            live = Paths.empty(count, 1, waiting.device)
            finished = Paths.empty(count, self.n_best or self.size, waiting.device, log_prob=-math.inf)
            return Beams(sentences, model.start(sentences.memory), live, over, finished)

        def step(pool: Beams) -> bool:
            token = pool.live.last(model.start_token)
            hidden, state = model.step(token, pool.state, pool.sentences.memory)
            candidates, rows = self.candidates(model, hidden, pool.live, pool.sentences)
            pool.finished = best_ended(pool.finished, candidates, penalties)
            pool.live, rows = best_live(candidates, rows, min(self.size, candidates.width - pool.live.width))
            pool.state = reorder(state, rows.flatten(), len(token))
            done = self.done(pool.live, pool.finished, pool.sentences.limit, penalties)
            return pool.report(results, pool.finished, done, self.length_penalty)

        run(waiting, begin, step)
        return results

    def candidates(self, model: Seq2Seq, hidden: Tensor, live: Paths, sentences: Sentences) -> tuple[Paths, Tensor]:
        """The best C = min(2K, all) continuations of `live`, best first, and the rows (B, C) of `hidden` that they come from."""

        def best(hidden: Tensor, tokens: Tensor, forced: Tensor) -> tuple[Tensor, ...]:
            return top(constrain(model.log_probs(hidden), tokens, forced, self.no_repeat_ngram), 2 * self.size)

        found, columns = in_chunks(best, hidden, live.tokens.flatten(0, 1), sentences.forced(live))
        values, tokens = end_where_full(found, columns, sentences.full(live))
        each = values.shape[1]
        values, tokens = (part.view(-1, live.width * each) for part in (values, tokens))
        total = live.log_prob.repeat_interleave(each, dim=1) + values
        order = total.sort(dim=1, descending=True, stable=True).indices[:, : 2 * self.size]
        parents = order // each
        first = torch.arange(0, len(hidden), live.width, device=order.device).unsqueeze(1)
        return live.pick(parents).extend(tokens.gather(1, order), values.gather(1, order)), first + parents

    def done(self, live: Paths, finished: Paths, limit: Tensor, penalties: Tensor) -> Tensor:
        """(B,) bool: no live hypothesis can still beat the worst finished one, where there are enough of these.

        A hypothesis can only lose log-probability, so it would score best if it ended now without losing more, at the
        length where the penalty helps most: the longest possible with a positive exponent, else the shortest.
        """
        length = limit + 1 if self.length_penalty > 0 else (limit + 1).clamp(max=live.length)  # who is over goes on beyond it
        can_win = live.log_prob[:, 0] / penalties[length] > scores(finished, penalties)[:, -1]
        return ~can_win  # NaN stops too


def penalty_table(limit: int, alpha: float, device: torch.device) -> Tensor:
    """The length penalty of each |y| that hypotheses can have within the largest `limit`."""
    return torch.tensor([length_penalty(n, alpha) for n in range(limit + 2)], dtype=torch.float64, device=device)


def scores(paths: Paths, penalties: Tensor) -> Tensor:
    """(B, w) log_prob / penalty of |y|."""
    length = (paths.tokens != NOTHING).sum(dim=2)
    return paths.log_prob / penalties[length.clamp_(max=len(penalties) - 1)]  # who is over goes on beyond its limit


def best_ended(finished: Paths, candidates: Paths, penalties: Tensor) -> Paths:
    """The best of the finished hypotheses and the candidates that have ended, as many as before; of equals the earlier."""
    nothing = torch.zeros_like(finished.log_prob)
    finished = finished.extend(torch.full_like(nothing, NOTHING, dtype=torch.int64), nothing)
    reported = candidates.ended() | candidates.log_prob.isnan()  # NaN ranks first, and is refused as a hypothesis
    both = Paths(
        tokens=torch.cat([finished.tokens, candidates.tokens], dim=1),
        token_log_probs=torch.cat([finished.token_log_probs, candidates.token_log_probs], dim=1),
        log_prob=torch.cat([finished.log_prob, candidates.log_prob.masked_fill(~reported, -math.inf)], dim=1),
    )
    return both.pick(scores(both, penalties).sort(dim=1, descending=True, stable=True).indices[:, : finished.width])


def best_live(candidates: Paths, rows: Tensor, width: int) -> tuple[Paths, Tensor]:
    """The first `width` candidates that have not ended, and their `rows`."""
    over = candidates.ended() & (candidates.log_prob > -math.inf)  # an impossible candidate may stand where it likes
    order = over.byte().sort(dim=1, stable=True).indices[:, :width]
    return candidates.pick(order), rows.gather(1, order)


def reorder(state: State, rows: Tensor, count: int) -> State:
    """The rows `rows` of `state`, which has `count`; `state` itself where they are all in their places."""
    unmoved = rows.device.type == "cpu" and torch.equal(rows, torch.arange(count))  # only a CPU can be asked without waiting
    return state if unmoved else state.select(rows)
