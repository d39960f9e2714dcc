"""BPE-dropout against the paper's algorithm, thrown out coin by coin."""

import itertools
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from nmt.data.resample import Cutter, resampled
from nmt.data.subword import Recipe, Subword, train_subword
from nmt.vocab import UNK
from tests.toys import dataset, words


@pytest.fixture(scope="module")
def subword() -> Subword:
    recipe = Recipe("bpe", 80, "nmt_nfkc", lowercase=False, character_coverage=1.0, byte_fallback=False)
    return train_subword([line for pair in words(300, seed=1) for line in pair], recipe, "words").subword


def exact(subword: Subword, symbols: tuple[str, ...], dropout: float) -> dict[tuple[str, ...], float]:
    """The probability of each cut of a word (algorithm 1 of 1910.13267): every subset of its merges dropped, at every step."""
    pieces = subword.pieces(range(len(subword)))
    merges = [(pieces.index(a + b), place) for place, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in pieces]
    total: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for kept in itertools.product((True, False), repeat=len(merges)):
        chance = np.prod([1 - dropout if keep else dropout for keep in kept])
        possible = [merge for merge, keep in zip(merges, kept, strict=True) if keep]
        if not possible:
            total[symbols] += chance
            continue
        _, place = min(possible)
        merged = (*symbols[:place], symbols[place] + symbols[place + 1], *symbols[place + 2 :])
        for cut, probability in exact(subword, merged, dropout).items():
            total[cut] += chance * probability
    return total


def test_cuts_are_as_frequent_as_the_paper_has_it(subword: Subword) -> None:
    longest = max(
        (word for source, _ in words(300, seed=1) for word in source.split()), key=lambda word: -len(subword.encode(word))
    )
    ids = subword.encode(longest)
    expected = exact(subword, tuple("\u2581" + longest), 0.3)
    assert len(expected) > 3 and sum(expected.values()) == pytest.approx(1)
    count = 20_000
    found = Counter(tuple(subword.pieces(cut)) for cut in Cutter(subword, 0.3).cut([ids] * count, np.random.default_rng(1)))
    assert set(found) <= set(expected)
    for cut, probability in expected.items():
        assert abs(found[cut] / count - probability) < 5 * np.sqrt(probability * (1 - probability) / count) + 1e-9, cut


def test_without_a_dropped_merge_a_word_is_as_sentencepiece_cuts_it(subword: Subword) -> None:
    cutter = Cutter(subword, 0.5)
    for word in {word for pair in words(300, seed=1) for line in pair for word in line.split()}:
        ids = subword.encode(word)
        assert cutter.segment(tuple(ids), ())[0] == ids


def test_the_same_text_cut_otherwise_in_each_epoch(tmp_path: Path) -> None:
    pairs = [("abc \u2603 abc", "x \u2603"), *words(300, seed=1)]
    data = dataset(tmp_path / "corpus", pairs, valid=5, tokenizer="bpe", vocab_size=60, character_coverage=0.999)

    def epoch(number: int, seed: int = 1, longest: int = 60) -> list[list[list[int]]]:
        cutters = (Cutter(data.source, 0.3), Cutter(data.target, 0.3))
        found = resampled(data.train, cutters, longest, seed=seed, epoch=number, directory=tmp_path)
        return [[side[index].tolist() for index in range(len(side))] for side in (found.src, found.tgt)]

    plain = [[side[index].tolist() for index in range(len(side))] for side in (data.train.src, data.train.tgt)]
    first = epoch(0)
    assert first == epoch(0) and first != epoch(1) and first != epoch(0, seed=2)
    assert sum(a != b for a, b in zip(first[0], plain[0], strict=True)) > len(plain[0]) / 2
    assert any(UNK in ids for ids in plain[0])
    for subword, sampled, ordinary in zip((data.source, data.target), first, plain, strict=True):
        for ids, original in zip(sampled, ordinary, strict=True):
            assert subword.decode(ids) == subword.decode(original)
            assert ids.count(UNK) == original.count(UNK)
    bound = int(np.median([len(ids) for ids in first[0]]))
    shortened = epoch(0, longest=bound)[0]
    assert any(ids != original for ids, original in zip(shortened, plain[0], strict=True))
    for ids, original in zip(shortened, plain[0], strict=True):
        assert len(ids) + 1 <= bound or ids == original
    assert not list(tmp_path.glob(".epoch*"))
