"""Integer layers against the real numbers that their integers stand for, and against the layers that they replace."""

from fractions import Fraction

import pytest
import torch

from nmt.models import BACKENDS
from nmt.models.base import Linear, Seq2Seq
from nmt.models.quantized import IntegerLinear, quantize, quantized
from tests.conftest import network, prefixes, sources


def test_a_row_is_rounded_to_its_own_scale() -> None:
    rows = torch.tensor([[1.0, -0.25, 0.5], [0.0, 0.0, 0.0], [-254.0, 1.0, 3.1]])
    integers, scale = quantized(rows)
    assert integers.tolist() == [[127, -32, 64], [0, 0, 0], [-127, 0, 2]]
    assert scale.flatten().tolist() == pytest.approx([1 / 127, 0, 2])


@pytest.mark.parametrize("bias", [False, True])
def test_the_product_is_that_of_the_rounded_numbers(bias: bool) -> None:
    torch.manual_seed(0)
    linear = Linear(70, 9, bias=bias)
    rows = torch.randn(11, 70) * torch.logspace(-20, 10, 11).unsqueeze(1)
    found = IntegerLinear(linear)(rows)
    (left, left_scale), (right, right_scale) = quantized(rows), quantized(linear.weight.detach())
    for row in range(11):
        for column in range(9):
            whole = sum(a * b for a, b in zip(left[row].tolist(), right[column].tolist(), strict=True))
            exact = whole * Fraction(left_scale[row].item()) * Fraction(right_scale[column].item())
            exact += Fraction(linear.bias[column].item()) if bias else 0
            assert found[row, column].item() == pytest.approx(float(exact), rel=1e-6, abs=1e-30)


def test_it_is_near_the_layer_it_replaces() -> None:
    torch.manual_seed(0)
    linear = Linear(512, 300)
    rows = torch.randn(4, 5, 512)
    found, right = IntegerLinear(linear)(rows), linear(rows).detach()
    assert found.shape == right.shape
    assert (found - right).square().mean() < 1e-4 * right.square().mean()


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 9, 31])
def test_no_bit_depends_on_other_rows(rows: int) -> None:
    torch.manual_seed(0)
    layer = IntegerLinear(Linear(128, 501))
    everything = torch.randn(40, 128)
    assert torch.equal(layer(everything[:rows]), layer(everything)[:rows])


def test_what_is_no_number_stays_none() -> None:
    layer = IntegerLinear(Linear(4, 3))
    found = layer(torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, torch.nan, 3.0, 4.0]]))
    assert found[0].isfinite().all() and found[1].isnan().all()


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_a_whole_network(backend: str) -> None:
    model: Seq2Seq = network(backend).eval()
    src, lengths = sources([5, 9])
    prefix = prefixes(model, 2, 6)
    with torch.inference_mode():
        right = model.log_probs(model(src, lengths, prefix))
        quantize(model)
        found = model.log_probs(model(src, lengths, prefix))
    assert not any(isinstance(each, Linear) and each.out_features > 1 for each in model.modules())
    assert 0 < (found - right).abs().max() < 0.3


def test_a_network_of_one_number() -> None:
    """torch 2.13 multiplies integers wrongly where there is one input."""
    integers = network("rnn", width=1, embedding=1)
    quantize(integers)
    src, lengths = sources([4, 2])
    prefix = prefixes(integers, 2, 3)
    with torch.inference_mode():
        right = network("rnn", width=1, embedding=1)(src, lengths, prefix)
        torch.testing.assert_close(integers(src, lengths, prefix), right, atol=0.02, rtol=0)
