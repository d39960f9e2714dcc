"""What torchrun, or another launcher that speaks its language, says of this process: one of how many, and which."""

import os

from nmt.errors import NmtError


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
    """Whether there are several, and this is not the first, whatever is wrong with what is said."""
    size, rank = (os.environ.get(name, "") for name in ("WORLD_SIZE", "RANK"))
    return size not in ("", "0", "1") and rank.isdecimal() and int(rank) > 0


def _of_several(name: str) -> int:
    if size() == 1:
        return 0
    number = _number(name)
    if number is None:
        raise NmtError(f"WORLD_SIZE is {size()}, and {name} is not set: start it with torchrun, or unset WORLD_SIZE")
    return number


def _number(name: str) -> int | None:
    value = os.environ.get(name, "")
    if value and not value.isdecimal():
        raise NmtError(f"{name} is {value!r}, not a number: start it with torchrun, or unset it")
    return int(value) if value else None
