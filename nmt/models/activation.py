"""tanh and the logistic function, in the fastest kernel at hand of which no bit depends on where in a tensor a number stands.

torch's tanh runs in MKL on x86 CPUs and takes 2 ns a number on those not of its maker's; oneDNN's takes a fifth, its copies
included (Zen 5). torch's sigmoid is as fast, but rounds the last few numbers of a tensor otherwise than those before them: with a
width such as 1000 a row's bits would depend on the rows beside it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.models import product


def tanh(x: Tensor) -> Tensor:
    """Of each number; differentiable once."""
    if not product.suited(x):
        return torch.tanh(x)
    output: Tensor = _Activation.apply(x, torch.tanh, torch.ops.aten.tanh_backward)  # type: ignore[no-untyped-call]
    return output


def sigmoid(x: Tensor) -> Tensor:
    """Of each number; differentiable once."""
    if not product.suited(x):
        return torch.tanh(x * 0.5) * 0.5 + 0.5
    output: Tensor = _Activation.apply(x, torch.sigmoid, torch.ops.aten.sigmoid_backward)  # type: ignore[no-untyped-call]
    return output


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, function: Callable[[Tensor], Tensor], derivative: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        output = function(x.contiguous().to_mkldnn()).to_dense()
        ctx.save_for_backward(output)
        ctx.derivative = derivative
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.derivative(gradient, *ctx.saved_tensors), None, None
