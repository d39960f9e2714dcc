"""Greedy search against greedy search in plain Python."""

import pytest

from nmt.search import Greedy
from nmt.vocab import BOS, EOS
from tests.fakes import Scripted, pad, random_logits
from tests.search.reference import Reference, greedy

SOURCES = [[5, 6], [7], [4, 4, 4], [9, 8], [6, 6, 6, 6]]


@pytest.mark.parametrize("start", [BOS, EOS])
@pytest.mark.parametrize("ngram", [0, 1, 2, 3])
def test_takes_the_most_probable_token_each_time(ngram: int, start: int) -> None:
    limits, prefixes = [12, 3, 7, 1, 9], [[], [4], [9, 8, 9, 8], [], []]
    for seed, ends in enumerate([-2.0, 0.0, 2.0]):
        logits = random_logits(10, seed=seed, ends=ends)
        found = Greedy(0.6, ngram)(Scripted(10, logits, start), *pad(SOURCES), limits, prefixes)
        for src, limit, prefix, hypotheses in zip(SOURCES, limits, prefixes, found, strict=True):
            assert hypotheses == greedy(Reference(logits, src, prefix, ngram), limit, 0.6)


def test_equals_go_to_the_lower_id() -> None:
    [[found]] = Greedy()(Scripted(300, lambda src, prefix: [0.0] * 3 + [-1.0] + [0.0] * 296, BOS), *pad([[4]]), [3])
    assert found.tokens == (4, 4, 4)
    assert not found.finished
