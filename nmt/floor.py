"""The floor under a computation's time: the FLOPs of its matrix products, over those that the machine makes in a second."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from nmt.console import seconds
from nmt.models.product import linear

_aten = torch.ops.aten

FORMULAS: dict[Any, Callable[..., int]] = {
    **flop_registry,
    # torch knows the formula, but not that this kernel has it too: as if every query saw every key.
    _aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[_aten._scaled_dot_product_flash_attention],
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[_aten._scaled_dot_product_flash_attention_backward],
    _aten._int_mm: flop_registry[_aten.mm],
    torch.ops.mkldnn._linear_pointwise: lambda input, weight, *_, out_val: 2 * input.numel() * len(weight),
}

RECURRENT: dict[Any, int] = {_aten._cudnn_rnn: 2, _aten._cudnn_rnn_backward: 4}
"""Fused recurrent layers, which torch does not count: FLOPs for each weight and position."""

SIZE = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the product that is measured."""
LEAST_TIMES, LEAST_SECONDS = 5, 1.0


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # as torch has it
    """Counts the FLOPs of the matrix products that run within it: 2·n·k·m for (n, k) times (k, m), attention's included.

    torch's own counter follows the modules as well, and fails where a graph ends in chunks, as the loss's does.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        packet = func.overloadpacket
        formula = FORMULAS.get(packet)
        if formula is None and packet not in RECURRENT:
            with self:  # without autograd, operations come here before they are taken apart
                result = func.decompose(*args, **named)
            if result is not NotImplemented:
                return result
        result = func(*args, **named)
        if formula is not None:
            self.flops += formula(*args, **named, out_val=result)
        elif packet in RECURRENT:
            inputs, weights = args[:2]
            positions = inputs.numel() // inputs.shape[-1]
            self.flops += RECURRENT[packet] * positions * sum(weight.numel() for weight in weights if weight.dim() == 2)
        return result


def wait_for(device: torch.device) -> None:
    """Until `device` has done all that it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def gemm_rate(device: torch.device, precision: torch.dtype) -> float:
    """FLOPs a second of a large matrix product in `precision`: the best of several, for what else runs can only slow it.

    In int8 they are operations on integers, summed up in 32 bits.
    """
    size = SIZE[device.type]
    left, right = torch.rand(2, size, size, device=device).to(precision).unbind()
    product: Callable[[Tensor, Tensor], Tensor] = torch._int_mm if precision == torch.int8 else linear
    best, times, began = math.inf, 0, seconds()
    while times < LEAST_TIMES or seconds() - began < LEAST_SECONDS:
        wait_for(device)
        start = seconds()
        product(left, right)
        wait_for(device)
        best, times = min(best, seconds() - start), times + 1
    return 2 * size**3 / best
