"""Ensembles: a network beside itself is itself, and two networks give the mean of what they give alone."""

import pytest
import torch

from nmt.models.base import Seq2Seq
from nmt.models.ensemble import Ensemble
from tests.conftest import VOCABULARY, network, prefixes, sources


def log_probs(model: Seq2Seq, rows: int = 3) -> torch.Tensor:
    src, lengths = sources([4, 9, 1])
    return model.log_probs(model(src, lengths, prefixes(model, rows, 6)))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_network_beside_itself_is_itself_to_the_last_bit(model: Seq2Seq, count: int) -> None:
    ensemble = Ensemble([model] * count)
    assert torch.equal(log_probs(ensemble), log_probs(model))
    src, lengths = sources([4, 9, 1])
    prefix = prefixes(model, 6, 5)
    memories = model.encode(src, lengths), ensemble.encode(src, lengths)
    index = torch.tensor([0, 0, 1, 1, 2, 2])
    states = model.start(memories[0]).select(index), ensemble.start(memories[1]).select(index)
    for token in prefix.unbind(1):
        (hidden, state), (both, joint) = model.step(token, states[0], memories[0]), ensemble.step(token, states[1], memories[1])
        assert torch.equal(ensemble.log_probs(both), model.log_probs(hidden))
        assert torch.equal(ensemble.logits(both), model.log_probs(hidden))
        # Near certainty as well: log-probabilities close to 0 are where a logsumexp less log n loses bits.
        assert torch.equal(ensemble.log_probs(50 * both), model.log_probs(50 * hidden))
        swap = torch.tensor([1, 0, 3, 3, 5, 4])
        states = state.select(swap), joint.select(swap)
    torch.testing.assert_close(ensemble.attention(prefix, memories[1]), model.attention(prefix, memories[0]))


def test_backends_mix_to_the_mean_of_their_probabilities() -> None:
    members = [network("transformer"), network("rnn", width=24), network("transformer", seed=1, width=16, layers=1)]
    each = torch.stack([log_probs(member) for member in members]).double()
    torch.testing.assert_close(log_probs(Ensemble(members)).double(), each.exp().mean(0).log(), atol=1e-6, rtol=1e-6)


def test_backends_mix_step_by_step() -> None:
    ensemble = Ensemble([network("transformer"), network("rnn", width=24)])
    src, lengths = sources([4, 9])
    prefix = prefixes(ensemble, 2, 6)
    memory = ensemble.encode(src, lengths)
    state = ensemble.start(memory)
    for token in prefix[:, :3].unbind(1):
        _, state = ensemble.step(token, state, memory)
    index = torch.tensor([1])
    memory, state = memory.select(index), state.select(index)
    for token in prefix[1:, 3:].unbind(1):
        hidden, state = ensemble.step(token, state, memory)
    expected = ensemble(src, lengths, prefix)[1:, -1]
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=1e-5)


def test_certain_members_give_no_nan() -> None:
    """A member that leaves others a probability of less than the smallest float32: exp underflows, log must not."""
    model = network("transformer", tie_embeddings=False)
    certain = network("transformer", tie_embeddings=False)
    with torch.no_grad():
        certain.get_parameter("output.weight").mul_(1e4)
    mixed = log_probs(Ensemble([model, certain]))
    assert mixed.isfinite().all()
    torch.testing.assert_close(mixed.exp().sum(-1), torch.ones(3, 6))


def test_attention_is_the_mean_of_those_that_have_it() -> None:
    transformer, rnn, blind = network("transformer"), network("rnn"), network("rnn", attention="none")
    src, lengths = sources([4, 9])
    prefix = prefixes(rnn, 2, 6)

    def attention(*members: Seq2Seq) -> torch.Tensor:
        ensemble = Ensemble(members)
        return ensemble.attention(prefix, ensemble.encode(src, lengths))

    mean = (attention(transformer) + attention(rnn)) / 2
    torch.testing.assert_close(attention(transformer, blind, rnn), mean)
    with pytest.raises(ValueError, match="no model of the ensemble has attention"):
        attention(blind, blind)


def test_members_that_cannot_be_mixed_are_refused() -> None:
    model = network("transformer")
    with pytest.raises(ValueError, match="one start token"):
        Ensemble([model, network("transformer", start="eos")])
    with pytest.raises(ValueError, match=r"one target vocabulary; these have \[29, 31\] entries"):
        Ensemble([model, network("rnn", VOCABULARY, 31, shared=False)])
    with pytest.raises(ValueError, match="at least one model"):
        Ensemble([])
