"""Where a network computes, and in what: devices, CPU threads, and the precisions of translation."""

import re
from typing import Literal

import torch

from nmt.errors import NmtError, UsageError
from nmt.limits import MOST_THREADS
from nmt.models.base import Seq2Seq
from nmt.models.packed import pack
from nmt.models.quantized import available, quantize

Precision = Literal["float32", "bfloat16", "int8"]
"""What a network computes in."""


def choose_device(name: str) -> torch.device:
    """`auto` (a GPU where there is one), `cpu`, `cuda` or `cuda:N`; NmtError where that GPU is not there."""
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda" if available else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UsageError(f"--device must be auto, cpu, cuda or cuda:N, not {name}")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= available:
        found = f"only {available} GPU{'s' if available > 1 else ''}" if available else "no GPU"
        raise NmtError(f"--device {name}: PyTorch finds {found} here; use --device cpu or auto")
    return device


def prepare(model: Seq2Seq, device: torch.device, precision: Precision) -> None:
    """Change `model`, on `device`, into one that computes in `precision`, translates fast and can no longer be trained.

    NmtError where `device` cannot compute fast in it.
    """
    if precision == "int8":
        if device.type != "cpu" or not available():
            raise NmtError("--precision int8 is for CPUs with instructions for it (VNNI); use float32")
        quantize(model)
    elif precision == "bfloat16":
        if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
            raise NmtError(f"--precision bfloat16: {torch.cuda.get_device_name(device)} cannot compute in it; use float32")
        model.to(torch.bfloat16)
    elif device.type == "cpu":
        pack(model)


def set_threads(threads: int | None) -> None:
    """How many CPU threads a matrix product may use in this process; None leaves PyTorch's choice."""
    if threads is None:
        return
    if threads < 1:
        raise UsageError(f"--threads must be at least 1, not {threads}")
    if threads > MOST_THREADS:  # PyTorch would take any number, and die of it
        raise UsageError(f"--threads must be at most {MOST_THREADS:,}, not {threads}")
    torch.set_num_threads(threads)
