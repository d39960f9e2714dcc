"""tanh and the logistic function against float64, their gradients, and their bits in whatever company."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.models.activation import sigmoid, tanh

PAIRS = [(tanh, torch.tanh), (sigmoid, torch.sigmoid)]
Function = Callable[[Tensor], Tensor]


@pytest.mark.parametrize(("ours", "right"), PAIRS)
def test_value_and_gradient_are_those_of_float64(ours: Function, right: Function) -> None:
    torch.manual_seed(0)
    x = torch.cat([torch.randn(3, 41) * 4, torch.randn(3, 41) * 1e-4, torch.full((3, 2), 200.0), torch.full((3, 2), -200.0)], 1)
    wide = x.double().requires_grad_()
    x.requires_grad_()
    found, expected = ours(x), right(wide)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=2e-7)
    upstream = torch.randn(x.shape)
    (gradient,) = torch.autograd.grad(found, x, upstream)
    (expected_gradient,) = torch.autograd.grad(expected, wide, upstream.double())
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("ours", "right"), PAIRS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types(ours: Function, right: Function, dtype: torch.dtype) -> None:
    x = torch.randn(5, 7, dtype=torch.float64).to(dtype)
    torch.testing.assert_close(ours(x), right(x))
    assert ours(x[:0]).shape == (0, 7)


@pytest.mark.parametrize(("ours", "right"), PAIRS)
def test_what_is_no_number_stays_so(ours: Function, right: Function) -> None:
    assert ours(torch.tensor([torch.nan, 1.0])).isnan().tolist() == [True, False]


@pytest.mark.parametrize("ours", [tanh, sigmoid])
@pytest.mark.parametrize("width", [1, 7, 20, 64, 1000])
def test_a_row_depends_neither_on_the_others_nor_on_threads(ours: Function, width: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(300, 2 * width)[:, width:] * 3
    threads = torch.get_num_threads()
    try:
        with torch.inference_mode():
            whole = ours(x)
            for count in (1, 2):
                torch.set_num_threads(count)
                for first, end in ((0, 1), (0, 2), (1, 4), (7, 40), (3, 299), (0, 300)):
                    assert torch.equal(ours(x[first:end]), whole[first:end]), (count, first, end)
    finally:
        torch.set_num_threads(threads)
