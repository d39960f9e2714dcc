"""Is a system better, or by chance? Paired bootstrap (Koehn 2004) and approximate randomisation (Riezler and Maxwell 2005).

Both score many made-up texts. A text's counts are sums over sentences, so all made-up texts of all systems are one matrix product:
how often each sentence is in each text, by what is counted in each sentence. Random numbers and arithmetic are sacreBLEU's, but
for sums, which are exact here: of TER with several references, trials that end in a tie are told apart by rounding there.

M made-up texts · N sentences · S systems · K numbers of a sentence
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.arrays import Array, Arrays
from nmt.measures import Measure, Statistics

SEED = 12345
"""sacreBLEU's."""

CHUNK = 1 << 20
"""Sentences of made-up texts that are drawn at once."""


@dataclass(frozen=True)
class Finding:
    """What made-up texts say about a system."""

    mean: float
    """Of its scores in bootstrap resamples."""
    interval: float
    """Half the width of the middle 95 % of them."""
    p_value: float | None
    """How likely a difference as large as that to the first system is by chance; None for the first."""
    identical: bool
    """Every sentence counts as it does for the first system, so that `p_value` is 1."""


def bootstrap(
    measures: Sequence[Measure], statistics: Sequence[Statistics], resamples: int, seed: int, arrays: Arrays
) -> list[list[Finding]]:
    """What so many bootstrap resamples say of each system, for each of `measures` with its `statistics` (S, N, K)."""
    drawn = _resamples(np.random.default_rng(seed), statistics[0].shape[1], resamples, arrays)
    found = []
    for measure, counts, sums in zip(measures, statistics, _texts(drawn, statistics, arrays), strict=True):
        scores = _scores(measure, sums)
        p_values = []
        for system, difference in zip(scores[1:], _differences(measure, counts), strict=True):
            differences = np.abs(system - scores[0])
            p_values.append(_p_value(differences - differences.mean(), difference))
        found.append(_findings(counts, scores, p_values))
    return found


def randomization(
    measures: Sequence[Measure],
    statistics: Sequence[Statistics],
    trials: int,
    resamples: int,
    seed: int,
    arrays: Arrays,
) -> list[list[Finding]]:
    """As `bootstrap`, but p-values say how often the difference is as large where each sentence may have changed sides."""
    size = statistics[0].shape[1]
    drawn = _resamples(np.random.default_rng(seed), size, resamples, arrays)
    firsts = _texts(drawn, [counts[:1] for counts in statistics], arrays)
    generator = np.random.default_rng(seed)  # the others' resamples are drawn after their trials
    swaps = _swaps(generator, size, trials, arrays)
    gains = _texts(swaps, [counts[:1] - counts[1:] for counts in statistics], arrays)
    drawn = _resamples(generator, size, resamples, arrays)
    others = _texts(drawn, [counts[1:] for counts in statistics], arrays)
    found = []
    for measure, counts, first, gain, other in zip(measures, statistics, firsts, gains, others, strict=True):
        totals = counts.sum(1)
        changed, left = measure.scores(totals[1:] + gain, np), measure.scores(totals[:1] - gain, np)
        differences = np.abs(changed - left).T
        p_values = [_p_value(*each) for each in zip(differences, _differences(measure, counts), strict=True)]
        found.append(_findings(counts, _scores(measure, np.concatenate([first, other], 1)), p_values))
    return found


def _resamples(generator: np.random.Generator, size: int, count: int, arrays: Arrays) -> Iterator[Array]:
    """How often each of `size` sentences is in each of `count` resamples, some (M, N) at a time."""
    for rows in _rows(count, max(1, CHUNK // size)):
        drawn = generator.integers(size, size=(rows, size))
        drawn += np.arange(0, rows * size, size)[:, None]
        yield arrays.library.bincount(arrays.put(drawn.ravel()), minlength=rows * size).reshape(rows, size)


def _swaps(generator: np.random.Generator, size: int, count: int, arrays: Arrays) -> Iterator[Array]:
    """Which of `size` sentences change sides in each of `count` trials, some (M, N) at a time."""
    # 32 truths are cut from one random number: a call must not begin within it.
    for rows in _rows(count, max(1, CHUNK // size // 32) * 32):
        yield arrays.put(generator.integers(2, size=(rows, size), dtype=bool))


def _rows(count: int, most: int) -> Iterator[int]:
    for begin in range(0, count, most):
        yield min(most, count - begin)


def _texts(weights: Iterator[Array], statistics: Sequence[Statistics], arrays: Arrays) -> list[NDArray[np.float64]]:
    """Sums over sentences of `statistics`, (S, N, K) each, by weights (M, N): (M, S, K) each. Integers stay exact up to 2^53."""
    library = arrays.library
    columns = np.concatenate([np.concatenate([*counts], 1) for counts in statistics], 1)
    counted = arrays.put(columns.astype(np.float64))
    found = [arrays.get(library.asarray(some, dtype=library.float64) @ counted) for some in weights]
    ends = np.cumsum([counts.shape[0] * counts.shape[2] for counts in statistics])
    parts = np.split(np.concatenate(found), ends[:-1], 1)
    return [part.reshape(-1, counts.shape[0], counts.shape[2]) for part, counts in zip(parts, statistics, strict=True)]


def _scores(measure: Measure, sums: NDArray[np.float64]) -> NDArray[Any]:
    """The scores of resamples (S, M), in float32 arithmetic as sacreBLEU's."""
    scores: NDArray[Any] = np.ascontiguousarray(measure.scores(sums.astype(np.float32), np).T)
    return scores


def _differences(measure: Measure, counts: Statistics) -> list[float]:
    """Of the real scores to that of the first system, for each other."""
    scores = measure.scores(counts.sum(1).astype(np.float64), np)
    differences: list[float] = np.abs(scores[1:] - scores[0]).tolist()
    return differences


def _p_value(differences: NDArray[Any], real: float) -> float:
    """Of those by chance the share that is above the real one, itself counted among them."""
    return (int((differences > real).sum()) + 1) / (len(differences) + 1)


def _findings(counts: Statistics, scores: NDArray[Any], p_values: Sequence[float]) -> list[Finding]:
    found = []
    for number, (system, resampled) in enumerate(zip(counts, np.sort(scores, 1), strict=True)):
        # As sacreBLEU: the scores of one text are averaged exactly, those of several in their own precision.
        mean = resampled.mean() if len(counts) > 1 else resampled.dtype.type(resampled.mean(dtype=np.float64))
        cut = len(resampled) // 40
        interval = 0.5 * (resampled[-1 - cut] - resampled[cut])
        identical = number > 0 and np.array_equal(system, counts[0])
        # No chance difference is above one of 0: counted like others it would be the surest of all.
        p_value = 1.0 if identical else p_values[number - 1] if number else None
        found.append(Finding(float(mean), float(interval), p_value, identical))
    return found
