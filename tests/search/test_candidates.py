"""The parts that searches share."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.search.candidates import ban_repeats, top


@given(
    st.lists(st.lists(st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 0.5]), min_size=1, max_size=40), min_size=1), st.integers(1, 45)
)
@settings(max_examples=300)
def test_top_is_a_stable_sort(rows: list[list[float]], count: int) -> None:
    width = min(map(len, rows))
    rows = [row[:width] for row in rows]
    values, columns = top(torch.tensor(rows), count)
    for row, found, places in zip(rows, values.tolist(), columns.tolist(), strict=True):
        order = sorted(range(width), key=lambda place: -row[place])[:count]
        assert found == [row[place] for place in order]
        there = sum(value > -math.inf for value in found)
        assert places[:there] == order[:there]
        assert len(set(places)) == len(places)


@given(st.integers(0, 2**32), st.integers(300, 1500), st.integers(1, 12), st.sampled_from([3, 40, 10**6]))
@settings(max_examples=100)
def test_top_of_a_wide_row_is_a_stable_sort(seed: int, width: int, count: int, distinct: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(distinct, (5, width), generator=generator).float()
    rows[3] = -math.inf
    rows[4, width // 2] = math.nan
    values, columns = top(rows, count)
    for row, found, places in zip(rows[:3], values, columns, strict=False):
        assert places.tolist() == sorted(range(width), key=lambda place: -row[place])[:count]
        assert torch.equal(found, row[places])
    assert torch.equal(values[3], rows[3, :count])
    assert columns[4, 0] == width // 2 and values[4, 0].isnan()  # it comes first, so that it is not overlooked


def test_top_of_a_wide_row_of_equals() -> None:
    """Where `torch.topk` takes any."""
    values = torch.zeros(3, 10_000)
    values[1, 777:] = 1.0
    values[2, -1] = 1.0
    assert top(values, 4)[1].tolist() == [[0, 1, 2, 3], [777, 778, 779, 780], [9999, 0, 1, 2]]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_repeats_are_banned_within_a_row_only(size: int) -> None:
    tokens = torch.randint(4, 7, (50, 9), generator=torch.Generator().manual_seed(size))
    log_probs = torch.zeros(50, 8)
    ban_repeats(log_probs, tokens, size)
    for row, values in zip(tokens.tolist(), log_probs.tolist(), strict=True):
        for token in range(3, 8):
            longer = [*row, token]
            ngrams = [longer[start : start + size] for start in range(len(longer) - size + 1)]
            assert (values[token] == -math.inf) == (ngrams[-1] in ngrams[:-1])
