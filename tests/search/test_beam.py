"""Beam search against brute force, against a beam search in plain Python, and at its edges."""

import pytest

from nmt.errors import UsageError
from nmt.search import Beam, Greedy
from nmt.search.base import length_penalty
from nmt.vocab import BOS, EOS
from tests.fakes import Scripted, pad, random_logits
from tests.search.reference import Reference, all_hypotheses, textbook_beam

SYMBOLS = range(4, 10)
SOURCES = [[5, 6], [7], [4, 4, 4], [9, 8], [6, 6, 6, 6]]
ALPHAS = [0.0, 0.6, 1.0, 2.0, -0.5]


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("limit", [1, 2, 4])
def test_beam_as_wide_as_the_space_finds_everything_in_order(limit: int, alpha: float) -> None:
    logits = random_logits(10, seed=limit)
    right = all_hypotheses(Reference(logits, [5, 6]), SYMBOLS, limit, alpha)
    [found] = Beam(len(right), alpha)(Scripted(10, logits, BOS), *pad([[5, 6]]), [limit])
    assert [hypothesis.tokens for hypothesis in found] == [hypothesis.tokens for hypothesis in right]
    assert [hypothesis.finished for hypothesis in found] == [hypothesis.finished for hypothesis in right]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([hypothesis.score for hypothesis in right], abs=1e-9)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_narrow_beam_equals_the_textbook(size: int, alpha: float) -> None:
    """The whole n-best list, of sentences of one batch with limits of their own; the reference never stops early."""
    limits = [12, 3, 7, 1, 9]
    for seed, ends in enumerate([-1.0, 0.0, 1.0, 2.5]):
        logits = random_logits(10, seed=seed, ends=ends)
        found = Beam(size, alpha)(Scripted(10, logits, BOS), *pad(SOURCES), limits)
        for src, limit, hypotheses in zip(SOURCES, limits, found, strict=True):
            assert hypotheses == textbook_beam(Reference(logits, src), limit, size, alpha)
            assert len(hypotheses) == min(size, 7 if limit == 1 else size)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_ties_are_broken_as_promised(alpha: float) -> None:
    """Logits of few values: most candidates have equals."""
    logits = random_logits(40, seed=3)

    def coarse(src: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        return [float(round(value)) for value in logits(src, prefix)]

    found = Beam(4, alpha)(Scripted(40, coarse, BOS), *pad(SOURCES), [6] * len(SOURCES))
    for src, hypotheses in zip(SOURCES, found, strict=True):
        assert hypotheses == textbook_beam(Reference(coarse, src), 6, 4, alpha)


def test_constraints_are_the_textbooks() -> None:
    """Forced prefixes, unlike in length, and blocked n-grams."""
    prefixes = [[], [4, 5, 4, 5], [6], [9, 9, 9], []]
    for ngram in (0, 1, 2, 3):
        logits = random_logits(10, seed=ngram, ends=-1.0)
        found = Beam(3, 0.6, ngram)(Scripted(10, logits, BOS), *pad(SOURCES), [8] * 5, prefixes)
        for src, prefix, hypotheses in zip(SOURCES, prefixes, found, strict=True):
            assert hypotheses == textbook_beam(Reference(logits, src, prefix, ngram), 8, 3, 0.6)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_beam_of_one_is_greedy(alpha: float) -> None:
    logits = random_logits(10, seed=8)
    for ngram in (0, 2):
        arguments = (*pad(SOURCES), [12, 3, 7, 1, 9], [[], [6], [], [], [4, 5]])
        assert Beam(1, alpha, ngram)(Scripted(10, logits, BOS), *arguments) == Greedy(alpha, ngram)(
            Scripted(10, logits, BOS), *arguments
        )


def test_first_step_expands_one_row_a_sentence() -> None:
    model = Scripted(10, random_logits(10), EOS)
    Beam(4)(model, *pad(SOURCES), [5] * len(SOURCES))
    assert model.rows[0] == len(SOURCES)


def steps(size: int, alpha: float, end: float, other: float, limit: int) -> int:
    """Network steps of a search where `</s>` has logit `end`, one other token `other`, at every step."""

    def logits(src: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        return [-30.0, -30.0, -30.0, end, other, -3.0, -3.0]

    model = Scripted(7, logits, BOS)
    Beam(size, alpha)(model, *pad([[4]]), [limit])
    return len(model.rows)


def test_stops_when_no_live_hypothesis_can_win() -> None:
    """Each step ends a hypothesis: without a penalty none that comes later is better."""
    assert steps(2, 0.0, end=3.0, other=0.0, limit=50) < 6
    assert steps(2, -0.5, end=3.0, other=0.0, limit=50) < 6


def test_searches_on_while_a_longer_hypothesis_can_win() -> None:
    """With a strong penalty the last possible length may still win, and does: to stop at the first finished would miss it."""

    def logits(src: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        if len(prefix) < 12:
            return [-30.0, -30.0, -30.0, 0.5, 0.0, -3.0, -3.0]
        return [-30.0, -30.0, -30.0, 9.0, 0.0, -3.0, -3.0]

    [found] = Beam(2, 3.0)(Scripted(7, logits, BOS), *pad([[4]]), [20])
    assert len(found[0].tokens) == 12
    assert found == textbook_beam(Reference(logits, [4]), 20, 2, 3.0)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_fewer_wanted_are_the_first_of_more_and_cost_less(alpha: float) -> None:
    logits, limits = random_logits(10, seed=2, ends=2.0), [12, 3, 7, 2, 9]
    everything = Beam(5, alpha)(Scripted(10, logits, BOS), *pad(SOURCES), limits)
    rows = []
    for wanted in (5, 3, 1):
        model = Scripted(10, logits, BOS)
        assert Beam(5, alpha, n_best=wanted)(model, *pad(SOURCES), limits) == [found[:wanted] for found in everything]
        rows.append(sum(model.rows))
    assert rows[0] > rows[2]
    assert rows == sorted(rows, reverse=True)


def test_fewer_hypotheses_only_where_fewer_exist() -> None:
    """One symbol and a limit of one: `</s>` alone, the symbol alone."""
    [found] = Beam(5)(Scripted(5, random_logits(5), BOS), *pad([[4]]), [1])
    assert sorted(hypothesis.tokens for hypothesis in found) == [(), (4,)]


def test_length_penalty_is_the_published_one() -> None:
    assert length_penalty(1, 5.0) == 1.0
    assert length_penalty(7, 0.6) == pytest.approx(2**0.6)
    assert length_penalty(100, 0.0) == 1.0


@pytest.mark.parametrize("size", [0, -1])
def test_impossible_sizes_are_refused(size: int) -> None:
    with pytest.raises(UsageError, match="beam size"):
        Beam(size)


@pytest.mark.parametrize("n_best", [0, 4, -1])
def test_more_than_the_beam_holds_is_refused(n_best: int) -> None:
    with pytest.raises(UsageError, match="n-best"):
        Beam(3, n_best=n_best)
