"""Rates against the papers' formulas at the steps that matter."""

import itertools
import math

import pytest

from nmt.schedule import Schedule, learning_rate, paper_rate, teacher_forcing


@pytest.mark.parametrize(("width", "warmup"), [(512, 4000), (128, 2000), (64, 1)])
def test_the_default_is_the_transformer_papers_rate(width: int, warmup: int) -> None:
    peak = paper_rate(width, warmup)
    for t in (1, 2, warmup // 2 + 1, warmup, warmup + 1, 4 * warmup, 100 * warmup):
        expected = width**-0.5 * min(t**-0.5, t * warmup**-1.5)
        assert learning_rate(t - 1, "inverse-sqrt", peak, warmup, None) == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.parametrize("schedule", ["inverse-sqrt", "linear", "cosine", "constant"])
def test_every_schedule_rises_in_a_straight_line_to_its_peak(schedule: Schedule) -> None:
    rates = [learning_rate(step, schedule, 0.5, 10, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.05 * t for t in range(1, 11)])
    assert max(rates) == rates[9] == 0.5
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates[9:]))


def test_how_each_falls() -> None:
    def at(schedule: Schedule, t: int) -> float:
        return learning_rate(t - 1, schedule, 0.5, 10, 109)

    assert at("constant", 110) == 0.5
    assert at("inverse-sqrt", 40) == pytest.approx(0.25)
    assert [at("linear", t) for t in (10, 35, 60, 110)] == pytest.approx([0.5, 0.375, 0.25, 0.0])
    assert [at("cosine", t) for t in (10, 35, 60, 110)] == pytest.approx([0.5, 0.25 * (1 + math.sqrt(0.5)), 0.25, 0.0])
    assert at("linear", 109) > at("linear", 110) == at("linear", 200) == at("cosine", 200) == 0.0 < at("cosine", 109)


@pytest.mark.parametrize("schedule", ["inverse-sqrt", "linear", "cosine", "constant"])
def test_without_warm_up_the_first_update_has_almost_the_peak(schedule: Schedule) -> None:
    assert learning_rate(0, schedule, 0.5, 0, 1000) == pytest.approx(0.5, rel=2e-3)


def test_teacher_forcing_is_constant_or_falls_in_a_straight_line() -> None:
    assert [teacher_forcing(step, 0.8, None, None) for step in (0, 50, 1000)] == [0.8] * 3
    assert [teacher_forcing(step, 1.0, 0.5, 101) for step in (0, 50, 100, 5000)] == pytest.approx([1.0, 0.75, 0.5, 0.5])
