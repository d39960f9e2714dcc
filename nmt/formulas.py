"""BLEU, chrF and TER from sums of counts, for many sums at once, on arrays of NumPy or PyTorch.

Each step is sacreBLEU's, in its order and in the precision of the sums: float64, or float32, which sacreBLEU resamples in.

... any dimensions: resamples, systems
"""

from typing import Any, NamedTuple

from nmt.arrays import Array

ORDERS = 4
"""N-grams of BLEU."""

SMOOTHING = {"none": 0.0, "floor": 0.1, "add-k": 1.0, "exp": 0.0}
"""Of n-gram orders without a match (Chen and Cherry 2014), with the value that it takes where it takes one."""

NO_MATCH = -9999999999.0
"""sacreBLEU's logarithm of zero."""


class Bleu(NamedTuple):
    """BLEU and its parts, in float64."""

    score: Array
    """(...), 0 to 100."""
    precisions: Array
    """(..., ORDERS), 0 to 100."""
    brevity: Array
    """(...), the penalty: 1 where nothing is too short."""


def bleu(sums: Array, library: Any, smoothing: str = "exp", value: float | None = None, effective_order: bool = False) -> Bleu:
    """BLEU (Papineni et al. 2002) of sums (..., 2 + 2 ORDERS): length, reference's length, matches and n-grams of each order."""
    value = SMOOTHING[smoothing] if value is None else value
    length, target = (library.asarray(sums[..., i], dtype=library.float64) for i in (0, 1))
    brevity = library.exp(1 - target / library.where(length > 0, length, 1.0))
    brevity = library.where(length < target, library.where(length > 0, brevity, 0.0), 1.0)

    one = library.ones_like(sums[..., 0])
    halved = one  # 2 for each order without a match so far
    reached = one > 0  # there are n-grams of all orders so far
    orders = library.zeros_like(length)
    logs = library.zeros_like(length)
    precisions = []
    for order in range(ORDERS):
        matched, total = sums[..., 2 + order], sums[..., 2 + ORDERS + order]
        none = matched == 0
        if smoothing == "add-k" and order > 0:
            matched, total, none = matched + value, total + value, matched + value == 0
        reached = reached & (total > 0)
        total = library.where(reached, total, one)
        precision = 100 * matched / total
        if smoothing == "exp":
            halved = library.where(none & reached, 2 * halved, halved)
            precision = library.where(none, 100 / (halved * total), precision)
        elif smoothing == "floor":
            precision = library.where(none, 100 * value / total, precision)
        precision = library.asarray(library.where(reached, precision, 0 * one), dtype=library.float64)
        log = library.where(precision > 0, library.log(library.where(precision > 0, precision, 1.0)), NO_MATCH)
        counted = reached | (not effective_order)
        orders = orders + counted
        logs = logs + library.where(counted, log, 0.0)
        precisions.append(precision)
    any_match = (sums[..., 2 : 2 + ORDERS] > 0).any(-1)
    score = library.where(any_match, brevity * library.exp(logs / library.where(orders > 0, orders, 1.0)), 0.0)
    return Bleu(score, library.where(any_match[..., None], library.stack(precisions, -1), 0.0), brevity)


def chrf(sums: Array, library: Any) -> Array:
    """chrF2 (Popović 2015) or chrF2++ (2017) of sums (..., 3 O): n-grams of hypothesis and reference and matches, of O orders.

    Returns (...), 0 to 100.
    """
    zero = 0 * sums[..., 0]
    precisions, recalls, orders = zero, zero, zero
    for i in range(0, sums.shape[-1], 3):
        ours, theirs, matched = sums[..., i], sums[..., i + 1], sums[..., i + 2]
        known = (ours > 0) & (theirs > 0)
        precisions = precisions + library.where(known, matched / library.where(known, ours, zero + 1), zero)
        recalls = recalls + library.where(known, matched / library.where(known, theirs, zero + 1), zero)
        orders = orders + known
    orders = library.where(orders > 0, orders, zero + 1)
    precisions, recalls = precisions / orders, recalls / orders
    weighted = 4 * precisions + recalls
    return library.where(weighted > 0, 100 * (5 * precisions * recalls / library.where(weighted > 0, weighted, zero + 1)), zero)


def ter(sums: Array, library: Any) -> Array:
    """TER (Snover et al. 2006) of sums (..., 2): edits, words of the reference. Returns (...), 0 or more."""
    edits, words = sums[..., 0], sums[..., 1]
    one = 0 * edits + 1
    return 100 * library.where(words > 0, edits / library.where(words > 0, words, one), library.where(edits > 0, one, 0 * one))
