"""Products in a loop: values and gradients are those of the plain ones; who has no gradient asks for none."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.models import product, steps

T, R, N, M = 4, 3, 5, 6


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def chained(multiply: steps.Multiply, first: Tensor, back: Tensor, size: int = T) -> list[Tensor]:
    """Products of a loop whose steps depend on those before."""
    left, found = first, []
    for _ in range(size):
        found.append(multiply(left))
        left = torch.tanh(found[-1] @ back)
    return found


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(R, N), (2, R, N)])
def test_a_linear_layer(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(N, M, bias=bias).double()
    first, back = rows(*shape), rows(M, N)
    leaves = [first, back, *layer.parameters()]
    found = torch.stack(chained(steps.linear(layer, T), first, back))
    right = torch.stack(chained(lambda left: F.linear(left, layer.weight, layer.bias), first, back))
    torch.testing.assert_close(found, right, rtol=0, atol=1e-12)
    upstream = torch.randn_like(found)
    for ours, theirs in zip(*(torch.autograd.grad(each, leaves, upstream) for each in (found, right)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_batched_products() -> None:
    torch.manual_seed(0)
    first, factor, back = rows(2, R, N), rows(2, N, M), rows(2, M, N)
    leaves = [first, factor, back]
    found = torch.stack(chained(steps.batched(torch.matmul, factor, T), first, back))
    right = torch.stack(chained(lambda left: left @ factor, first, back))
    torch.testing.assert_close(found, right, rtol=0, atol=1e-12)
    upstream = torch.randn_like(found)
    for ours, theirs in zip(*(torch.autograd.grad(each, leaves, upstream) for each in (found, right)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_a_step_whose_product_nobody_uses_counts_nothing() -> None:
    layer = nn.Linear(N, M).double()
    found = chained(steps.linear(layer, T), rows(R, N), rows(M, N))
    ours = torch.autograd.grad(found[1].sum(), layer.weight, retain_graph=True)
    again = torch.autograd.grad(found[1].sum(), layer.weight)
    assert torch.equal(*ours, *again)
    assert torch.autograd.grad(found[0].sum(), layer.bias)[0].tolist() == [R] * M


def test_float32_is_that_of_float64() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(64, 32)
    wide = nn.Linear(64, 32).double()
    wide.load_state_dict(layer.state_dict())
    lefts = [torch.randn(7, 64) for _ in range(T)]
    multiply, other = steps.linear(layer, T), steps.linear(wide, T)
    torch.stack([multiply(left).square() for left in lefts]).sum().backward()
    torch.stack([other(left.double()).square() for left in lefts]).sum().backward()
    for ours, theirs in zip(layer.parameters(), wide.parameters(), strict=True):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-5, atol=1e-4)


def test_autocast() -> None:
    layer = nn.Linear(N, M)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        multiply = steps.linear(layer, T)
        found = [multiply(torch.randn(R, N)) for _ in range(T)]
    assert found[0].dtype == torch.bfloat16
    torch.stack(found).float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32
    assert layer.bias.grad.tolist() == [R * T] * M


def test_without_gradients_the_layer_itself_multiplies() -> None:
    layer, frozen = nn.Linear(N, M), nn.Linear(N, M).requires_grad_(False)
    assert steps.linear(frozen, T) is frozen
    with torch.no_grad():
        assert steps.linear(layer, T) is layer
        left, right = torch.randn(2, R, N), torch.randn(2, N, M, requires_grad=True)
        assert torch.equal(steps.batched(torch.matmul, right, T)(left), left @ right)
        assert torch.equal(steps.weighted(product.linear, layer.weight, None, T)(left), product.linear(left, layer.weight))


def test_a_graph_that_nobody_goes_back_through_is_freed() -> None:
    layer = nn.Linear(N, M).double()
    gc.disable()
    try:
        back = rows(M, N)
        found = chained(steps.linear(layer, T), rows(R, N), back)
        held = weakref.ref(back)
        del back
        assert held() is not None
        del found
        assert held() is None
    finally:
        gc.enable()
