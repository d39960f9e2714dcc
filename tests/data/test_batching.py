"""Batches within a budget: what is promised of every list of lengths, and the padding on real ones."""

import gzip
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.batching import Ints, batches, collate, split
from nmt.data.shards import ParallelData, Sequences
from nmt.errors import NmtError
from nmt.vocab import BOS, EOS, PAD

pairs = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200).map(
    lambda rows: np.array(rows, dtype=np.int64)
)


def padded(lengths: Ints, batch: Ints) -> tuple[int, int]:
    return tuple(len(batch) * int(side) for side in lengths[batch].max(axis=0))


@given(lengths=pairs, budget=st.integers(40, 400), seed=st.integers(0, 5), epoch=st.integers(0, 5))
def test_each_pair_once_within_the_budget(lengths: Ints, budget: int, seed: int, epoch: int) -> None:
    updates = batches(lengths, budget, seed=seed, epoch=epoch)
    assert sorted(np.concatenate(updates)) == list(range(len(lengths)))
    assert all(max(padded(lengths, update)) <= budget for update in updates)


@given(lengths=pairs, budget=st.integers(40, 400), parts=st.integers(1, 6), epoch=st.integers(0, 3))
def test_split_loses_nothing_and_no_piece_is_larger_than_it_must(lengths: Ints, budget: int, parts: int, epoch: int) -> None:
    for update in batches(lengths, budget, seed=1, epoch=epoch):
        pieces = split(update, lengths, parts)
        assert len(pieces) == parts
        assert sorted(np.concatenate(pieces)) == sorted(update)
        largest = max(max(padded(lengths, piece)) for piece in pieces if len(piece))
        # Brute force over the order in which pieces are cut: another number of cuts could not do with less.
        order = np.concatenate(pieces)
        assert pieces_needed(lengths[order].max(axis=1), largest - 1) > parts


def pieces_needed(longest: Ints, budget: int) -> float:
    """The fewest contiguous pieces of padded size `budget` at most, by dynamic programming."""
    fewest: list[float] = [0.0]
    for end in range(1, len(longest) + 1):
        options = [fewest[start] + 1 for start in range(end) if (end - start) * int(longest[start:end].max()) <= budget]
        fewest.append(min(options, default=float("inf")))
    return fewest[-1]


def test_the_same_seed_and_epoch_give_the_same_list_and_others_another() -> None:
    lengths = np.random.default_rng(0).integers(1, 30, (2000, 2))

    def listed(seed: int, epoch: int) -> list[tuple[int, ...]]:
        return [tuple(update) for update in batches(lengths, 300, seed=seed, epoch=epoch)]

    assert listed(1, 1) == listed(1, 1)
    assert {frozenset(update) for update in listed(1, 1)} != {frozenset(update) for update in listed(1, 2)}
    assert {frozenset(update) for update in listed(1, 1)} != {frozenset(update) for update in listed(2, 1)}


def test_updates_are_shuffled_and_the_first_of_all_has_the_longest_pairs() -> None:
    lengths = np.random.default_rng(0).integers(1, 30, (2000, 2))
    longest = [[int(lengths[update].max()) for update in batches(lengths, 300, seed=1, epoch=epoch)] for epoch in (0, 1)]
    assert longest[0][0] == lengths.max()
    for order in longest:
        rising = sum(a <= b for a, b in itertools.pairwise(order)) / (len(order) - 1)
        assert 0.3 < rising < 0.7


def test_a_pair_longer_than_the_budget_is_named() -> None:
    lengths = np.array([[3, 4], [2, 11], [12, 3]])
    with pytest.raises(NmtError, match=r"pair 2 .* 11 positions.*--batch-tokens 10.*2 such pairs"):
        batches(lengths, 10, seed=1, epoch=0)
    assert len(batches(lengths, 12, seed=1, epoch=0)) == 3


@pytest.mark.parametrize(("budget", "parts"), [(2048, 1), (4096, 1), (8192, 1), (8192, 4)])
def test_real_lengths_leave_little_padding(budget: int, parts: int) -> None:
    folder = Path(__file__).parents[3] / "shared" / "data" / "multi30k"
    if not folder.is_dir():
        pytest.skip("needs ../shared/data/multi30k")
    sides = []
    for language in ("en", "de"):
        with gzip.open(folder / f"train.{language}.gz", "rt", encoding="utf-8", newline="\n") as lines:
            # About as many subwords as a vocabulary of 8,000 gives: one a word, one more for a long word, and </s>.
            sides.append([sum(1 + (len(word) > 9) for word in line.split()) + 1 for line in lines])
    lengths = np.array(sides).T
    pieces = [piece for update in batches(lengths, budget, seed=1, epoch=1) for piece in split(update, lengths, parts)]
    assert lengths.sum() / sum(sum(padded(lengths, piece)) for piece in pieces) >= 0.95


@settings(max_examples=30)
@given(
    rows=st.lists(
        st.tuples(st.lists(st.integers(4, 60_000), max_size=7), st.lists(st.integers(4, 60_000), max_size=7)),
        min_size=1,
        max_size=9,
    )
)
def test_a_batch_holds_each_pair_shifted_by_one_and_padded_on_the_right(rows: list[tuple[list[int], list[int]]]) -> None:
    data = ParallelData(Sequences.of([src for src, _ in rows]), Sequences.of([tgt for _, tgt in rows]))
    indices = np.arange(len(rows))[::-1].copy()
    batch = collate(data, indices, BOS)
    for row, index in enumerate(indices):
        src, tgt = rows[index]
        assert batch.src_lengths[row] == len(src) + 1 == data.lengths[index, 0]
        assert [id for id in batch.src[row].tolist() if id != PAD] == [*src, EOS]
        assert batch.src[row, : len(src) + 1].tolist() == [*src, EOS]
        assert batch.target[row, : len(tgt) + 1].tolist() == [*tgt, EOS]
        assert batch.prefix[row, : len(tgt) + 1].tolist() == [BOS, *tgt]
        assert not batch.target[row, len(tgt) + 1 :].any() and not batch.prefix[row, len(tgt) + 1 :].any()
    assert batch.src.shape[1] == max(len(src) + 1 for src, _ in rows)
    assert batch.tokens == int((batch.target != PAD).sum()) == sum(len(tgt) + 1 for _, tgt in rows)
