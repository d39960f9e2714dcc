"""What may follow a hypothesis: constraints on the candidates, and the best of a vocabulary.

Legend: R hypotheses, N any number of rows, C candidates of each, t tokens so far, V target vocabulary.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from nmt.search.base import NOTHING
from nmt.vocab import BOS, EOS, PAD, UNK


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
"""A multiple of `product.ROWS`, or rows would be filled up."""


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


def first_of_largest(values: Tensor) -> Tensor:
    """`values.argmax(1)`, the first of equals; on a CPU in a fraction of the time for a large V, as in `_largest`."""
    groups = values.shape[1] // GROUP
    if values.device.type != "cpu" or groups < 2:
        return values.argmax(1)
    grouped, rest = values[:, : groups * GROUP].view(len(values), groups, GROUP), values[:, groups * GROUP :]
    peak, group = grouped.amax(2).max(1, keepdim=True)
    inside = grouped.take_along_dim(group.unsqueeze(2), 1).squeeze(1).argmax(1, keepdim=True)
    column: Tensor = group * GROUP + inside
    if rest.shape[1]:
        last, place = rest.max(1, keepdim=True)
        column = torch.where(last > peak, groups * GROUP + place, column)
    return column.squeeze(1)


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
