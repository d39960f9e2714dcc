"""Counts of sentences, scores of sums and p-values are sacreBLEU's, on arrays of NumPy and on tensors, whatever the text."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from nmt import formulas, significance
from nmt.arrays import Arrays
from nmt.measures import METRICS, Lines, Measure, Statistics, measure, statistics
from nmt.significance import SEED

LIBRARIES = {"numpy": Arrays.on(None), "torch": Arrays.on("cpu")}
TOKENIZERS = ("13a", "intl", "zh", "char", "none")

WORDS = (
    *(
        "the",
        "The",
        "a",
        "cat",
        "cat.",
        "cat,",
        "(cat)",
        "3.5",
        "1,000",
        "-",
        "--",
        ".",
        "...",
        ",",
        "'s",
        "&quot;",
        "&amp;lt;",
        "<skipped>",
    ),
    *(
        "天气",
        "今天是个好天气。",
        "ありがとう",
        "สวัสดี",
        "ﬁ",
        "é",
        "e\u0301",
        "😀",
        "İ",
        "ß",
        "\u200b",
        "\ufeff",
        "x\u00a0y",
        "x\u3000y",
    ),
    *("\x00", "\x1c", "\x85", "\u2028", "a\tb", "\\n", "|", "{}", "#$%", "“so”", "«", "a-b", "1-2", "9.", ".9", "\ud800"),
)


def text(generator: random.Random, words: Sequence[str], longest: int) -> str:
    return " ".join(generator.choices(words, k=generator.randint(0, longest)))


def corpora(count: int, most_references: int, tokenizable: Sequence[str] = WORDS) -> Iterator[Lines]:
    """Small texts of few words, so that much is shared; some references are missing, some lines empty, some equal."""
    for seed in range(count):
        generator = random.Random(seed)
        size, longest = generator.choice((1, 1, 2, 3, 9)), generator.choice((0, 1, 2, 5, 5, 30))
        words = generator.sample(tokenizable, generator.choice((1, 2, 5, len(tokenizable))))
        references: list[list[str | None]] = [
            [text(generator, words, longest) for _ in range(size)] for _ in range(generator.choice((1, 1, 2, 3, most_references)))
        ]
        for missing in references[1:]:
            if generator.random() < 0.3:
                missing[generator.randrange(size)] = None
        systems = [[text(generator, words, longest) for _ in range(size)] for _ in range(generator.randint(1, 3))]
        for line in range(size):
            if generator.random() < 0.3:
                systems[0][line] = references[0][line] or ""
        generator.shuffle(references)
        yield Lines(systems, references)


def metrics() -> Iterator[Measure]:
    for tokenize in TOKENIZERS:
        yield measure("bleu", tokenize)
    yield measure("bleu", "13a", lowercase=True)
    yield measure("chrf")
    yield measure("chrf", lowercase=True)
    yield measure("chrf++")
    yield measure("ter")


@pytest.mark.parametrize(("count", "most_references"), [(200, 4), (10, 40)])
def test_counts_scores_and_signatures_of_any_text(count: int, most_references: int) -> None:
    chosen = list(metrics())
    for lines in corpora(count, most_references):
        found = [statistics(chosen, lines, arrays, 1) for arrays in LIBRARIES.values()]
        for each, *counts in zip(chosen, *found, strict=True):
            sacrebleu: Any = each.metric
            signature = each.metric.get_signature().format()
            for system, *of_system in zip(lines.systems, *counts, strict=True):
                theirs = sacrebleu._extract_corpus_statistics(system, lines.references)
                right = sacrebleu._aggregate_and_compute(theirs)
                assert signature == sacrebleu.get_signature().format()
                for ours, arrays in zip(of_system, LIBRARIES.values(), strict=True):
                    assert ours.tolist() == theirs, (lines, signature)
                    total = each.total(ours, arrays)
                    assert total.score == pytest.approx(right.score, abs=1e-9)
                    assert total.format(9, signature=signature) == right.format(9, signature=signature)


@pytest.mark.parametrize("library", LIBRARIES)
def test_counts_do_not_depend_on_who_counts(library: str) -> None:
    lines = texts(500, 2, 3, seed=1)
    lines.references[1][7] = lines.references[2][499] = None
    chosen = [measure(name) for name in METRICS]
    alone, shared = (statistics(chosen, lines, LIBRARIES[library], processes) for processes in (1, 3))
    for ours, theirs in zip(alone, shared, strict=True):
        assert np.array_equal(ours, theirs)
    for each, counts in zip(chosen, shared, strict=True):
        theirs = each.metric._extract_corpus_statistics(lines.systems[1], lines.references)
        assert counts[1].tolist() == theirs


def sums(generator: random.Random) -> list[int]:
    """Of a text from which anything may be missing."""
    totals = sorted((generator.choice((0, 1, 2, 7, 1000, 10**6)) for _ in range(4)), reverse=True)
    matched = [generator.randint(0, generator.choice((0, 1, total))) if total else 0 for total in totals]
    return [totals[0], generator.choice((0, 1, totals[0], totals[0] + 5, 10**6)), *matched, *totals]


@pytest.mark.parametrize("library", [np, torch])
@pytest.mark.parametrize("effective_order", [False, True])
@pytest.mark.parametrize(
    ("smoothing", "value"), [("none", None), ("floor", None), ("floor", 0.01), ("add-k", None), ("add-k", 0.5), ("exp", None)]
)
def test_bleu_of_any_sums(library: Any, smoothing: str, value: float | None, effective_order: bool) -> None:
    generator = random.Random(1)
    many = [sums(generator) for _ in range(2000)]
    found = formulas.bleu(library.asarray(many, dtype=library.float64), library, smoothing, value, effective_order)
    for row, score, precisions, brevity in zip(many, *(part.tolist() for part in found), strict=True):
        right = BLEU.compute_bleu(row[2:6], row[6:], row[0], row[1], smoothing, value, effective_order)
        assert score == pytest.approx(right.score, abs=1e-9)
        assert precisions == pytest.approx(right.precisions, abs=1e-9)
        assert brevity == pytest.approx(right.bp, abs=1e-12)


def texts(size: int, systems: int, references: int, seed: int) -> Lines:
    """References, and systems that are worse and worse."""
    generator = random.Random(seed)
    words = ["the", "a", "cat", "dog", "sat", "ran", "on", "in", "mat.", "house,", "3.5"]
    originals = [generator.choices(words, k=generator.randint(1, 15)) for _ in range(size)]

    def like(line: Sequence[str], share: float) -> str:
        return " ".join(generator.choice(words) if generator.random() < share else word for word in line)

    return Lines(
        [[like(line, 0.2 + 0.04 * i) for line in originals] for i in range(systems)],
        [[like(line, 0.1 * i) for line in originals] for i in range(references)],
    )


def paired(lines: Lines, names: Sequence[str], kind: str, count: int, resamples: int = -1) -> Iterator[list[Any]]:
    """What sacreBLEU finds, system by system, for each metric."""
    chosen = {name: measure(name).metric for name in names}
    named = [(str(number), system) for number, system in enumerate(lines.systems)]
    test = PairedTest(named, chosen, lines.references, test_type=kind, n_samples=count, n_ar_confidence=resamples)
    yield from list(test()[1].values())[1:]


SHAPES = [(150, 1, 1000), (40, 2, 333), (3, 1, 100), (1, 2, 7), (20, 3, 200)]
"""Sentences, references, resamples or trials."""


def agree(found: Sequence[Sequence[significance.Finding]], right: Iterator[list[Any]]) -> None:
    """p-values exactly; means and intervals as far as sacreBLEU's float32 goes."""
    for ours, theirs in zip(found, right, strict=True):
        for finding, result in zip(ours, theirs, strict=True):
            assert finding.mean == pytest.approx(float(result.mean), rel=1e-6)
            assert (finding.mean, finding.interval) == pytest.approx((float(result.mean), float(result.ci)), rel=1e-5, abs=1e-9)
            assert finding.p_value == (1 if finding.identical else result.p_value)


def counted(library: str, size: int, references: int) -> tuple[Lines, list[Measure], list[Statistics], Arrays]:
    """Four systems, and what all metrics count in them."""
    lines, arrays = texts(size, 4, references, seed=size), LIBRARIES[library]
    chosen = [measure(name) for name in METRICS]
    return lines, chosen, statistics(chosen, lines, arrays, 1), arrays


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("size", "references", "count"), SHAPES)
def test_resamples_means_intervals_and_p_values(library: str, size: int, references: int, count: int) -> None:
    lines, chosen, counts, arrays = counted(library, size, references)
    agree(significance.bootstrap(chosen, counts, count, SEED, arrays), paired(lines, METRICS, "bs", count))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("size", "references", "count"), SHAPES)
def test_p_values_by_randomisation(library: str, size: int, references: int, count: int) -> None:
    lines, chosen, counts, arrays = counted(library, size, references)
    agree(significance.randomization(chosen, counts, count, 50, SEED, arrays), paired(lines, METRICS, "ar", count, 50))


def test_resamples_of_one_text() -> None:
    lines = texts(60, 1, 2, seed=5)
    chosen = [measure(name) for name in METRICS]
    counts = statistics(chosen, lines, LIBRARIES["numpy"], 1)
    for each, (ours,) in zip(chosen, significance.bootstrap(chosen, counts, 300, SEED, LIBRARIES["numpy"]), strict=True):
        right = each.metric.corpus_score(lines.systems[0], lines.references, n_bootstrap=300)
        assert (ours.mean, ours.interval) == pytest.approx((float(right._mean), float(right._ci)), abs=1e-9)
        assert ours.p_value is None


def test_chunks_of_random_numbers_are_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = texts(33, 2, 1, seed=3)
    chosen = [measure("bleu")]
    counts, arrays = statistics(chosen, lines, LIBRARIES["numpy"], 1), LIBRARIES["numpy"]

    def found() -> list[Any]:
        return [
            significance.bootstrap(chosen, counts, 101, SEED, arrays),
            significance.randomization(chosen, counts, 101, 50, SEED, arrays),
        ]

    whole = found()
    monkeypatch.setattr(significance, "CHUNK", 34)
    assert found() == whole


def test_large_counts_are_exact() -> None:
    """Sums above 2^24 do not fit the numbers that sacreBLEU resamples with."""
    count = 2**24 + 1
    counts = np.array([[[count, count, *[count] * 8]], [[count, count, *[count - 1] * 4, *[count] * 4]]])
    (drawn,) = significance._texts(iter([np.ones((1, 1))]), [counts], LIBRARIES["numpy"])
    assert drawn[0].tolist() == counts[:, 0].tolist()
