"""What every backend promises, by invariants: no expected numbers, each answer is computed a second way.

Legend: B sentences, S source positions, T target positions, K hypotheses a sentence, R = K·B decoder rows.
"""

import itertools
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.models import BACKENDS, build
from nmt.models.base import Seq2Seq
from nmt.models.ensemble import Ensemble
from nmt.models.uncached import Uncached
from nmt.vocab import BOS, EOS, PAD
from tests.conftest import VOCABULARY, network, prefixes, sources

LENGTHS = [4, 9, 1, 6]


def close(left: Tensor, right: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(left, right, atol=tolerance, rtol=tolerance)


def stepped(model: Seq2Seq, prefix: Tensor, src: Tensor, lengths: Tensor) -> Tensor:
    """hidden (R, T, d), one step after another."""
    memory = model.encode(src, lengths)
    state = model.start(memory).select(torch.arange(len(src)).repeat_interleave(len(prefix) // len(src)))
    hidden = []
    for token in prefix.unbind(1):
        vectors, state = model.step(token, state, memory)
        hidden.append(vectors)
    return torch.stack(hidden, 1)


def loss(model: Seq2Seq, src: Tensor, lengths: Tensor, prefix: Tensor) -> Tensor:
    logits = model.logits(model(src, lengths, prefix))
    return F.cross_entropy(logits.flatten(0, 1), prefix.roll(-1, 1).flatten())


def test_step_by_step_equals_decode(model: Seq2Seq) -> None:
    src, lengths = sources(LENGTHS)
    prefix = prefixes(model, len(src), 70)  # further than any cache has room for at first
    close(stepped(model, prefix, src, lengths), model(src, lengths, prefix))


def test_uncached_equals_cached(model: Seq2Seq) -> None:
    src, lengths = sources(LENGTHS)
    prefix = prefixes(model, 2 * len(src), 5)
    uncached = Uncached(model)
    close(stepped(uncached, prefix, src, lengths), stepped(model, prefix, src, lengths))
    assert torch.equal(uncached(src, lengths, prefix[:4]), model(src, lengths, prefix[:4]))
    hidden = uncached(src, lengths, prefix[:4])
    assert torch.equal(uncached.log_probs(hidden), model.log_probs(hidden))
    assert torch.equal(uncached.logits(hidden), model.logits(hidden))
    close(uncached.attention(prefix, uncached.encode(src, lengths)), model.attention(prefix, model.encode(src, lengths)))


@pytest.mark.parametrize("training", [False, True])
def test_the_future_is_hidden(model: Seq2Seq, training: bool) -> None:
    model.train(training)
    src, lengths = sources(LENGTHS)
    prefix = prefixes(model, len(src), 8)
    hidden = model(src, lengths, prefix)
    for last in range(7):
        changed = prefix.clone()
        changed[:, last + 1 :] = prefixes(model, len(src), 8, seed=9)[:, last + 1 :].where(changed[:, last + 1 :] > 10, 7)
        other = model(src, lengths, changed)
        assert torch.equal(other[:, : last + 1], hidden[:, : last + 1])
        assert not torch.equal(other[:, last + 1], hidden[:, last + 1])


@pytest.mark.parametrize("training", [False, True])
def test_padding_and_company_change_nothing(model: Seq2Seq, training: bool) -> None:
    model.train(training)
    src, lengths = sources([4, 60, 1, 6])
    prefix = prefixes(model, len(src), 7)
    together = model(src, lengths, prefix)
    for row, length in enumerate(lengths.tolist()):
        alone = model(src[row : row + 1, :length], lengths[row : row + 1], prefix[row : row + 1])
        close(alone[0], together[row])
    filled = torch.where(src == PAD, 17, src)
    assert torch.equal(model(filled, lengths, prefix), together)
    close(stepped(model, prefix, filled, lengths), together)
    # Padding of the prefix, on the right, is seen by no real position.
    padded = F.pad(prefix, (0, 5), value=PAD)
    close(model(src, lengths, padded)[:, :7], together)


def test_every_source_position_is_seen(model: Seq2Seq) -> None:
    src, lengths = sources([4, 9, 6])
    prefix = prefixes(model, len(src), 2)
    hidden = model(src, lengths, prefix)
    for row, position in [(0, 0), (0, 3), (1, 0), (1, 8), (2, 5)]:
        changed = src.clone()
        changed[row, position] = 5 if src[row, position] != 5 else 6
        other = model(changed, lengths, prefix)
        assert [torch.equal(other[each], hidden[each]) for each in range(3)] == [each != row for each in range(3)]


def test_training_without_dropout_equals_evaluation(model: Seq2Seq) -> None:
    src, lengths = sources(LENGTHS)
    prefix = prefixes(model, len(src), 6)
    evaluated = model(src, lengths, prefix)
    close(model.train()(src, lengths, prefix), evaluated)


def test_select_equals_encoding_the_selected(model: Seq2Seq) -> None:
    """Reorder, repeat and drop, of memory and state together, in the middle of sentences."""
    src, lengths = sources(LENGTHS)
    prefix = prefixes(model, len(src), 6)
    memory = model.encode(src, lengths)
    state = model.start(memory)
    for token in prefix[:, :3].unbind(1):
        _, state = model.step(token, state, memory)
    index = torch.tensor([3, 1, 1])
    memory, state = memory.select(index), state.select(index)
    continued = []
    for token in prefix[index, 3:].unbind(1):
        hidden, state = model.step(token, state, memory)
        continued.append(hidden)
    close(torch.stack(continued, 1), model(src[index], lengths[index], prefix[index])[:, 3:])


def test_reordered_hypotheses_keep_their_own_past(model: Seq2Seq) -> None:
    """A beam's step: rows of one sentence swap, die and multiply; each must go on from the prefix it came from."""
    src, lengths = sources([5, 3])
    prefix = prefixes(model, 6, 4)  # K = 3
    memory = model.encode(src, lengths)
    state = model.start(memory).select(torch.tensor([0, 0, 0, 1, 1, 1]))
    for token in prefix.unbind(1):
        _, state = model.step(token, state, memory)
    index = torch.tensor([2, 0, 2, 4, 4, 3])
    token = torch.tensor([4, 5, 6, 7, 8, 9])
    hidden, _ = model.step(token, state.select(index), memory)
    whole = torch.cat([prefix[index], token.unsqueeze(1)], 1)
    close(hidden, model.decode(whole, memory)[:, -1])


def test_a_selection_shares_no_rows(model: Seq2Seq) -> None:
    src, lengths = sources([5, 3])
    memory = model.encode(src, lengths)
    prefix = prefixes(model, 2, 3)
    _, state = model.step(prefix[:, 0], model.start(memory), memory)
    copy = state.select(torch.tensor([0, 1]))
    expected, _ = model.step(prefix[:, 1], state.select(torch.tensor([0, 1])), memory)
    model.step(prefix[:, 2], state, memory)  # goes another way
    hidden, _ = model.step(prefix[:, 1], copy, memory)
    assert torch.equal(hidden, expected)


def test_hypotheses_share_the_memory_of_their_sentence(model: Seq2Seq) -> None:
    src, lengths = sources(LENGTHS)
    prefix = prefixes(model, 3 * len(src), 5)
    rows = torch.arange(len(src)).repeat_interleave(3)
    memory = model.encode(src, lengths)
    repeated = memory.select(rows)
    close(model.decode(prefix, memory), model.decode(prefix, repeated))
    close(model.attention(prefix, memory), model.attention(prefix, repeated))
    close(stepped(model, prefix, src, lengths), model(src[rows], lengths[rows], prefix))


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def results(model: Seq2Seq, src: Tensor, lengths: Tensor, prefix: Tensor) -> Iterator[Tensor]:
    """All that a search or `translate` can see of sentences of like length, prefix (B, K, T): each (B, …)."""
    width = prefix.shape[1]
    rows = prefix.flatten(0, 1)
    memory = model.encode(src, lengths)
    first, state = model.step(rows[::width, 0], model.start(memory), memory)
    yield model.log_probs(first)
    state = state.select(torch.arange(len(src)).repeat_interleave(width))
    for token in rows[:, 1:].unbind(1):
        hidden, state = model.step(token, state, memory)
        yield hidden.unflatten(0, (len(src), width))
        yield model.logits(hidden).unflatten(0, (len(src), width))
        yield model.log_probs(hidden).unflatten(0, (len(src), width))
    yield model.attention(rows, memory).unflatten(0, (len(src), width))


def check_company(model: Seq2Seq, size: int, width: int, vocabulary: int) -> None:
    """The bits of a sentence's results among all the others are those it has alone, in small groups and in another order."""
    total = 40
    unit = model.source_unit
    src, lengths = sources([size - place % min(size, unit) for place in range(total)], vocabulary)
    src = F.pad(src, (0, -size % unit), value=PAD)
    prefix = prefixes(model, total * width, 4, vocabulary).unflatten(0, (total, width))
    with torch.inference_mode():
        everyone = list(results(model, src, lengths, prefix))
        generator = torch.Generator().manual_seed(size)
        for count in (1, 1, 2, 3, 5, 7, 9, 23):
            some = torch.randperm(total, generator=generator)[:count]
            for found, expected in zip(results(model, src[some], lengths[some], prefix[some]), everyone, strict=True):
                assert torch.equal(found, expected[some]), f"{count} sentences"


@pytest.mark.parametrize(("size", "width"), [(1, 1), (2, 4), (5, 1), (9, 5), (17, 2), (18, 8), (33, 5)])
def test_no_bit_depends_on_the_company(backend: str, size: int, width: int, threads: int) -> None:
    """The tiny size of each backend, as real as a test can be: kernels are chosen by size."""
    settings = BACKENDS[backend].settings(**BACKENDS[backend].sizes["tiny"])
    torch.manual_seed(0)
    vocabulary = 503  # odd: what is left over from a vector register must not matter
    check_company(build(backend, settings, vocabulary, vocabulary, True).eval(), size, width, vocabulary)


@pytest.mark.parametrize(("size", "width"), [(9, 1), (33, 5)])
def test_no_bit_depends_on_the_company_in_odd_widths(odd: Seq2Seq, size: int, width: int) -> None:
    check_company(odd, size, width, VOCABULARY)


@pytest.mark.parametrize("wrap", [Uncached, lambda model: Ensemble([model, model, model])], ids=["uncached", "ensemble"])
def test_no_bit_depends_on_the_company_around_a_network(model: Seq2Seq, wrap: type[Uncached], threads: int) -> None:
    check_company(wrap(model), 6, 5, VOCABULARY)


def test_gradient_reaches_every_parameter(model: Seq2Seq) -> None:
    src, lengths = sources(LENGTHS)
    loss(model.train(), src, lengths, prefixes(model, len(src), 6)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_gradient_is_that_of_the_rows_alone(model: Seq2Seq) -> None:
    """Padding and company reach no gradient either."""
    model.train()
    src, lengths = sources([3, 8])
    prefix = prefixes(model, 2, 5)
    model(src, lengths, prefix)[0].sum().backward()
    together = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    model(src[:1, :3], lengths[:1], prefix[:1]).sum().backward()
    alone = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    for left, right in zip(together, alone, strict=True):
        close(left, right, 1e-4)


def test_state_dict_round_trip(backend: str) -> None:
    model, other = network(backend), network(backend, seed=1)
    src, lengths = sources(LENGTHS)
    prefix = prefixes(model, len(src), 6)
    assert not torch.equal(model(src, lengths, prefix), other(src, lengths, prefix))
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(src, lengths, prefix), other(src, lengths, prefix))
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert set(model.state_dict()) == parameters, "what can be computed does not belong into a checkpoint"


def test_evaluation_is_deterministic_and_training_drops(backend: str) -> None:
    model = network(backend, dropout=0.5)
    src, lengths = sources(LENGTHS)
    prefix = prefixes(model, len(src), 6)
    assert torch.equal(model(src, lengths, prefix), model(src, lengths, prefix))
    model.train()
    first = model(src, lengths, prefix)
    assert not torch.equal(first, model(src, lengths, prefix))


def test_one_seed_gives_one_network(backend: str) -> None:
    for left, right in zip(network(backend, seed=5).parameters(), network(backend, seed=5).parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize(("start", "token"), [("bos", BOS), ("eos", EOS)])
def test_start_token(backend: str, start: str, token: int) -> None:
    assert network(backend, start=start).start_token == token


def test_no_nan_with_extreme_padding(model: Seq2Seq) -> None:
    model.train()
    src, lengths = sources([1, 300, 1])
    prefix = F.pad(prefixes(model, 3, 2), (0, 50), value=PAD)
    loss(model, src, lengths, prefix).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
    model.eval()
    assert model(src, lengths, prefix).isfinite().all()
    assert stepped(model, prefix, src, lengths).isfinite().all()


def test_a_source_of_one_token(model: Seq2Seq) -> None:
    src, lengths = sources([1])
    prefix = prefixes(model, 1, 4)
    close(stepped(model, prefix, src, lengths), model(src, lengths, prefix))


def test_attention_rows_are_distributions_over_real_positions(model: Seq2Seq) -> None:
    src, lengths = sources(LENGTHS)
    prefix = prefixes(model, 2 * len(src), 5)
    weights = model.attention(prefix, model.encode(src, lengths))
    assert weights.shape == (8, 5, 9)
    close(weights.sum(-1), torch.ones(8, 5))
    for row, length in enumerate(itertools.chain.from_iterable(zip(LENGTHS, LENGTHS, strict=True))):
        assert (weights[row, :, :length] > 0).all()
        assert not weights[row, :, length:].any()


def test_log_probs_are_normalised_logits(model: Seq2Seq) -> None:
    src, lengths = sources(LENGTHS)
    hidden = model(src, lengths, prefixes(model, len(src), 3))
    logits = model.logits(hidden)
    assert logits.shape == (4, 3, VOCABULARY)
    close(model.log_probs(hidden), (logits.double() - logits.double().exp().sum(-1, keepdim=True).log()).float())
    half = model.to(torch.bfloat16).log_probs(hidden.to(torch.bfloat16))
    assert half.dtype == torch.float32
    close(half.exp().sum(-1), torch.ones(4, 3))


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_what_the_vocabularies_cost(backend: str, tie: bool, shared: bool) -> None:
    """Each entry of a table has e parameters: one table, two, or three (source, target, output)."""

    def parameters(src_vocab: int, tgt_vocab: int) -> int:
        model = network(backend, src_vocab, tgt_vocab, shared, tie_embeddings=tie)
        return sum(parameter.numel() for parameter in model.parameters())

    model = network(backend, tie_embeddings=tie)
    width = model(*sources([2]), prefixes(model, 1, 1)).shape[-1]
    biases = sum(bias.numel() for name, bias in model.named_parameters() if name == "output.bias") // VOCABULARY
    source, target = width, width * (1 if tie else 2) + biases
    if shared:
        both = target if tie else source + target
        assert parameters(50, 50) - parameters(40, 40) == 10 * both
    else:
        assert parameters(50, 40) - parameters(40, 40) == 10 * source
        assert parameters(40, 50) - parameters(40, 40) == 10 * target


def test_separate_vocabularies_of_other_sizes(backend: str) -> None:
    model = network(backend, 60, 20, shared=False)
    src, lengths = sources([5, 3], 60)
    prefix = prefixes(model, 2, 4, 20)
    assert model.log_probs(model(src, lengths, prefix)).shape == (2, 4, 20)


def test_one_vocabulary_has_one_size(backend: str) -> None:
    with pytest.raises(ValueError, match="60 and 20"):
        network(backend, 60, 20, shared=True)


@pytest.mark.parametrize("size", ["tiny", "small", "base", "big"])
def test_sizes_are_settings(backend: str, size: str) -> None:
    BACKENDS[backend].settings(**BACKENDS[backend].sizes[size])


def test_layers_of_one_side(backend: str) -> None:
    """`encoder_layers` and `decoder_layers` win over `layers`, each for its side."""

    def parameters(**settings: int) -> int:
        return sum(parameter.numel() for parameter in network(backend, **settings).parameters())

    assert parameters(layers=7, encoder_layers=2, decoder_layers=3) == parameters(encoder_layers=2, decoder_layers=3)
    assert parameters(encoder_layers=3) > parameters()
    assert parameters(decoder_layers=3) > parameters()
    assert parameters(encoder_layers=3, decoder_layers=3) == parameters(layers=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 0}, "layers must be at least 1, not 0"),
        ({"encoder_layers": 0}, "encoder_layers must be at least 1, not 0"),
        ({"decoder_layers": -1}, "decoder_layers must be at least 1, not -1"),
        ({"width": 0}, "width must be at least 1, not 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and less than 1, not 1.0"),
        ({"dropout": -0.1}, "dropout must be at least 0 and less than 1, not -0.1"),
        ({"dropout": float("nan")}, "dropout must be at least 0 and less than 1, not nan"),
        ({"start": "pad"}, "start must be one of bos, eos, not 'pad'"),
    ],
)
def test_impossible_settings(backend: str, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BACKENDS[backend].settings(**settings)
