"""What every search shares: the hypothesis it returns, the score that ranks, the constraints on candidates.

A search is a frozen dataclass of its options. It is called as

    search(model, src, src_lengths, max_lengths, prefixes) -> list[list[Hypothesis]]

and sees a network only through the protocol of `models.base`.

Legend: B sentences, K hypotheses a sentence, R = B·K rows, N any number of rows, t tokens so far, V target vocabulary.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor

from nmt.errors import NotNumbersError, UsageError
from nmt.models.base import Batched, Memory, Seq2Seq
from nmt.vocab import BOS, EOS, PAD, UNK

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
    ) -> list[list[Hypothesis]]:
        """Best first, for each sentence.

        src (B, S) and src_lengths (B,) as in `Seq2Seq.encode`; `max_lengths[i]` ≥ 1 counts target tokens without `</s>`;
        `prefixes[i]` are ids that every hypothesis of sentence i must begin with (empty: free; `()` for all: all free).
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

    @classmethod
    def encode(
        cls, model: Seq2Seq, src: Tensor, src_lengths: Tensor, max_lengths: Sequence[int], prefixes: Sequence[Sequence[int]]
    ) -> Self:
        """All sentences of a call, arguments as in `Search`."""
        prefixes = prefixes or [()] * len(src)
        if not len(src) == len(src_lengths) == len(max_lengths) == len(prefixes):
            raise ValueError(
                f"{len(src)} sentences, {len(src_lengths)} lengths, {len(max_lengths)} limits, {len(prefixes)} prefixes"
            )
        if any(limit < 1 for limit in max_lengths):
            raise ValueError("a length limit must be at least 1")
        if any(token in (PAD, BOS, EOS) for prefix in prefixes for token in prefix):
            raise ValueError("a prefix may not hold control symbols")
        longest = max(map(len, prefixes), default=0)
        padded = [[*prefix, *[NOTHING] * (longest - len(prefix))] for prefix in prefixes]
        limits = [max(limit, len(prefix) + 1 if prefix else 0) for limit, prefix in zip(max_lengths, prefixes, strict=True)]
        return cls(
            place=torch.arange(len(src), device=src.device),
            memory=model.encode(src, src_lengths),
            limit=torch.tensor(limits, dtype=torch.int64, device=src.device),
            prefix=torch.tensor(padded, dtype=torch.int64, device=src.device).view(len(src), longest),
        )

    def forced(self, paths: "Paths") -> Tensor:
        """The token (R, 1) of the prefix that must follow each of `paths`, NOTHING where any may; (R, 0) after all prefixes."""
        return self.prefix[:, paths.length : paths.length + 1].repeat_interleave(paths.width, dim=0)

    def full(self, paths: "Paths") -> Tensor:
        """(R,) bool: the hypothesis has as many tokens as it may."""
        return (self.limit == paths.length).repeat_interleave(paths.width)


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


def report(results: list[list[Hypothesis]], place: Tensor, paths: Paths, done: Tensor, alpha: float) -> None:
    """Put the hypotheses of the sentences that are `done` (B,) where `place` (B,) says.

    All leave the device together: each transfer from a GPU waits for it.
    """
    over = done.nonzero().flatten()
    ended = paths.select(over)
    ended = Paths(ended.tokens.cpu(), ended.token_log_probs.cpu(), ended.log_prob.cpu())
    for row, sentence in enumerate(place[over].tolist()):
        results[sentence] = ended.hypotheses(row, alpha)


def in_chunks(function: Callable[..., tuple[Tensor, ...]], *rows: Tensor) -> tuple[Tensor, ...]:
    """`function(*rows)`, computed on a CPU for `CHUNK` rows after the other.

    It makes a vocabulary of numbers a row out of few, and few out of these: what leaves the cache in between is read again and
    again (at 1,280 rows and 8,000 subwords the logits, their normalisation and the best ten take half the time in chunks).
    """
    if rows[0].device.type != "cpu" or len(rows[0]) <= CHUNK:
        return function(*rows)
    parts = [function(*chunk) for chunk in zip(*(torch.split(each, CHUNK) for each in rows), strict=True)]
    return tuple(torch.cat(part) for part in zip(*parts, strict=True))


CHUNK = 128
"""A multiple of `models.base.ROWS`, or rows would be filled up."""


def constrain(log_probs: Tensor, tokens: Tensor, forced: Tensor, no_repeat_ngram: int) -> Tensor:
    """`log_probs` (R, V), in which, in place, is set to -inf what may not follow the hypotheses `tokens` (R, t).

    `forced` (R, 1) is the token that must follow, NOTHING where any may; (R, 0) once all prefixes are behind.
    """
    forced_log_probs = log_probs.gather(1, forced)
    for symbol in (PAD, UNK, BOS):
        log_probs[:, symbol] = -math.inf
    if no_repeat_ngram:
        ban_repeats(log_probs, tokens, no_repeat_ngram)
    if forced.shape[1]:
        is_forced = forced != NOTHING
        log_probs.masked_fill_(is_forced, -math.inf)
        log_probs.scatter_(1, forced, torch.where(is_forced, forced_log_probs, -math.inf))
    return log_probs


def ban_repeats(log_probs: Tensor, tokens: Tensor, size: int) -> None:
    """Set to -inf each token of `log_probs` (R, V) that would end an n-gram of `size` for the second time in `tokens` (R, t).

    `</s>` never stands in the tokens of a hypothesis under way, so it always remains possible.
    """
    if tokens.shape[1] < size:
        return
    ngrams = tokens.unfold(1, size, 1)  # (R, t - size + 1, size)
    last = tokens[:, tokens.shape[1] - size + 1 :].unsqueeze(1)  # (R, 1, size - 1)
    seen = (ngrams[:, :, :-1] == last).all(dim=2)
    # Where nothing is seen the write goes to PAD, which is banned already: no data-dependent shape, so no wait for the device.
    log_probs.scatter_(1, torch.where(seen, ngrams[:, :, -1], PAD), -math.inf)


GROUP = 64
"""Columns that `top` compares in one go: enough that few groups are left to sort, few enough that a group is cheap to open."""


def top(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row of `values` (N, V), largest first, and their columns; of equal values the lower column first.

    `torch.topk` leaves open which of equal values it takes, and in what order; a search that must not depend on the batch
    cannot. On a GPU the choice among equals of the last remains topk's: to ask whether there are any would wait for the device
    at each step, and the promise is for CPUs. Columns of -inf may come in any choice and order: they are no candidates.
    """
    count = min(count, values.shape[1])
    found, columns = _largest(values, min(count + 1, values.shape[1]))  # one more shows whether the choice was free
    columns, order = columns.sort(dim=1)
    found, order = found.gather(1, order).sort(dim=1, descending=True, stable=True)
    columns = columns.gather(1, order)
    if found.shape[1] > count and values.device.type == "cpu":
        tied = (found[:, count - 1] == found[:, count]) & (found[:, count] > -math.inf)
        if tied.any():  # rare in float32; then sort these rows whole
            rows = tied.nonzero().squeeze(1)
            found[rows], columns[rows] = (part[:, : count + 1] for part in values[rows].sort(dim=1, descending=True, stable=True))
    return found[:, :count], columns[:, :count]


def _largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`values.topk(count)`, but for the choice among equals of the last; on a CPU in a fraction of the time for a large V.

    topk carries each of V numbers about with its column. Of groups of columns only those with the `count` largest maxima can
    hold one of the `count` largest numbers, and maxima cost one pass.
    """
    groups = values.shape[1] // GROUP
    if values.device.type != "cpu" or groups < 2 * count:
        return values.topk(count, dim=1)
    grouped = groups * GROUP
    peaks = values[:, :grouped].view(len(values), groups, GROUP).amax(2)
    chosen = peaks.topk(count, dim=1, sorted=False).indices
    columns = (chosen * GROUP).unsqueeze(2) + torch.arange(GROUP)  # (N, count, GROUP)
    rest = torch.arange(grouped, values.shape[1]).expand(len(values), -1)
    columns = torch.cat([columns.flatten(1), rest], 1)
    found, place = values.gather(1, columns).topk(count, dim=1)
    return found, columns.gather(1, place)


def end_where_full(values: Tensor, tokens: Tensor, full: Tensor) -> tuple[Tensor, Tensor]:
    """Candidates (R, C) best first, `values` and `tokens`, changed where a hypothesis is `full` (R,): it ends here.

    With `</s>` if that is the best candidate, else cut: NOTHING follows, at no cost.
    """
    cut = full & (tokens[:, 0] != EOS)
    values = values.clone()
    tokens = tokens.clone()
    values[:, 0].masked_fill_(cut, 0.0)
    tokens[:, 0].masked_fill_(cut, NOTHING)
    values[:, 1:].masked_fill_(full.unsqueeze(1), -math.inf)
    return values, tokens


def rows_of(sentences: Tensor, width: int) -> Tensor:
    """The rows of `sentences` (B,), where each has `width` rows."""
    return (sentences.unsqueeze(1) * width + torch.arange(width, device=sentences.device)).flatten()
