"""Recurrent layers over whole sequences: torch's fused ones on a GPU, loops over time with products in oneDNN on a CPU.

Legend: R rows, T positions, d width, i features in, G gates of a cell, P parts of its state (LSTM: output and memory cell, others:
output).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.models import base, product, steps
from nmt.models.activation import sigmoid, tanh

# A cell: gates from the input (R, Gd), gates from the last output (R, Gd), parts of the last state -> those of the next, each
# (R, d). Part 0 is the output h. The order of the gates is that of torch's fused layers.
Parts = tuple[Tensor, ...]


def _vanilla(inputs: Tensor, hidden: Tensor, state: Parts) -> Parts:
    return (tanh(inputs + hidden),)


def _gated(inputs: Tensor, hidden: Tensor, state: Parts) -> Parts:
    (last,) = state
    width = last.shape[-1]
    inputs, proposal = torch.split(inputs, 2 * width, -1)
    hidden, past = torch.split(hidden, 2 * width, -1)
    reset, update = sigmoid(inputs + hidden).chunk(2, -1)
    return (torch.lerp(tanh(torch.addcmul(proposal, reset, past)), last, update),)


def _long_short(inputs: Tensor, hidden: Tensor, state: Parts) -> Parts:
    enter, forget, proposal, leave = (inputs + hidden).chunk(4, -1)
    memory = sigmoid(forget) * state[1] + sigmoid(enter) * tanh(proposal)
    return sigmoid(leave) * tanh(memory), memory


@dataclass(frozen=True)
class Cell:
    """A recurrent unit: torch's fused layers, one step of it, and its sizes."""

    fused: type[nn.RNN] | type[nn.GRU] | type[nn.LSTM]
    advance: Callable[[Tensor, Tensor, Parts], Parts]
    gates: int
    parts: int


CELLS = {
    "rnn": Cell(nn.RNN, _vanilla, gates=1, parts=1),
    "gru": Cell(nn.GRU, _gated, gates=3, parts=1),
    "lstm": Cell(nn.LSTM, _long_short, gates=4, parts=2),
}


def orthogonal(weight: Tensor, width: int) -> None:
    """One orthogonal matrix a gate: a step then neither shrinks nor stretches a state (Bahdanau 2014, B.1)."""
    for gate in weight.chunk(len(weight) // width):
        nn.init.orthogonal_(gate)


class Recurrent(nn.Module):
    """Layers of a cell over whole sequences; a state (R, layers · directions, P, d) has the batch first.

    torch's module owns the parameters. On a CPU in evaluation no bit of a row depends on the other rows, nor on what follows it.
    """

    def __init__(self, cell: Cell, inputs: int, width: int, layers: int, bidirectional: bool, dropout: float) -> None:
        super().__init__()
        self.layers = cell.fused(
            inputs,
            width,
            layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if layers > 1 else 0.0,
        )
        self.cell = cell
        self.directions = 1 + bidirectional
        self.dropout = base.Dropout(dropout)
        for name, parameter in self.layers.named_parameters():
            if name.startswith("weight_hh"):
                orthogonal(parameter, width)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """inputs (R, T, i), state before the first -> outputs (R, T, d · directions) and the state after the last."""
        if inputs.device.type == "cpu":
            return self._loops(inputs, [inputs.shape[1]] * len(inputs), state)
        return self._fused(inputs, state)

    def padded(self, inputs: Tensor, lengths: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """As `forward`, over the first `lengths[i]` ≥ 1 positions of row i only; last states are the last real ones."""
        if inputs.device.type == "cpu":
            return self._loops(inputs, lengths.tolist(), state)
        packed = pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
        packed, last = self._fused(packed, state)
        outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=inputs.shape[1])
        return outputs, last

    def _fused(self, inputs: Any, state: Tensor) -> tuple[Any, Tensor]:
        """`inputs`, and with them the outputs, are packed or not."""
        state = state.permute(2, 1, 0, 3).contiguous()
        outputs, last = self.layers(inputs, (state[0], state[1]) if self.cell.parts == 2 else state[0])
        return outputs, torch.stack(last if self.cell.parts == 2 else (last,)).permute(2, 1, 0, 3)

    def _loops(self, inputs: Tensor, lengths: list[int], state: Tensor) -> tuple[Tensor, Tensor]:
        inputs, last = inputs.transpose(0, 1).contiguous(), []
        weights = self.layers.all_weights
        for first in range(0, len(weights), self.directions):
            if first:
                inputs = self.dropout(inputs)
            directions = []
            for number in range(first, first + self.directions):
                outputs, after = self._loop(inputs, lengths, state[:, number], weights[number], backwards=number > first)
                directions.append(outputs)
                last.append(after)
            inputs = torch.cat(directions, -1)
        return inputs.transpose(0, 1), torch.stack(last, 1)

    def _loop(
        self, inputs: Tensor, lengths: list[int], state: Tensor, weights: Sequence[Tensor], backwards: bool
    ) -> tuple[Tensor, Tensor]:
        """One direction of one layer: inputs (T, R, i), state (R, P, d) -> outputs (T, R, d), the state after the last.

        Where a row has no position, its state stays: read backwards, it begins at its last one.
        """
        input_weight, hidden_weight, input_bias, hidden_bias = weights
        multiply = product.linear if self.training else product.by_rows
        gates = multiply(inputs, input_weight, input_bias).unbind(0)
        hidden = steps.weighted(multiply, hidden_weight, hidden_bias, len(gates))
        parts = state.to(gates[0].dtype).unbind(1)
        shortest, sizes = min(lengths), torch.tensor(lengths).unsqueeze(1)
        outputs: list[Tensor] = []
        for position in reversed(range(len(gates))) if backwards else range(len(gates)):
            following = self.cell.advance(gates[position], hidden(parts[0]), parts)
            if position >= shortest:
                real = sizes > position
                following = tuple(torch.where(real, new, old) for new, old in zip(following, parts, strict=True))
            parts = following
            outputs.append(parts[0])
        return torch.stack(outputs[::-1] if backwards else outputs), torch.stack(parts, 1)
