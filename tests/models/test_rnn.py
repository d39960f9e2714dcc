"""The recurrent backend against the formulas in loops, back-propagation through time against its closed form, and invariants."""

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.models.attention import Additive, Bilinear, ScaledDot
from nmt.models.base import mixed_prefix
from nmt.models.recurrent import CELLS, Recurrent
from nmt.models.rnn import SIZES, AttentionDecoder, ContextDecoder, Rnn, Settings
from nmt.vocab import BOS, EOS, PAD

WIDTH, EMBEDDING, SRC, TGT = 6, 5, 12, 14

ATTENTIONS = ["additive", "dot", "bilinear", "scaled-dot"]
VARIANTS = [(attention, "initial") for attention in ATTENTIONS] + [("none", "initial"), ("none", "every-step")]


def small(**changes: object) -> Rnn:
    """A network of a few units in float64, in evaluation."""
    torch.manual_seed(5)
    model = Rnn(Settings(**{"width": WIDTH, "embedding": EMBEDDING, "dropout": 0.0, **changes}), SRC, TGT, False)
    for parameter in model.parameters():  # biases and learned states begin at zero: let them count
        nn.init.normal_(parameter, std=0.4)
    return model.double().eval()


def tokens(*shape: int, high: int, seed: int = 1) -> Tensor:
    return torch.randint(4, high, shape, generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


# The formulas, one row at a time, with torch's order of gates.


def vanilla(gates_x: Tensor, gates_h: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return torch.tanh(gates_x + gates_h), c


def gru(gates_x: Tensor, gates_h: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    x_r, x_z, x_n = gates_x.chunk(3)
    h_r, h_z, h_n = gates_h.chunk(3)
    r, z = 1 / (1 + torch.exp(-x_r - h_r)), 1 / (1 + torch.exp(-x_z - h_z))
    return (1 - z) * torch.tanh(x_n + r * h_n) + z * h, c


def lstm(gates_x: Tensor, gates_h: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = (gates_x + gates_h).chunk(4)
    c = c / (1 + torch.exp(-f)) + torch.tanh(g) / (1 + torch.exp(-i))
    return torch.tanh(c) / (1 + torch.exp(-o)), c


FORMULAS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "rnn": vanilla,
    "gru": gru,
    "lstm": lstm,
}


def naive_layer(cell: str, layers: nn.RNNBase, suffix: str, xs: list[Tensor], state: Tensor) -> list[Tensor]:
    """One direction of one layer over a list of x_t, in the order given; state (P, d)."""
    w_x, w_h, b_x, b_h = (getattr(layers, f"{name}_{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    h, c = state[0], state[-1]
    outputs = []
    for x in xs:
        h, c = FORMULAS[cell](w_x @ x + b_x, w_h @ h + b_h, h, c)
        outputs.append(h)
    return outputs


def naive_encoder(cell: str, model: Rnn, row: Tensor) -> tuple[Tensor, Tensor]:
    """Both directions of every layer over one sentence without padding -> states (S, 2d), [last forward ; last backward]."""
    layers = model.encoder.recurrent.layers
    xs = list(model.src_embedding.weight[row])
    for layer in range(layers.num_layers):
        forward = naive_layer(cell, layers, f"l{layer}", xs, model.encoder.initial[2 * layer])
        backward = naive_layer(cell, layers, f"l{layer}_reverse", xs[::-1], model.encoder.initial[2 * layer + 1])[::-1]
        xs = [torch.cat(pair) for pair in zip(forward, backward, strict=True)]
    return torch.stack(xs), torch.cat([forward[-1], backward[0]])


def test_back_propagation_through_time_equals_the_closed_form() -> None:
    """δ_t = g_t + (δ_{t+1} ⊙ (1 − h_{t+1}²)) W_hᵀ and the sums over t of systems.md, for the module that the backend uses."""
    torch.manual_seed(2)
    steps, inputs = 7, 4
    recurrent = Recurrent(CELLS["rnn"], inputs, WIDTH, layers=1, bidirectional=False, dropout=0.0).double()
    x = torch.randn(1, steps, inputs, dtype=torch.float64)
    h_0 = torch.randn(1, 1, 1, WIDTH, dtype=torch.float64)
    outputs, _ = recurrent(x, h_0)
    local = torch.randn(steps, WIDTH, dtype=torch.float64)  # g_t = ∂ℓ_t/∂h_t
    (outputs[0] * local).sum().backward()

    w_x, w_h = recurrent.layers.weight_ih_l0.T, recurrent.layers.weight_hh_l0.T  # the formulas multiply rows
    bias = recurrent.layers.bias_ih_l0 + recurrent.layers.bias_hh_l0
    with torch.no_grad():
        h = [h_0.flatten()]
        for t in range(steps):
            h.append(torch.tanh(x[0, t] @ w_x + h[-1] @ w_h + bias))
        d_w_h, d_w_x, d_b = torch.zeros_like(w_h), torch.zeros_like(w_x), torch.zeros_like(bias)
        delta_next, h_next = torch.zeros(WIDTH, dtype=torch.float64), torch.zeros(WIDTH, dtype=torch.float64)
        for t in range(steps, 0, -1):
            delta = local[t - 1] + (delta_next * (1 - h_next**2)) @ w_h.T
            error = delta * (1 - h[t] ** 2)
            d_w_h += torch.outer(h[t - 1], error)
            d_w_x += torch.outer(x[0, t - 1], error)
            d_b += error
            delta_next, h_next = delta, h[t]
    close(outputs[0], torch.stack(h[1:]))
    close(recurrent.layers.weight_hh_l0.grad, d_w_h.T)
    close(recurrent.layers.weight_ih_l0.grad, d_w_x.T)
    close(recurrent.layers.bias_ih_l0.grad, d_b)
    close(recurrent.layers.bias_hh_l0.grad, d_b)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_encoder_equals_formulas(cell: str, layers: int) -> None:
    """A padded batch against each of its sentences alone: the backward direction starts at the last real token."""
    model = small(cell=cell, layers=layers, initial_state="learned")
    lengths = [5, 2, 1]
    src = tokens(3, 5, high=SRC)
    with torch.no_grad():
        states, last = model.encoder(model.src_embedding(src), torch.tensor(lengths))
        for i, length in enumerate(lengths):
            expected_states, expected_last = naive_encoder(cell, model, src[i, :length])
            close(states[i, :length], expected_states)
            close(last[i], expected_last)


def test_encoder_of_one_direction_is_causal() -> None:
    model = small(bidirectional=False)
    src = tokens(1, 5, high=SRC)
    changed = src.clone()
    changed[0, 3] = 4 + (changed[0, 3] - 3) % (SRC - 4)
    with torch.no_grad():
        (before, last), (after, _) = (model.encoder(model.src_embedding(x), torch.tensor([5])) for x in (src, changed))
    assert before.shape == (1, 5, WIDTH)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3:], after[:, 3:])
    assert torch.equal(last, before[:, -1])


def naive_scores(decoder: AttentionDecoder, s: Tensor, states: Tensor) -> Tensor:
    score = decoder.score
    if isinstance(score, Additive):
        return torch.stack([score.vector.weight[0] @ torch.tanh(score.query.weight @ s + score.key.weight @ h) for h in states])
    if isinstance(score, Bilinear):
        return torch.stack([s @ (score.key.weight @ h) for h in states])
    return torch.stack([s @ (h[:WIDTH] + h[WIDTH:]) for h in states]) / (WIDTH**0.5 if isinstance(score, ScaledDot) else 1)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("cell", CELLS)
def test_attention_decoder_equals_formulas(cell: str, attention: str) -> None:
    """s_0 = tanh(W ←h_1), α_t = softmax_j score(s_{t-1}, h_j), c_t = Σ α_tj h_j, s_t = cell([E y ; c_t], s_{t-1}), readout."""
    model = small(cell=cell, attention=attention)
    decoder = model.decoder
    assert isinstance(decoder, AttentionDecoder)
    lengths = [4, 2]
    src, prefix = tokens(2, 4, high=SRC), tokens(2, 3, high=TGT)
    gates = CELLS[cell].gates * WIDTH
    context_to_gates, context_to_readout = decoder.values.weight.split([gates, EMBEDDING])
    with torch.no_grad():
        memory = model.encode(src, torch.tensor(lengths))
        hidden, attended = model.decode(prefix, memory), model.attention(prefix, memory)
        for i, length in enumerate(lengths):
            states, last = naive_encoder(cell, model, src[i, :length])
            start = torch.tanh(decoder.begin.weight @ last[WIDTH:] + decoder.begin.bias).view(-1, WIDTH)
            s, c = start[0], start[-1]
            for t, token in enumerate(prefix[i]):
                y = model.tgt_embedding.weight[token]
                weights = naive_scores(decoder, s, states).softmax(0)
                context = sum(w * h for w, h in zip(weights, states, strict=True))
                gates_x = decoder.inputs.weight @ y + decoder.inputs.bias + context_to_gates @ context
                s, c = FORMULAS[cell](gates_x, decoder.hidden.weight @ s + decoder.hidden.bias, s, c)
                read = decoder.readout.weight @ torch.cat([s, y]) + decoder.readout.bias + context_to_readout @ context
                close(hidden[i, t], torch.tanh(read))
                close(attended[i, t], F.pad(weights, (0, 4 - length)))


@pytest.mark.parametrize("context", ["initial", "every-step"])
@pytest.mark.parametrize("cell", CELLS)
def test_decoder_without_attention_equals_formulas(cell: str, context: str) -> None:
    model = small(cell=cell, attention="none", context=context)
    decoder = model.decoder
    assert isinstance(decoder, ContextDecoder)
    lengths = [4, 2]
    src, prefix = tokens(2, 4, high=SRC), tokens(2, 3, high=TGT)
    with torch.no_grad():
        hidden = model.decode(prefix, model.encode(src, torch.tensor(lengths)))
        for i, length in enumerate(lengths):
            _, last = naive_encoder(cell, model, src[i, :length])
            start = torch.tanh(decoder.begin.weight @ last + decoder.begin.bias).view(-1, WIDTH)
            inputs = [model.tgt_embedding.weight[token] for token in prefix[i]]
            if context == "every-step":
                inputs = [torch.cat([y, last]) for y in inputs]
            outputs = naive_layer(cell, decoder.recurrent.layers, "l0", inputs, start)
            for t, (s, x) in enumerate(zip(outputs, inputs, strict=True)):
                close(hidden[i, t], torch.tanh(decoder.readout.weight @ torch.cat([s, x]) + decoder.readout.bias))


@pytest.mark.parametrize(
    ("cell", "variant", "bidirectional", "layers"), [*itertools.product(CELLS, VARIANTS, [True, False], [1, 2])]
)
def test_step_equals_decode(cell: str, variant: tuple[str, str], bidirectional: bool, layers: int) -> None:
    """With K = 2 hypotheses a sentence, rows swapped on the way as a beam would."""
    attention, context = variant
    model = small(cell=cell, attention=attention, context=context, bidirectional=bidirectional, layers=layers)
    prefix = tokens(6, 4, high=TGT)
    swap = torch.tensor([1, 0, 2, 2, 5, 4])
    with torch.no_grad():
        memory = model.encode(tokens(3, 5, high=SRC), torch.tensor([5, 3, 1]))
        state = model.start(memory).select(torch.arange(3).repeat_interleave(2))
        for t in range(2):
            _, state = model.step(prefix[:, t], state, memory)
        state, prefix = state.select(swap), torch.cat([prefix[swap, :2], prefix[:, 2:]], 1)
        steps = []
        for t in range(2, 4):
            hidden, state = model.step(prefix[:, t], state, memory)
            steps.append(hidden)
        close(torch.stack(steps, 1), model.decode(prefix, memory)[:, 2:])


@pytest.mark.parametrize("attention", ["additive", "dot", "none"])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("cell", CELLS)
def test_padding_changes_nothing(cell: str, bidirectional: bool, attention: str) -> None:
    """A line of 3 tokens alone, and beside one of 200, in float32; whatever stands in the padding."""
    model = small(cell=cell, bidirectional=bidirectional, attention=attention).float()
    prefix = tokens(1, 6, high=TGT)
    line = tokens(1, 3, high=SRC)
    src = torch.cat([F.pad(line, (0, 197), value=PAD), tokens(1, 200, high=SRC, seed=2)])
    rubbish = src.clone()
    rubbish[0, 3:] = 7
    lengths = torch.tensor([3, 200])
    with torch.no_grad():
        alone = model(line, torch.tensor([3]), prefix)
        beside = model(src, lengths, prefix.expand(2, -1))
        assert torch.equal(beside, model(rubbish, lengths, prefix.expand(2, -1)))
    close(beside[0], alone[0], 1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("cell", "attention", "layers", "width"),
    [
        ("gru", "additive", 1, 64),
        ("gru", "additive", 1, 20),
        ("gru", "bilinear", 2, 64),
        ("lstm", "dot", 1, 100),
        ("rnn", "scaled-dot", 1, 64),
        ("lstm", "none", 2, 64),
    ],
)
def test_company_changes_no_bit(cell: str, attention: str, layers: int, width: int, threads: int) -> None:
    """Sentences of one length in float32: what one gets is the same to the last bit among 1 … 200, for any K."""
    torch.manual_seed(5)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        model = Rnn(Settings(width=width, embedding=30, cell=cell, attention=attention, layers=layers), 50, 60, False).eval()
        src, sizes = tokens(200, 7, high=50), (1, 2, 3, 5, 7, 33) if threads == 1 else (1, 5, 33)
        for hypotheses in (1, 5) if threads == 1 else (5,):
            prefix = tokens(200, hypotheses, 3, high=60)

            def results(size: int, hypotheses: int = hypotheses, prefix: Tensor = prefix) -> Tensor:
                memory = model.encode(src[:size], torch.full((size,), 7))
                state = model.start(memory).select(torch.arange(size).repeat_interleave(hypotheses))
                outputs = [model.decode(prefix[:size].flatten(0, 1), memory)]
                for t in range(3):
                    hidden, state = model.step(prefix[:size, :, t].flatten(), state, memory)
                    outputs.append(hidden.unsqueeze(1))
                return model.log_probs(torch.cat(outputs, 1)).view(size, hypotheses, 6, -1)

            with torch.no_grad():
                whole = results(200)
                for size in sizes:
                    assert torch.equal(results(size), whole[:size]), (hypotheses, size)
    finally:
        torch.set_num_threads(before)


def test_no_attention_says_so() -> None:
    model = small(attention="none")
    with pytest.raises(ValueError, match="no attention"):
        model.attention(tokens(1, 2, high=TGT), model.encode(tokens(1, 3, high=SRC), torch.tensor([3])))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_tied_embeddings(tied: bool, shared: bool) -> None:
    model = Rnn(Settings(width=8, embedding=5, tie_embeddings=tied), 12, 12, shared)
    assert (model.output.weight is model.tgt_embedding.weight) == tied
    assert (model.src_embedding.weight is model.tgt_embedding.weight) == (tied and shared)
    assert model.output.bias.requires_grad


def test_settings() -> None:
    for size in SIZES.values():
        Settings(**size)
    model = Rnn(Settings(width=8, embedding=5, encoder_layers=2, decoder_layers=3, start="eos"), 12, 12, False)
    assert model.start_token == EOS
    assert model.encoder.recurrent.layers.num_layers == 2
    memory = model.encode(tokens(2, 3, high=12), torch.tensor([3, 3]))
    assert model.start(memory).layers.shape == (2, 3, 1, 8)
    assert Rnn(Settings(width=8, embedding=5), 12, 12, False).start_token == BOS
    learned = Rnn(Settings(width=8, embedding=5, initial_state="learned"), 12, 12, False)
    assert {name for name, _ in learned.named_parameters()} - {name for name, _ in model.named_parameters()} == {"encoder.initial"}


def test_every_parameter_learns() -> None:
    for cell, (attention, context) in itertools.product(CELLS, VARIANTS):
        model = small(cell=cell, attention=attention, context=context, layers=2, initial_state="learned").train()
        hidden = model(tokens(3, 5, high=SRC), torch.tensor([5, 3, 1]), tokens(3, 4, high=TGT))
        model.log_probs(hidden)[..., 4].sum().backward()
        assert not [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]


def test_mixed_prefix_is_the_models_own_choice() -> None:
    model = small()
    src, prefix = tokens(8, 5, high=SRC), torch.cat([torch.full((8, 1), BOS), tokens(8, 20, high=TGT)], 1)
    memory = model.encode(src, torch.full((8,), 5))

    def mixed(teacher_forcing: float, seed: int = 1) -> Tensor:
        return mixed_prefix(model, prefix, memory, teacher_forcing, torch.Generator().manual_seed(seed))

    assert torch.equal(mixed(1.0), prefix)
    for teacher_forcing in (0.0, 0.4):
        result = mixed(teacher_forcing)
        predicted = F.pad(model.logits(model.decode(result, memory)).argmax(-1), (1, 0))[:, :-1]
        assert torch.equal(result[:, 0], prefix[:, 0])
        own = result[:, 1:] != prefix[:, 1:]
        assert torch.equal(result[:, 1:][own], predicted[:, 1:][own])
        differ = predicted[:, 1:] != prefix[:, 1:]
        assert own[differ].double().mean().item() == pytest.approx(1 - teacher_forcing, abs=0.15)
    assert torch.equal(mixed(0.4), mixed(0.4))
    assert not torch.equal(mixed(0.4), mixed(0.4, seed=2))


def test_learns_to_reverse_digits() -> None:
    torch.manual_seed(1)
    model = Rnn(Settings(width=32, embedding=16, dropout=0.0), 14, 14, True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(1)

    def pairs(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        digits = torch.randint(4, 14, (count, 4), generator=generator)
        backwards = digits.flip(1)
        lengths = torch.full((count,), 5)
        return F.pad(digits, (0, 1), value=EOS), lengths, F.pad(backwards, (1, 0), value=BOS), F.pad(backwards, (0, 1), value=EOS)

    for _ in range(250):
        src, lengths, prefix, target = pairs(64)
        loss = F.cross_entropy(model.logits(model(src, lengths, prefix)).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    src, lengths, prefix, target = pairs(200)
    with torch.no_grad():
        memory = model.encode(src, lengths)
        free = mixed_prefix(model, F.pad(prefix, (0, 1)), memory, 0.0, generator)[:, 1:]
    assert (free == target).all(1).double().mean() > 0.95
