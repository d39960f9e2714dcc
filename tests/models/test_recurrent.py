"""Loops over time against torch's fused layers, values and gradients, and against finite differences; what padding may touch."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from nmt.models.recurrent import CELLS, Recurrent

INPUTS, WIDTH = 5, 6
LENGTHS = [4, 7, 1, 7, 2]


def layers(cell: str, number: int, bidirectional: bool, dtype: torch.dtype = torch.float64) -> Recurrent:
    torch.manual_seed(3)
    recurrent = Recurrent(CELLS[cell], INPUTS, WIDTH, number, bidirectional, dropout=0.0).to(dtype)
    for parameter in recurrent.parameters():
        nn.init.normal_(parameter, std=0.4)
    return recurrent


def example(recurrent: Recurrent, rows: int, size: int) -> tuple[Tensor, Tensor]:
    """Inputs (R, T, i) and a state before the first, both leaves."""
    dtype = next(recurrent.parameters()).dtype
    parts = CELLS["lstm"].parts if isinstance(recurrent.layers, nn.LSTM) else 1
    states = recurrent.layers.num_layers * recurrent.directions
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(rows, size, INPUTS, generator=generator, dtype=torch.float64)
    state = torch.randn(1, states, parts, WIDTH, generator=generator, dtype=torch.float64)  # one for all rows: a learned one
    return inputs.to(dtype).requires_grad_(), state.to(dtype).requires_grad_()


def fused(recurrent: Recurrent, inputs: Tensor, length: int, state: Tensor) -> tuple[Tensor, Tensor]:
    """What torch makes of one row of its own length: outputs (1, T, ·) and last state (1, layers · directions, P, d)."""
    before = state.permute(2, 1, 0, 3).contiguous()
    lstm = isinstance(recurrent.layers, nn.LSTM)
    outputs, last = recurrent.layers(inputs[:, :length], (before[0], before[1]) if lstm else before[0])
    return outputs, torch.stack(last if lstm else (last,)).permute(2, 1, 0, 3)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-5)])
@pytest.mark.parametrize(("cell", "number", "bidirectional"), [*itertools.product(CELLS, [1, 3], [True, False])])
def test_loops_equal_torchs_layers(cell: str, number: int, bidirectional: bool, dtype: torch.dtype, tolerance: float) -> None:
    """Each row of a padded batch is what torch makes of it alone; so are the gradients of all parameters, inputs and states."""
    recurrent = layers(cell, number, bidirectional, dtype)
    inputs, state = example(recurrent, len(LENGTHS), max(LENGTHS))
    leaves = [inputs, state, *recurrent.parameters()]
    found, last = recurrent.padded(inputs, torch.tensor(LENGTHS), state.expand(len(LENGTHS), -1, -1, -1))
    assert found.shape == (len(LENGTHS), max(LENGTHS), WIDTH * (1 + bidirectional))
    assert found.isfinite().all()
    upstream = torch.randn(found.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)
    found_sum = last.square().sum()
    expected_sum = torch.zeros((), dtype=dtype)
    for row, length in enumerate(LENGTHS):
        outputs, after = fused(recurrent, inputs[row : row + 1], length, state)
        torch.testing.assert_close(found[row : row + 1, :length], outputs, rtol=0, atol=tolerance)
        torch.testing.assert_close(last[row : row + 1], after, rtol=0, atol=tolerance)
        found_sum = found_sum + (found[row, :length] * upstream[row, :length]).sum()
        expected_sum = expected_sum + (outputs[0] * upstream[row, :length]).sum() + after.square().sum()
    for ours, theirs in zip(torch.autograd.grad(found_sum, leaves), torch.autograd.grad(expected_sum, leaves), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("cell", CELLS)
def test_forward_reads_every_position(cell: str) -> None:
    recurrent = layers(cell, 2, False)
    inputs, state = example(recurrent, 3, 4)
    state = state.expand(3, -1, -1, -1)
    for ours, theirs in zip(recurrent(inputs, state), recurrent.padded(inputs, torch.tensor([4] * 3), state), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("cell", "bidirectional"), [*itertools.product(CELLS, [True, False])])
def test_gradient_equals_finite_differences(cell: str, bidirectional: bool) -> None:
    recurrent = layers(cell, 2, bidirectional)
    inputs, state = example(recurrent, 2, 3)
    names, parameters = zip(*recurrent.named_parameters(), strict=True)

    def run(inputs: Tensor, state: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        arguments = (inputs, torch.tensor([3, 2]), state.expand(2, -1, -1, -1))
        recurrent.forward = recurrent.padded  # type: ignore[assignment, method-assign]  # what functional_call calls
        found = torch.func.functional_call(recurrent, dict(zip(names, parameters, strict=True)), arguments)
        return found[0][0], found[1]

    assert torch.autograd.gradcheck(run, (inputs, state, *(each.detach().requires_grad_() for each in parameters)))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("width", [7, 33, 64])
def test_in_evaluation_no_bit_depends_on_company_or_padding(cell: str, width: int) -> None:
    """A row of 3 positions alone, among others, and with more padding than it needs."""
    torch.manual_seed(1)
    recurrent = Recurrent(CELLS[cell], INPUTS, width, 2, True, dropout=0.5).eval()
    inputs, state = torch.randn(40, 8, INPUTS), torch.randn(40, 4, CELLS[cell].parts, width)
    lengths = torch.tensor([3, 8, 1, 5] * 10)
    with torch.inference_mode():
        whole, last = recurrent.padded(inputs, lengths, state)
        for rows in ([0], [1], [0, 4, 8], [2, 1], list(range(3, 30))):
            size = int(lengths[rows].max())
            for kept in {size, 8}:
                found, after = recurrent.padded(inputs[rows, :kept], lengths[rows], state[rows])
                assert torch.equal(after, last[rows])
                for own, other, length in zip(found, whole[rows], lengths[rows], strict=True):
                    assert torch.equal(own[:length], other[:length])


def test_what_stands_in_the_padding_changes_nothing() -> None:
    recurrent = layers("gru", 2, True).train()
    inputs, state = example(recurrent, 2, 6)
    state = state.expand(2, -1, -1, -1)
    other = inputs.detach().clone()
    other[1, 2:] = 1e3
    for ours, theirs in zip(*(recurrent.padded(each, torch.tensor([6, 2]), state) for each in (inputs, other)), strict=True):
        assert torch.equal(ours, theirs)


def test_dropout_stands_between_layers_only() -> None:
    torch.manual_seed(0)
    for number in (1, 2):
        recurrent = Recurrent(CELLS["gru"], INPUTS, 50, number, True, dropout=0.5).train()
        inputs, state = torch.randn(4, 5, INPUTS), torch.zeros(4, 2 * number, 1, 50)
        first, second = (recurrent(inputs, state)[0] for _ in range(2))
        assert torch.equal(first, second) == (number == 1)
        assert torch.equal(*(recurrent.eval()(inputs, state)[0] for _ in range(2)))
        assert first.ne(0).all(), "the outputs themselves are not dropped"
