"""What every strategy promises, on the scripted network."""

import math
from collections.abc import Sequence

import pytest

from nmt.errors import NmtError, UsageError
from nmt.search import STRATEGIES, Beam, Greedy, Hypothesis, Sampling, Search
from nmt.search.base import length_penalty
from nmt.vocab import BOS, EOS
from tests.fakes import Scripted, pad, random_logits
from tests.search.reference import left_places

SOURCES = [[5, 6], [7], [4, 4, 4], [9, 8], [6, 6, 6, 6], [7, 5, 4], [8], [9, 9]]
LIMITS = [12, 3, 7, 1, 9, 2, 5, 20]
PREFIXES = [[], [4], [], [9, 8, 7], [], [], [5, 5], []]
SEARCHES = [
    Greedy(0.6),
    Greedy(no_repeat_ngram=2),
    Beam(1),
    Beam(2, 1.0),
    Beam(5, 0.6, no_repeat_ngram=2),
    Sampling(),
    Sampling(samples=3, temperature=1.4, top_k=5, top_p=0.9, min_p=0.01, length_penalty=0.6, no_repeat_ngram=2),
    Sampling(temperature=0.0),
]
SCRIPTS = {vocabulary: random_logits(vocabulary, seed=5) for vocabulary in (10, 60)}
every_search = pytest.mark.parametrize("search", SEARCHES, ids=str)


def translate(search: Search, order: Sequence[int], vocabulary: int = 10, start: int = BOS) -> list[list[Hypothesis]]:
    """The sentences `order` in one batch; equal logits are common."""

    def coarse(src: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        return [round(2 * value) / 2 for value in SCRIPTS[vocabulary](src, prefix)]

    model = Scripted(vocabulary, coarse, start)
    src, lengths = pad([SOURCES[i] for i in order])
    return search(model, src, lengths, [LIMITS[i] for i in order], [PREFIXES[i] for i in order])


def test_the_table_lists_each_strategy() -> None:
    assert {type(search) for search in SEARCHES} == set(STRATEGIES.values())


@every_search
@pytest.mark.parametrize("vocabulary", [10, 60])
def test_company_changes_nothing(search: Search, vocabulary: int) -> None:
    together = translate(search, range(8), vocabulary)
    alone = [translate(search, [i], vocabulary)[0] for i in range(8)]
    assert together == alone
    order = [6, 1, 7, 1, 0, 3, 3, 5, 2, 4]
    assert translate(search, order, vocabulary) == [alone[i] for i in order]


@every_search
@pytest.mark.parametrize("start", [BOS, EOS])
def test_a_hypothesis_is_what_it_says(search: Search, start: int) -> None:
    logits = SCRIPTS[10]
    model = Scripted(10, logits, start)
    found = search(model, *pad(SOURCES), LIMITS, PREFIXES)
    for src, limit, prefix, hypotheses in zip(SOURCES, LIMITS, PREFIXES, found, strict=True):
        limit = max(limit, len(prefix) + 1)
        assert [hypothesis.score for hypothesis in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for hypothesis in hypotheses:
            assert hypothesis.tokens[: len(prefix)] == tuple(prefix)
            assert not {0, 1, 2, 3} & set(hypothesis.tokens)
            assert len(hypothesis.tokens) == limit or (hypothesis.finished and len(hypothesis.tokens) < limit)
            counted = (*hypothesis.tokens, EOS) if hypothesis.finished else hypothesis.tokens
            assert len(hypothesis.token_log_probs) == len(counted)
            assert sum(hypothesis.token_log_probs) == pytest.approx(hypothesis.log_prob, abs=1e-12)
            assert hypothesis.score == hypothesis.log_prob / length_penalty(len(counted), search.length_penalty)
            for place, (token, log_prob) in enumerate(zip(counted, hypothesis.token_log_probs, strict=True)):
                row = logits((*src, EOS), counted[:place])
                right = row[token] - math.log(math.fsum(map(math.exp, row)))
                assert log_prob == pytest.approx(right, abs=1e-5)


@every_search
def test_as_many_as_asked_for(search: Search) -> None:
    width = {Greedy: 1, Beam: getattr(search, "size", 0), Sampling: getattr(search, "samples", 0)}[type(search)]
    assert [len(hypotheses) for hypotheses in translate(search, range(8))] == [width] * 8


@every_search
def test_sentences_leave_the_batch_with_their_memory(search: Search) -> None:
    """No sentence can end before its limit here: each step shows who is still there."""
    model = Scripted(10, random_logits(10, ends=-100.0), BOS)
    found = search(model, *pad(SOURCES), LIMITS)
    left = [sum(limit >= step for limit in LIMITS) for step in range(max(LIMITS) + 1)]
    assert model.sentences == [len(LIMITS), *[min(len(LIMITS), left_places(each)) for each in left[1:]]]
    assert all(rows % sentences == 0 for rows, sentences in zip(model.rows, model.sentences, strict=True))
    assert [len(hypotheses[0].tokens) for hypotheses in found] == LIMITS
    assert not any(hypothesis.finished for hypotheses in found for hypothesis in hypotheses)


@every_search
def test_a_full_hypothesis_may_still_end(search: Search) -> None:
    """`</s>` is not counted by the limit: a translation that fits exactly is finished, not cut."""
    model = Scripted(10, lambda src, prefix: [-20.0] * 3 + ([20.0] if len(prefix) == 3 else [-20.0]) + [0.0] * 6, BOS)
    [found] = search(model, *pad([[4]]), [3])
    assert all(hypothesis.finished and len(hypothesis.tokens) == 3 for hypothesis in found)


@every_search
def test_no_sentences(search: Search) -> None:
    model = Scripted(10, random_logits(10), BOS)
    src, lengths = pad([[4]])
    assert search(model, src[:0], lengths[:0], []) == []
    assert model.rows == []


@every_search
def test_control_symbols_are_never_chosen(search: Search) -> None:
    """However probable; nor is their probability given to others."""
    model = Scripted(10, lambda src, prefix: [5.0, 6.0, 7.0, -2.0] + [0.0] * 6, BOS)
    [found] = search(model, *pad([[4]]), [4])
    for hypothesis in found:
        assert not {0, 1, 2} & set(hypothesis.tokens)
        assert hypothesis.token_log_probs[0] < -7


@every_search
def test_an_unknown_word_can_be_forced(search: Search) -> None:
    [found] = search(Scripted(10, random_logits(10), BOS), *pad([[4]]), [4], [[1, 5]])
    assert all(hypothesis.tokens[:2] == (1, 5) for hypothesis in found)


@pytest.mark.parametrize("kind", STRATEGIES.values())
def test_blocking_every_token_leaves_the_end(kind: type[Greedy] | type[Beam] | type[Sampling]) -> None:
    model = Scripted(7, random_logits(7, ends=-20.0), BOS)
    [found] = kind(no_repeat_ngram=1)(model, *pad([[4]]), [30])
    assert all(hypothesis.finished for hypothesis in found)
    assert max(len(hypothesis.tokens) for hypothesis in found) == 3


@pytest.mark.parametrize("kind", [Greedy, Beam, Sampling])
def test_a_prefix_of_the_free_output_changes_nothing(kind: type[Greedy] | type[Beam] | type[Sampling]) -> None:
    model = Scripted(10, random_logits(10, ends=-2.0), BOS)
    [[free, *_]] = kind()(model, *pad([[4, 8]]), [9])
    for length in range(len(free.tokens)):
        [[forced, *_]] = kind()(model, *pad([[4, 8]]), [9], [free.tokens[:length]])
        assert forced == free


@every_search
def test_a_broken_network_is_said_to_be_one(search: Search) -> None:
    model = Scripted(10, lambda src, prefix: [math.nan] * 10, BOS)
    with pytest.raises(NmtError, match="not numbers"):
        search(model, *pad([[4]]), [4])


@pytest.mark.parametrize(
    ("limits", "prefixes", "message"),
    [([4], [], "2 sentences"), ([4, 0], [], "at least 1"), ([4, 4], [[5], [3]], "control"), ([4, 4], [[5]], "1 prefixes")],
)
def test_contradictions_are_refused(limits: list[int], prefixes: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Greedy()(Scripted(10, random_logits(10), BOS), *pad([[4], [5]]), limits, prefixes)


@pytest.mark.parametrize("kind", STRATEGIES.values())
def test_impossible_options_are_refused(kind: type[Greedy] | type[Beam] | type[Sampling]) -> None:
    for value in (math.nan, math.inf, -math.inf, 1e6):
        with pytest.raises(UsageError, match="length penalty"):
            kind(length_penalty=value)
    with pytest.raises(UsageError, match="no-repeat-ngram"):
        kind(no_repeat_ngram=-1)
