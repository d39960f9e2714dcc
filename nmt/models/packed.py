"""Linear layers whose weights are laid out for oneDNN once, for translation on a CPU: a third of the time at a few rows.

Bits are those of `Linear`.
"""

from torch import Tensor, nn

from nmt.models import product
from nmt.models.base import Linear, replace_linear


class PackedLinear(nn.Module):
    """What `linear` computes. It has no parameters: nothing can be trained."""

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        self.weight = product.packed(linear.weight)
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, input: Tensor) -> Tensor:
        """input (..., n) -> (..., m)."""
        return product.by_rows(input, self.weight, self.bias)


def pack(model: nn.Module) -> None:
    """Replace all linear layers of `model` but those with one input or output, where oneDNN is available."""
    if product.available():
        replace_linear(model, PackedLinear)
