"""NumPy or PyTorch, whichever the arrays of a calculation belong to: written once, it runs on a CPU without PyTorch, or on a GPU.

Only functions are used that have one name, one order of arguments and one meaning in both libraries.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = Any
"""An array of NumPy or a tensor of PyTorch."""


@dataclass(frozen=True)
class Arrays:
    """Where arrays lie, and the library that computes with them there."""

    library: Any
    device: Any
    """PyTorch's; None for NumPy."""

    @staticmethod
    def on(device: str | None) -> "Arrays":
        """PyTorch on that device; NumPy for None."""
        if device is None:
            return Arrays(np, None)
        import torch

        return Arrays(torch, torch.device(device))

    def put(self, array: NDArray[Any]) -> Array:
        """The same numbers there."""
        return array if self.device is None else self.library.from_numpy(array).to(self.device)

    def get(self, array: Array) -> NDArray[Any]:
        """The same numbers as an array of NumPy."""
        found: NDArray[Any] = array if self.device is None else array.cpu().numpy()
        return found
