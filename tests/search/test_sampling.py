"""Sampling against the exact distributions."""

import math
from collections import Counter

import pytest
import torch

from nmt.errors import UsageError
from nmt.search import Greedy, Sampling
from nmt.search.sampling import as_signed, uniform
from nmt.vocab import BOS, EOS
from tests.fakes import Scripted, pad, random_logits

LOGITS = random_logits(10, seed=4)
SOURCE = [5, 7]


def allowed_probs(prefix: tuple[int, ...], temperature: float = 1.0) -> dict[int, float]:
    """p(token) of what may be drawn, in float64."""
    logits = LOGITS((*SOURCE, EOS), prefix)
    weights = {token: math.exp(logits[token] / temperature) for token in range(EOS, 10)}
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


def filtered(probs: dict[int, float], top_k: int, top_p: float, min_p: float) -> dict[int, float]:
    """The filters by their definitions, one after the other."""

    def renormalised(kept: list[tuple[int, float]]) -> list[tuple[int, float]]:
        return [(token, p / sum(p for _, p in kept)) for token, p in kept]

    kept = sorted(probs.items(), key=lambda item: -item[1])
    kept = renormalised(kept[: top_k or None])
    fewest = next((n for n in range(1, len(kept)) if sum(p for _, p in kept[:n]) >= top_p), len(kept))
    kept = renormalised(kept[:fewest])
    return dict(renormalised([(token, p) for token, p in kept if p >= min_p * kept[0][1]]))


def chi_square(counts: Counter[tuple[int, ...]], probs: dict[tuple[int, ...], float]) -> None:
    """Nothing improbable was counted and Pearson's statistic lies within four standard deviations of its mean."""
    total = sum(counts.values())
    assert set(counts) <= set(probs)
    statistic = sum((counts[outcome] - total * p) ** 2 / (total * p) for outcome, p in probs.items())
    freedom = len(probs) - 1
    assert abs(statistic - freedom) <= 4 * math.sqrt(2 * freedom) + 1e-9


def test_two_tokens_follow_the_model() -> None:
    """All sequences of up to two tokens, from the streams of one sentence: draws are right and independent of each other."""
    [found] = Sampling(samples=5_000)(Scripted(10, LOGITS, BOS), *pad([SOURCE]), [2])
    expected: dict[tuple[int, ...], float] = {}
    for first, p in allowed_probs(()).items():
        for second, q in allowed_probs((first,)).items() if first != EOS else []:
            tokens = (first,) if second == EOS else (first, second)
            expected[tokens] = p * q
        if first == EOS:
            expected[()] = p
    chi_square(Counter(hypothesis.tokens for hypothesis in found), expected)


def test_sentences_have_streams_of_their_own() -> None:
    """One sample of each of many sources, whose probabilities are the same."""
    sources = [[a, b, c] for a in range(4, 16) for b in range(4, 16) for c in range(4, 16)]
    model = Scripted(10, lambda src, prefix: LOGITS((*SOURCE, EOS), prefix), BOS)
    found = Sampling(seed=7)(model, *pad(sources), [1] * len(sources))
    expected = {() if token == EOS else (token,): p for token, p in allowed_probs(()).items()}
    chi_square(Counter(hypothesis.tokens for [hypothesis] in found), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 3},
        {"top_p": 0.7},
        {"min_p": 0.3},
        {"top_k": 5, "top_p": 0.8},
        {"top_p": 0.9, "min_p": 0.2},
        {"temperature": 1.7, "top_k": 6, "top_p": 0.85, "min_p": 0.3},
        {"top_k": 10**9, "top_p": 1.0, "min_p": 0.0},
    ],
    ids=str,
)
def test_filters_leave_the_distribution_they_should(options: dict[str, float]) -> None:
    [found] = Sampling(seed=3, samples=5_000, **options)(Scripted(10, LOGITS, BOS), *pad([SOURCE]), [1])
    probs = allowed_probs((), options.get("temperature", 1.0))
    kept = filtered(probs, int(options.get("top_k", 0)), options.get("top_p", 1.0), options.get("min_p", 0.0))
    chi_square(
        Counter(hypothesis.tokens for hypothesis in found), {() if token == EOS else (token,): p for token, p in kept.items()}
    )


@pytest.mark.parametrize(
    "options",
    [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}, {"temperature": 1e-300}, {"temperature": 5e-324}],
    ids=str,
)
def test_limits_are_greedy(options: dict[str, float]) -> None:
    sources = [[5, 6], [7], [4, 4, 4], [9, 8]]
    arguments = (*pad(sources), [9, 3, 7, 1], [[], [4, 4], [], []])
    greedy = Greedy()(Scripted(10, LOGITS, BOS), *arguments)
    assert Sampling(**options)(Scripted(10, LOGITS, BOS), *arguments) == greedy


def test_a_high_temperature_is_uniform() -> None:
    [found] = Sampling(temperature=1e300, samples=5_000)(Scripted(10, LOGITS, BOS), *pad([SOURCE]), [1])
    expected = {() if token == EOS else (token,): 1 / 7 for token in range(EOS, 10)}
    chi_square(Counter(hypothesis.tokens for hypothesis in found), expected)


def draws(seed: int, samples: int) -> list[tuple[int, ...]]:
    [found] = Sampling(seed=seed, samples=samples)(Scripted(10, LOGITS, BOS), *pad([SOURCE]), [8])
    return [hypothesis.tokens for hypothesis in found]


def test_the_seed_decides() -> None:
    assert draws(1, 4) == draws(1, 4)
    assert draws(1, 4) != draws(2, 4)
    assert set(draws(1, 1)) <= set(draws(1, 4))


def test_random_numbers_are_splitmix64() -> None:
    """The first outputs for seed 1234567, as published with the generator."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    start = torch.tensor([1234567, as_signed(2**64 - 1)])
    for step, number in enumerate(published):
        assert uniform(start, step)[0].item() == (number >> 11) / 2**53
    assert all(0 <= value < 1 for step in range(1000) for value in uniform(start, step).tolist())


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": -1},
        {"top_p": -0.1},
        {"top_p": 1.1},
        {"top_p": math.nan},
        {"min_p": -0.1},
        {"min_p": 1.5},
        {"min_p": math.nan},
        {"samples": 0},
    ],
    ids=str,
)
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(options)).replace("_", "-")):
        Sampling(**options)
