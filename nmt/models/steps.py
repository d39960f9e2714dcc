"""Products with one factor at every step of a loop: its gradient is one product of all steps, not the sum of many small ones.

Within the loop the factor is a constant. What a step makes gets a zero added, whose gradient is that of the step's product; the
zeros of all steps come of one node of the graph, to which their gradients go together.

Legend: B sentences, K rows of each, n features in, m features out.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.models import product

Multiply = Callable[[Tensor], Tensor]
"""left (..., n) -> (..., m)."""


def linear(layer: nn.Linear, steps: int) -> Multiply:
    """`layer` at each of so many steps."""
    return weighted(product.linear, layer.weight, layer.bias, steps) if _pays(layer.weight) else layer


def weighted(
    multiply: Callable[[Tensor, Tensor, Tensor | None], Tensor], weight: Tensor, bias: Tensor | None, steps: int
) -> Multiply:
    """`multiply(left, weight, bias)`, which is `left weightᵀ + bias`, at each of so many steps."""
    if not _pays(weight):
        return lambda left: multiply(left, weight, bias)
    constant, shift = weight.detach(), None if bias is None else bias.detach()

    def gradients(lefts: Tensor, gradient: Tensor) -> list[Tensor]:
        rows = gradient.flatten(0, -2)
        of_weight = product.weight_gradient(lefts.flatten(0, -2), rows)
        return [of_weight] if bias is None else [of_weight, rows.sum(0)]

    factors = [weight] if bias is None else [weight, bias]
    return _Repeated(lambda left: multiply(left, constant, shift), gradients, factors, steps)


def batched(multiply: Callable[[Tensor, Tensor], Tensor], right: Tensor, steps: int) -> Multiply:
    """`multiply(left, right)`, the product of (B, K, n) and (B, n, m), at each of so many steps."""
    if not _pays(right):
        return lambda left: multiply(left, right)
    constant = right.detach()
    return _Repeated(
        lambda left: multiply(left, constant), lambda lefts, gradient: [lefts.transpose(1, 2) @ gradient], [right], steps
    )


def _pays(factor: Tensor) -> bool:
    """Not in translation; and on a GPU networks are compiled, which this is not made for."""
    return factor.requires_grad and torch.is_grad_enabled() and factor.device.type == "cpu" and not torch.compiler.is_compiling()


class _Repeated:
    """One product at each step, and the graph's node for all of them, made at the first."""

    def __init__(
        self, multiply: Multiply, gradients: Callable[[Tensor, Tensor], list[Tensor]], factors: list[Tensor], steps: int
    ) -> None:
        """`gradients`: of the factors, by the left sides and the products' gradients of all steps, side by side in rows."""
        self.multiply, self.gradients, self.factors, self.steps = multiply, gradients, factors, steps
        self.lefts: list[Tensor] = []
        self.zeros: Iterator[Tensor] = iter(())

    def __call__(self, left: Tensor) -> Tensor:
        result = self.multiply(left)
        if not self.lefts:
            self.zeros = iter(_Zeros.apply(self.steps, result, self.lefts, self.gradients, *self.factors))  # type: ignore[no-untyped-call]
        self.lefts.append(left.detach())  # with its graph, the node would hold itself
        return result + next(self.zeros)


class _Zeros(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, steps: int, like: Tensor, lefts: list[Tensor], gradients: Any, *factors: Tensor) -> tuple[Tensor, ...]:
        ctx.lefts, ctx.gradients = lefts, gradients
        zero = like.new_zeros(())
        return tuple(zero.expand(like.shape) for _ in range(steps))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, None, *ctx.gradients(torch.cat(ctx.lefts, -2).to(gradients[0].dtype), torch.cat(gradients, -2))
