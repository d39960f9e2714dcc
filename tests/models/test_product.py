"""The product of a linear layer against torch's own, gradients and strides included; its rows do not depend on each other."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.models import product

needs_onednn = pytest.mark.skipif(not product.available(), reason="torch has no oneDNN for this processor")


def contiguous(*shape: int) -> Tensor:
    return torch.randn(*shape)


def with_gaps(*shape: int) -> Tensor:
    return torch.randn(*shape[:-1], 2 * shape[-1])[..., shape[-1] :]


def transposed(*shape: int) -> Tensor:
    return torch.randn(*reversed(shape)).permute(*reversed(range(len(shape))))


@pytest.mark.parametrize("layout", [contiguous, with_gaps, transposed])
@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 5), (1, 5), (0, 5)])
@pytest.mark.parametrize("outputs", [1, 4, 9])
@pytest.mark.parametrize("with_bias", [True, False])
def test_value_and_gradients_are_those_of_float64(layout, shape, outputs: int, with_bias: bool) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    input, weight = layout(*shape), layout(outputs, shape[-1])
    bias = torch.randn(outputs) if with_bias else None
    leaves = [each.requires_grad_() for each in (input, weight, bias) if each is not None]
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    found = product.linear(leaves[0], leaves[1], leaves[2] if with_bias else None)
    right = F.linear(wide[0], wide[1], wide[2] if with_bias else None)
    torch.testing.assert_close(found.double(), right, rtol=1e-4, atol=1e-5)
    gradient = layout(*found.shape)
    found_gradients = torch.autograd.grad(found, leaves, gradient)
    right_gradients = torch.autograd.grad(right, wide, gradient.double())
    for left, other in zip(found_gradients, right_gradients, strict=True):
        torch.testing.assert_close(left.double(), other, rtol=1e-4, atol=1e-5)


def test_gradients_that_nobody_asks_for_are_not_made() -> None:
    weight = torch.randn(4, 5, requires_grad=True)
    output = product.linear(torch.randn(3, 5), weight)
    (gradient,) = torch.autograd.grad(output.sum(), [weight])
    assert gradient.shape == weight.shape
    input = torch.randn(3, 5, requires_grad=True)
    (gradient,) = torch.autograd.grad(product.linear(input, weight.detach()).sum(), [input])
    torch.testing.assert_close(gradient, weight.detach().sum(0).expand(3, -1))


def test_other_types_and_autocast_are_torchs() -> None:
    input, weight = torch.randn(3, 5), torch.randn(4, 5)
    assert torch.equal(product.linear(input.double(), weight.double()), F.linear(input.double(), weight.double()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert product.linear(input, weight).dtype == torch.bfloat16


@needs_onednn
@pytest.mark.parametrize("outputs", [1, 7, 64, 384, 1001])
@pytest.mark.parametrize("inputs", [3, 64, 100, 512, 2048])
@torch.inference_mode()
def test_a_row_depends_neither_on_the_others_nor_on_threads(inputs: int, outputs: int) -> None:
    torch.manual_seed(0)
    choose = random.Random(f"{inputs} {outputs}")
    input, weight, bias = torch.randn(300, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    whole = product.linear(input, weight, bias)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            for rows in (2, 3, *(choose.randrange(4, 300) for _ in range(4))):
                first = choose.randrange(301 - rows)
                part = slice(first, first + rows)
                assert torch.equal(product.linear(input[part], weight, bias), whole[part]), (count, rows)
    finally:
        torch.set_num_threads(threads)
