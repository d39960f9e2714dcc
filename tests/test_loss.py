"""The chunked loss against the plain formula in float64, gradients included."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nmt import loss
from nmt.data.batching import Batch
from nmt.models.base import Seq2Seq
from nmt.vocab import PAD
from tests.conftest import network, prefixes, sources

B, T, D, V = 5, 7, 6, 11


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "CHUNK", {"cpu": 3 * V})  # three rows of logits at once: the last chunk is not full


def case(seed: int = 0) -> tuple[nn.Linear, Tensor, Tensor, int]:
    """Output layer, hidden (B, T, d), target (B, T) with padding on the right, and its number of real positions."""
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Linear(D, V, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    hidden = torch.randn(B, T, D, generator=generator, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([7, 1, 4, 6, 2])
    target = torch.randint(4, V, (B, T), generator=generator)
    target[torch.arange(T) >= lengths[:, None]] = PAD
    return layer, hidden, target, int(lengths.sum())


def plain(layer: nn.Linear, hidden: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The formula position by position, real ones only: smoothed loss and nll."""
    total, nll = torch.zeros(2, dtype=torch.float64).unbind()
    for row, labels in zip(hidden, target.tolist(), strict=True):
        for state, label in zip(row, labels, strict=True):
            if label == PAD:
                continue
            log_p = (layer(state).exp() / layer(state).exp().sum()).log()
            wanted = torch.full((V,), smoothing / V, dtype=torch.float64)
            wanted[label] += 1 - smoothing
            total = total - (wanted * log_p).sum()
            nll = nll - log_p[label]
    return total, nll


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_sums_and_gradients_are_those_of_the_formula(smoothing: float) -> None:
    layer, hidden, target, tokens = case()
    expected, nll = plain(layer, hidden, target, smoothing)
    wanted = torch.autograd.grad(expected, [hidden, layer.weight, layer.bias])

    sums = loss.backward(layer, hidden, target, tokens, smoothing, weight=0.25)
    assert hidden.grad is not None and layer.weight.grad is not None and layer.bias.grad is not None
    for got, gradient in zip((hidden.grad, layer.weight.grad, layer.bias.grad), wanted, strict=True):
        torch.testing.assert_close(got, 0.25 * gradient, rtol=0, atol=1e-10)
    for measured in (sums, loss.evaluate(layer, hidden, target, tokens, smoothing)):
        assert measured.tokens == tokens
        torch.testing.assert_close(measured.loss, expected.detach(), rtol=0, atol=1e-10)
        torch.testing.assert_close(measured.nll, nll.detach(), rtol=0, atol=1e-10)
        best = layer(hidden).argmax(-1)
        assert int(measured.correct) == int(((best == target) & (target != PAD)).sum())


def agreeing(logits: Tensor, target: Tensor, smoothing: float, alpha: float) -> tuple[Tensor, Tensor]:
    """Half of R-Drop's loss as its paper has it, from the logits (2B, T, V) of two passes and target (B, T); the mean nll."""
    real = target != PAD
    one, other = (each[real].log_softmax(-1) for each in logits.chunk(2))
    gold = target[real]
    entropy = sum(nn.functional.cross_entropy(each, gold, reduction="sum", label_smoothing=smoothing) for each in (one, other))
    nll = sum(nn.functional.nll_loss(each, gold, reduction="sum") for each in (one, other))
    apart = [nn.functional.kl_div(q, p, reduction="sum", log_target=True) for p, q in ((one, other), (other, one))]
    return (entropy + alpha * sum(apart) / 2) / 2, nll / 2  # type: ignore[return-value]


@pytest.mark.parametrize("rows", [1, 5, 100])
@pytest.mark.parametrize("alpha", [0.5, 5.0])
def test_r_drop_is_the_formula_and_so_is_its_gradient(alpha: float, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "CHUNK", {"cpu": rows * V})
    layer, hidden, target, tokens = case()
    both = torch.cat((hidden, hidden + 0.3 * torch.randn_like(hidden))).detach().requires_grad_()
    expected, nll = agreeing(layer(both), target, 0.1, alpha)
    wanted = torch.autograd.grad(expected, [both, layer.weight, layer.bias])

    sums = loss.backward(layer, both, target.repeat(2, 1), tokens, 0.1, 0.25, r_drop=alpha)
    for got, gradient in zip((both.grad, layer.weight.grad, layer.bias.grad), wanted, strict=True):
        assert got is not None
        torch.testing.assert_close(got, 0.25 * gradient, rtol=0, atol=1e-10)
    assert sums.tokens == tokens
    torch.testing.assert_close(sums.loss, expected.detach(), rtol=0, atol=1e-10)
    torch.testing.assert_close(sums.nll, nll.detach(), rtol=0, atol=1e-10)


def test_r_drop_of_two_passes_alike_changes_nothing() -> None:
    layer, hidden, target, tokens = case()
    alone = loss.backward(layer, hidden, target, tokens, 0.1, 1.0)
    both = torch.cat((hidden, hidden)).detach().requires_grad_()
    sums = loss.backward(layer, both, target.repeat(2, 1), tokens, 0.1, 1.0, r_drop=5.0)
    for name in ("loss", "nll", "correct"):
        assert float(getattr(sums, name)) == pytest.approx(float(getattr(alone, name)), rel=1e-12)
    assert both.grad is not None and hidden.grad is not None
    torch.testing.assert_close(sum(both.grad.chunk(2)), hidden.grad, rtol=0, atol=1e-12)


def test_r_drop_through_a_network_with_dropout(backend: str) -> None:
    """Every parameter's gradient is autograd's of the formula, with the same dropout."""
    model = network(backend, dropout=0.3).double().train()
    src, lengths = sources([5, 2, 4])
    target = torch.tensor([[4, 5, 6, 3], [7, 3, PAD, PAD], [8, 9, 3, PAD]])
    batch = Batch(src, lengths, prefixes(model, 3, 4), target, 9).twice()

    def hidden(model: Seq2Seq) -> Tensor:
        torch.manual_seed(7)
        model.zero_grad()
        states: Tensor = model(batch.src, batch.src_lengths, batch.prefix)
        return states

    states = hidden(model)
    assert not torch.equal(*states.chunk(2))
    expected, _ = agreeing(model.logits(states), target, 0.1, 5.0)
    expected.backward()  # type: ignore[no-untyped-call]
    wanted = {name: parameter.grad for name, parameter in model.named_parameters()}
    sums = loss.backward(model.logits, hidden(model), batch.target, 9, 0.1, 1.0, r_drop=5.0)
    assert float(sums.loss) == pytest.approx(float(expected.detach()), rel=1e-12)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name], rtol=1e-9, atol=1e-10)


@pytest.mark.usefixtures("small_chunks")
def test_padding_has_no_part_in_anything() -> None:
    layer, hidden, target, tokens = case()
    before = loss.backward(layer, hidden, target, tokens, 0.1, 1.0)
    padding = target == PAD
    assert hidden.grad is not None
    assert not hidden.grad[padding].any() and hidden.grad[~padding].any()
    changed = torch.where(padding[..., None], torch.full_like(hidden, 1e3), hidden.detach())
    after = loss.evaluate(layer, changed, target, tokens, 0.1)
    assert float(after.loss) == float(before.loss)


def test_the_whole_matrix_of_logits_never_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, hidden, target, tokens = case()
    monkeypatch.setattr(loss, "CHUNK", {"cpu": 3 * V})
    rows: list[int] = []

    def logits(states: Tensor) -> Tensor:
        rows.append(len(states))
        return layer(states)

    loss.backward(logits, hidden, target, tokens, 0.1, 1.0)
    assert rows[0] == 1  # a look at the size of the vocabulary
    assert max(rows) == 3 and sum(rows[1:]) == tokens
    rows.clear()
    loss.backward(logits, torch.cat((hidden, hidden)), target.repeat(2, 1), tokens, 0.1, 1.0, r_drop=5.0)
    assert rows[0] == 1 and max(rows) == 2 and sum(rows[1:]) == 2 * tokens


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_sure_and_hopeless_logits_stay_finite(scale: float) -> None:
    """Where the gold token's probability is below the smallest float, nll is still the difference of logits."""
    logits = torch.zeros(2, V)
    logits[:, 4] = scale
    hidden = torch.zeros(1, 2, D, requires_grad=True)

    def fixed(states: Tensor) -> Tensor:
        return logits[: len(states)] + states.sum(-1, keepdim=True)

    sums = loss.backward(fixed, hidden, torch.tensor([[4, 5]]), 2, 0.0, 1.0)
    expected = nn.functional.cross_entropy(logits.double(), torch.tensor([4, 5]), reduction="sum")
    assert float(sums.nll) == pytest.approx(float(expected), rel=1e-6)
    assert hidden.grad is not None and hidden.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_the_loss_in_float32(dtype: torch.dtype) -> None:
    layer, hidden, target, tokens = case()
    layer, states = layer.float(), hidden.detach().float().requires_grad_()

    def logits(rows: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=dtype):
            return layer(rows)

    assert logits(states).dtype == dtype
    expected, _ = plain(layer.double(), hidden, target, 0.1)
    layer.float()
    sums = loss.backward(logits, states, target, tokens, 0.1, 1.0)
    assert float(sums.loss) == pytest.approx(float(expected.detach()), rel=1e-2)
    assert states.grad is not None and states.grad.dtype == torch.float32
    gradient = torch.autograd.grad(expected, hidden)[0].float()
    torch.testing.assert_close(states.grad, gradient, rtol=0.05, atol=0.02)


def accumulated(micro_batches: list[slice], weight: Callable[[int], float]) -> list[Tensor]:
    """Gradients after the rows of `micro_batches` went through one after the other, weighted as `weight` of their tokens says."""
    layer, hidden, target, _ = case()
    for rows in micro_batches:
        tokens = int((target[rows] != PAD).sum())
        loss.backward(layer, hidden[rows], target[rows], tokens, 0.1, weight(tokens))
    assert hidden.grad is not None and layer.weight.grad is not None
    return [hidden.grad, layer.weight.grad]


@pytest.mark.usefixtures("small_chunks")
def test_micro_batches_of_unequal_lengths_add_up_to_the_big_batch() -> None:
    tokens = case()[3]
    whole = accumulated([slice(0, 5)], lambda _: 1 / tokens)
    parts = accumulated([slice(0, 1), slice(1, 3), slice(3, 5)], lambda _: 1 / tokens)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
