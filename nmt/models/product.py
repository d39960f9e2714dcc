"""The product of a linear layer, in the fastest kernel at hand.

On x86 CPUs torch multiplies float32 matrices in MKL, whose kernels for processors not of its maker's stop at 256 bits: half of what
they can, or less (Zen 5, one core: 106 GFLOP/s, and 248 in oneDNN). oneDNN, which torch carries too, looks at the processor only.

Legend: R rows, n features in, m features out.
"""

import functools
import platform
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


@functools.cache
def available() -> bool:
    """Whether oneDNN is here, and is what torch would do well to use."""
    found: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return found and platform.machine().lower() in ("x86_64", "amd64")


def suited(input: Tensor) -> bool:
    """Whether oneDNN is to work on `input`. A compiled network is left to the compiler, which has its own ways."""
    return (
        not torch.compiler.is_compiling()
        and input.dtype == torch.float32
        and input.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and available()
        and input.numel() > 0
    )


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input Wᵀ + bias`: input (..., n), weight (m, n), bias (m,) -> (..., m); differentiable once."""
    return (_in_onednn if suited(input) else F.linear)(input, weight, bias)


ROWS = 8
"""Without oneDNN, what numbers of rows are filled up to a multiple of, so that one kernel serves all."""


def by_rows(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As `linear`, on a CPU; no output row depends, to the last bit, on how many other rows there are. `weight` may be `packed`.

    Products of a few rows run in other CPU kernels than those of many and round otherwise: with oneDNN a single one does (seen
    with torch 2.13, whatever the number of threads). So some rows are added.
    """
    rows = input.numel() // weight.shape[1]
    multiply, missing = (_in_onednn, max(0, 2 - rows)) if suited(input) else (F.linear, -rows % ROWS)
    if not missing:
        return multiply(input, weight, bias)
    filled = F.pad(input.reshape(rows, weight.shape[1]), (0, 0, 0, missing))
    return multiply(filled, weight, bias)[:rows].view(*input.shape[:-1], weight.shape[0])


def packed(weight: Tensor) -> Tensor:
    """`weight` (m, n) laid out once as oneDNN reads it, which for a few rows takes as long as their product. No gradients.

    Raises RuntimeError where oneDNN is not available.
    """
    output: Tensor = torch.ops.mkldnn._reorder_linear_weight.default(weight.detach())
    return output


def _in_onednn(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if not torch.is_grad_enabled():
        return _product(input.contiguous(), weight, bias)
    if len(weight) == 1:  # a matrix times a vector, whose gradients oneDNN makes in no good kernel
        return F.linear(input, weight, bias)
    output: Tensor = _Linear.apply(input.contiguous(), weight, bias)  # type: ignore[no-untyped-call]
    return output


def _product(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input (..., n), weight (m, n), each without gaps in memory, else oneDNN may take its slowest kernel; or transposed ones."""
    output: Tensor = torch.ops.mkldnn._linear_pointwise.default(input, weight, bias, "none", [], "")
    return output


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(input, weight)
        return _product(input, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight = ctx.saved_tensors
        gradient = gradient.contiguous()
        need_input, need_weight, need_bias = ctx.needs_input_grad
        rows = gradient.view(-1, gradient.shape[-1])
        return (
            _product(gradient, weight.t()) if need_input else None,
            weight_gradient(input.view(-1, input.shape[-1]), rows) if need_weight else None,
            rows.sum(0) if need_bias else None,
        )


def weight_gradient(input: Tensor, gradient: Tensor) -> Tensor:
    """input (R, n), gradient of its product (R, m), each without gaps in memory -> gradient of the weight (m, n)."""
    if not suited(input):
        return gradient.t() @ input
    # The fewer rows a result has, the faster: each is made of all of the other factor.
    flat = gradient.shape[1] <= input.shape[1]
    return _product(gradient.t(), input.t()) if flat else _product(input.t(), gradient.t()).t()
