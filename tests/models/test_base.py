"""What networks are made of: rows that do not depend on their number, and dropout."""

import pytest
import torch

from nmt.models.base import Dropout, Linear


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 11, 16])
@pytest.mark.parametrize("shape", [(64, 64), (128, 384), (512, 1001)])
def test_a_row_of_linear_does_not_depend_on_the_others(rows: int, shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    linear = Linear(*shape).eval()
    x = torch.randn(200, shape[0])
    assert torch.equal(linear(x[:rows]), linear(x)[:rows])
    assert torch.equal(linear(x[:rows].view(1, rows, -1)), linear(x[None])[:, :rows])


def test_linear_is_torchs() -> None:
    linear = Linear(6, 5)
    x = torch.randn(2, 3, 6)
    expected = x @ linear.weight.T + linear.bias
    torch.testing.assert_close(linear(x), expected)
    torch.testing.assert_close(linear.eval()(x), expected)
    assert linear(x[:0]).shape == (0, 3, 5)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.999])
def test_dropout_keeps_the_share_and_the_mean(share: float) -> None:
    torch.manual_seed(0)
    x = torch.full((1001, 301), 2.0, requires_grad=True)
    dropped = Dropout(share).train()(x)
    zeros = (dropped == 0).double()
    deviation = (share * (1 - share) / x.numel()) ** 0.5
    assert abs(zeros.mean() - share) < 4 * deviation + 2**-16
    kept = dropped[dropped != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 2 / (1 - share)), rtol=2**-16 / (1 - share), atol=0)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    torch.testing.assert_close(gradient * 2, dropped)
    # Neighbours fall independently of each other, in a row and in a column.
    for left, right in [(zeros[:, 1:], zeros[:, :-1]), (zeros[1:], zeros[:-1])]:
        assert abs((left * right).mean() - share**2) < 5 * deviation


def test_dropout_is_seeded_and_off_where_it_should_be() -> None:
    x = torch.randn(3, 7)
    drop = Dropout(0.5)
    torch.manual_seed(1)
    first = drop(x)
    second = drop(x)
    torch.manual_seed(1)
    assert torch.equal(drop(x), first)
    assert not torch.equal(first, second)
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(drop.eval()(x), x)
    assert drop.train()(x.to(torch.bfloat16)).dtype == torch.bfloat16
    assert drop(x[:0]).shape == (0, 7)
