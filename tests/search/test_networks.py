"""The searches over small real networks of every backend: their arithmetic, their states and memories, not only their script."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from nmt.models.base import Memory, Seq2Seq, State, fitted
from nmt.search import Beam, Greedy, Hypothesis, Sampling, Search
from nmt.vocab import EOS, PAD
from tests.conftest import sources
from tests.search.reference import left_places

SEARCHES = [Greedy(0.6), Beam(4, 1.0), Beam(3, 0.0, no_repeat_ngram=2), Sampling(samples=2), Sampling(top_p=0.8)]
LIMITS = [9, 3, 12, 1, 6, 12, 4, 8, 2]
every_search = pytest.mark.parametrize("search", SEARCHES, ids=str)


def forced(model: Seq2Seq, src: Tensor, hypothesis: Hypothesis) -> Tensor:
    """Log-probabilities of its tokens when the network is told them."""
    target = torch.tensor([[*hypothesis.tokens, EOS][: len(hypothesis.token_log_probs)]])
    prefix = torch.cat([torch.full((1, 1), model.start_token), target[:, :-1]], dim=1)
    with torch.inference_mode():
        hidden = model(src.unsqueeze(0), torch.tensor([len(src)]), prefix)
        return model.log_probs(hidden).gather(2, target.unsqueeze(2)).flatten().double()


@every_search
@pytest.mark.parametrize("lengths", [[7] * 9, [7, 3, 5, 1, 2, 7, 6, 4, 4]], ids=["one length", "padded"])
def test_log_prob_is_the_forced_one(model: Seq2Seq, search: Search, lengths: list[int]) -> None:
    src, src_lengths = sources(lengths)
    for row, length, hypotheses in zip(src, lengths, search(model, src, src_lengths, LIMITS), strict=True):
        for hypothesis in hypotheses:
            right = forced(model, row[:length], hypothesis)
            assert hypothesis.token_log_probs == pytest.approx(right.tolist(), abs=1e-4)
            assert hypothesis.log_prob == pytest.approx(right.sum().item(), abs=1e-4)


def in_units(model: Seq2Seq, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Sources of these lengths, padded as `translate` does it."""
    src, src_lengths = sources(lengths)
    return fitted(src, -1, -(-max(lengths) // model.source_unit) * model.source_unit, PAD), src_lengths


MANY = [7, 3, 65, 1, 2, 30, 6, 40, 4]


@every_search
@pytest.mark.parametrize("lengths", [[7] * 9, MANY], ids=["one length", "many"])
def test_company_changes_no_bit(model: Seq2Seq, search: Search, lengths: list[int]) -> None:
    check_company(model, search, lengths)


@pytest.mark.parametrize("search", [Greedy(), Beam(3, 1.0)], ids=str)
def test_company_changes_no_bit_in_odd_widths(odd: Seq2Seq, search: Search) -> None:
    check_company(odd, search, MANY)


def check_company(model: Seq2Seq, search: Search, lengths: list[int]) -> None:
    src, src_lengths = in_units(model, lengths)
    together = search(model, src, src_lengths, LIMITS)
    for row, length in enumerate(lengths):
        alone, _ = in_units(model, [length])
        alone[0, :length] = src[row, :length]
        assert search(model, alone, src_lengths[row : row + 1], LIMITS[row : row + 1]) == [together[row]]
    order = torch.tensor([4, 8, 0, 3, 3, 7])
    assert search(model, src[order], src_lengths[order], [LIMITS[i] for i in order]) == [together[i] for i in order]


@every_search
@pytest.mark.parametrize("positions", [1, 40, 200])
def test_pools_that_part_and_meet_change_no_bit(
    model: Seq2Seq, search: Search, positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Translations of 1 to 70 tokens, in pools of other sizes, whose rests are joined after 16, 32 … steps."""
    log_probs = model.log_probs
    monkeypatch.setattr(model, "log_probs", lambda hidden: log_probs(hidden).index_fill(1, torch.tensor([EOS]), -100.0))
    src, src_lengths = in_units(model, [1 + 7 * number % 40 for number in range(60)])
    limits = [1 + 11 * number % 70 for number in range(60)]
    together = search(model, src, src_lengths, limits)
    assert [len(hypotheses[0].tokens) for hypotheses in together] == limits
    assert search(model, src, src_lengths, limits, (), positions) == together


@every_search
def test_each_step_sees_few_sentences_more_than_are_left(model: Seq2Seq, search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that never ends: who is left is known from the limits."""
    step, log_probs = model.step, model.log_probs
    seen: list[tuple[int, Memory]] = []

    def watched(token: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        seen.append((len(token), memory))
        return step(token, state, memory)

    def endless(hidden: Tensor) -> Tensor:
        return log_probs(hidden).index_fill(1, torch.tensor([EOS]), -100.0)

    monkeypatch.setattr(model, "step", watched)
    monkeypatch.setattr(model, "log_probs", endless)
    src, src_lengths = sources([7] * 9)
    search(model, src, src_lengths, LIMITS)
    kept = [left_places(sum(limit >= step for limit in LIMITS)) for step in range(max(LIMITS) + 1)]
    kept[0] = len(LIMITS)
    width = getattr(search, "size", getattr(search, "samples", 1))
    first = 1 if isinstance(search, Beam) else width
    assert [rows for rows, _ in seen] == [first * kept[0], *[width * sentences for sentences in kept[1:]]]
    assert [memory_rows(memory) for _, memory in seen] == [{sentences} for sentences in kept]


def memory_rows(memory: Memory) -> set[int]:
    """First dimensions of all tensors of a memory."""
    values = [item for value in vars(memory).values() for item in (value if isinstance(value, list) else [value])]
    return {len(value) for value in values if isinstance(value, Tensor)}


def test_nothing_is_left_for_autograd(model: Seq2Seq) -> None:
    """A network that has translated can be trained on."""
    src, src_lengths = sources([5, 4])
    Beam(3)(model, src, src_lengths, [6, 6])
    model.train()
    model.logits(model(src, src_lengths, torch.full((2, 3), model.start_token))).sum().backward()
