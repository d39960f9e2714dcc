"""What torchrun, or another launcher that speaks its language, says of this process: one of how many, and which."""

import os

from nmt.errors import NmtError

MOST_DIGITS = 6
"""Of a number of processes that anybody has."""


def size() -> int:
    """Processes that were started for one piece of work; 1 where nobody says so."""
    return _number("WORLD_SIZE") or 1


def rank() -> int:
    """Which of them this one is, from 0; NmtError where there are several and nobody says it."""
    return _of_several("RANK")


def local_rank() -> int:
    """Which of those on this machine."""
    return _of_several("LOCAL_RANK")


def follows() -> bool:
    """Whether torchrun has started another process on this machine by the same words, which tells what is wrong with them."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("LOCAL_RANK", "0") != "0"


def meeting() -> str:
    """Where they find each other."""
    return ":".join(os.environ.get(name, "?") for name in ("MASTER_ADDR", "MASTER_PORT"))


def restarted() -> bool:
    """Whether torchrun has started all of them again, since one was lost (`--max-restarts`)."""
    return size() > 1 and bool(_number("TORCHELASTIC_RESTART_COUNT"))


def _of_several(name: str) -> int:
    if size() == 1:
        return 0
    number = _number(name)
    if number is None:
        raise NmtError(f"WORLD_SIZE is {size()}, and {name} is not set: start it with torchrun, or unset WORLD_SIZE")
    if number >= size():
        raise NmtError(f"{name} is {number}, and WORLD_SIZE {size()}: they are numbered from 0; start them with torchrun")
    return number


def _number(name: str) -> int | None:
    value = os.environ.get(name, "")
    if not value:
        return None
    if not value.isdecimal() or len(value) > MOST_DIGITS:
        raise NmtError(f"{name} is {value!r}, no number of processes: start them with torchrun, or unset it")
    return int(value)
