"""Linear layers in integers of 8 bits, for translation on a CPU: a seventh of the time of float32, a little less exact.

Each row of a weight and each row of an input is scaled by itself so that its largest number becomes ±127 (Jacob et al. 2017, arXiv
1712.05877, with a scale for each row and none for zero). The products are summed up in 32 bits, without rounding: no bit of a row
depends on its company, in a kernel of whatever shape.

Legend: R rows, n features in, m features out.
"""

import torch
from torch import Tensor, nn

from nmt.models.base import Linear, replace_linear

LARGEST = 127


class IntegerLinear(nn.Module):
    """What `linear` computes, in integers. It has no parameters: nothing can be trained."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        weight, scale = quantized(linear.weight.detach())
        self.register_buffer("weight", weight)  # (m, n)
        self.register_buffer("scale", scale.squeeze(1))  # (m,)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach())

    def forward(self, input: Tensor) -> Tensor:
        """input (..., n) -> (..., m), float32."""
        rows, scale = quantized(input.reshape(-1, input.shape[-1]))
        # In place: a product of integers and floats takes twice as long as to make floats of them first.
        output = torch._int_mm(rows, self.weight.t()).float().mul_(self.scale).mul_(scale)
        if self.bias is not None:
            output += self.bias
        return output.view(*input.shape[:-1], len(self.weight))


def quantized(rows: Tensor) -> tuple[Tensor, Tensor]:
    """rows (R, n) -> int8 (R, n) and a scale (R, 1) such that their product is rows, to rounding."""
    scale = rows.abs().amax(1, keepdim=True) / LARGEST
    return (rows / scale.clamp_min(torch.finfo(scale.dtype).tiny)).round_().to(torch.int8), scale


def available() -> bool:
    """Whether this CPU multiplies such integers fast; without such instructions float32 is many times faster."""
    return torch.cpu._is_vnni_supported()


def quantize(model: nn.Module) -> None:
    """Replace all linear layers of `model` but those of one input or output, which are no matrices. Attention stays as it is."""
    replace_linear(model, IntegerLinear)
