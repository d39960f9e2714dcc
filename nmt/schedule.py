"""What changes over training, as pure functions of the step: the learning rate, the share of teacher forcing."""

import math
from typing import Literal

Schedule = Literal["inverse-sqrt", "linear", "cosine", "constant"]


def paper_rate(width: int, warmup: int) -> float:
    """The peak that makes `inverse-sqrt` the Transformer paper's rate: (d·w)^-0.5 (Vaswani et al. 2017, eq. 3).

    Peak · min(t/w, √(w/t)) is then d^-0.5 · min(t^-0.5, t·w^-1.5).
    """
    return 1 / math.sqrt(width * warmup)


def learning_rate(step: int, schedule: Schedule, peak: float, warmup: int, max_steps: int | None) -> float:
    """The rate of update `step`, counted from 0: linear to `peak` at the `warmup`-th update, then as the schedule says.

    With t = step + 1: inverse-sqrt peak·√(w/t); constant peak; linear and cosine fall to 0 at the update
    that would follow the last of `max_steps`, which they need: the last one itself is not for nothing.
    """
    t = step + 1
    if t < warmup:
        return peak * t / warmup
    if schedule == "constant":
        return peak
    if schedule == "inverse-sqrt":
        return peak * math.sqrt(max(warmup, 1) / t)
    if max_steps is None:
        raise ValueError(f"{schedule} needs max_steps")
    left = max(0.0, (max_steps + 1 - t) / max(max_steps + 1 - max(warmup, 1), 1))
    return peak * (left if schedule == "linear" else (1 - math.cos(math.pi * left)) / 2)


def teacher_forcing(step: int, begin: float, end: float | None, max_steps: int | None) -> float:
    """The probability that update `step` feeds the true token: from `begin` in a straight line to `end` at `max_steps`.

    Constant where `end` is None (Bengio et al. 2015, arXiv 1506.03099, section 2.4: the linear decay).
    """
    if end is None:
        return begin
    if max_steps is None:
        raise ValueError("a decaying share of teacher forcing needs max_steps")
    return begin + (end - begin) * min(1.0, step / max(max_steps - 1, 1))
