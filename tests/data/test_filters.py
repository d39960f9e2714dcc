"""What is dropped of a corpus: whole chunks at a time as pair by pair."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data import corpus
from nmt.data.corpus import REASONS, Chunk, Drops, Pair, Pairs, Reason, TextFilter
from nmt.data.encode import Encoded, Encoder
from nmt.data.shards import Sequences
from nmt.data.subword import Recipe, Subword, train_subword

FIRST = 41

texts = st.sampled_from(["", " ", "\u3000\t", "\0", "a", "b", "a b"])


@given(st.lists(st.lists(st.tuples(texts, texts, st.booleans()), max_size=20), max_size=3), st.booleans())
def test_pairs_without_text_and_repeated_ones_are_dropped(chunks: list[list[tuple[str, str, bool]]], dedup: bool) -> None:
    kept: list[Pair] = []
    drops = Drops()
    first = FIRST
    text_filter = TextFilter(dedup)
    for lines in chunks:
        numbers = range(first, first + len(lines))
        passed = []
        for number, (source, target, damaged) in zip(numbers, lines, strict=True):
            if damaged:
                drops.add("invalid_utf8", number)
            elif not source.strip() or not target.strip():
                drops.add("empty", number)
            elif dedup and any((source, target) == pair[1:] for pair in kept):
                drops.add("duplicate", number)
            else:
                passed.append(Pair(number, source, target))
                kept.append(passed[-1])
        pairs = Pairs(numbers, [source for source, _, _ in lines], [target for _, target, _ in lines])
        damaged_lines = frozenset(number for number, (_, _, damaged) in zip(numbers, lines, strict=True) if damaged)
        found = text_filter.keep(Chunk(pairs, damaged_lines))
        assert [found[i] for i in range(len(found))] == passed
        first = numbers.stop
    assert text_filter.drops == drops


def test_a_chunk_ends_where_its_lines_are_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{number} " + "x" * (100 if 150 <= number < 450 else 1) for number in range(700)]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    monkeypatch.setattr(corpus, "CHARACTERS", 5000)
    name = str(tmp_path / "text")
    chunks = [chunk.pairs for chunk in corpus.Corpus(name, name, "strict", tmp_path / "copy").chunks()]
    assert [line for pairs in chunks for line in pairs.source] == lines
    assert [number for pairs in chunks for number in pairs.numbers] == list(range(1, 701))
    assert max(len(pairs) for pairs in chunks) > 150
    assert max(sum(map(len, [*pairs.source, *pairs.target])) for pairs in chunks) < 5000 + 2 * 105 * corpus.FEW


@pytest.fixture(scope="module")
def subword() -> Subword:
    return train_subword(["a b c d e f"] * 9, Recipe("bpe", 30, "nmt_nfkc", False, 1.0, False), "it").subword


def fault(source: int, target: int, max_length: int, max_ratio: float | None) -> Reason | None:
    if 0 in (source, target):
        return "empty"
    if source > max_length or target > max_length:
        return "too_long"
    if max_ratio is not None and (source > max_ratio * target or target > max_ratio * source):
        return "ratio"
    return None


@given(
    lengths=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=20),
    max_length=st.integers(1, 12) | st.just(10**30),
    max_ratio=st.none() | st.floats(1, 12),
)
def test_pairs_over_the_limits_are_dropped(
    subword: Subword, lengths: list[tuple[int, int]], max_length: int, max_ratio: float | None
) -> None:
    pairs = Pairs.of([Pair(number, f"source {number}", f"target {number}") for number in range(FIRST, FIRST + len(lengths))])
    source, target = ([[number] * length[side] for number, length in enumerate(lengths)] for side in (0, 1))
    drops = Drops()
    fit = Encoder(subword, subword, max_length, max_ratio, 1).fit(Encoded(pairs, Sequences.of(source), Sequences.of(target)), drops)
    faults = [fault(*length, max_length, max_ratio) for length in lengths]
    fitting = [i for i, reason in enumerate(faults) if reason is None]
    assert [fit.pairs[i] for i in range(len(fit.pairs))] == [pairs[i] for i in fitting]
    assert [fit.source[i].tolist() for i in range(len(fit.source))] == [source[i] for i in fitting]
    assert [fit.target[i].tolist() for i in range(len(fit.target))] == [target[i] for i in fitting]
    assert {reason: drops.counts[reason] for reason in REASONS} == {reason: faults.count(reason) for reason in REASONS}
    assert all(lines == [FIRST + i for i, each in enumerate(faults) if each == reason][:5] for reason, lines in drops.lines.items())
