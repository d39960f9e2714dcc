"""Ctrl-C and SIGTERM as a wish that can wait for the end of a piece of work."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nmt.console import seconds

ONE_WISH = 1.0
"""Seconds in which signals are one wish: a batch system tells every process of a job, and torchrun its own once more."""


@contextmanager
def deferred(tell: Callable[[str], None]) -> Iterator[list[int]]:
    """The numbers of the signals that came, one for each wish to stop.

    A second wish acts at once, as it would have without this; a signal to be ignored still is.

    Only the main thread can catch signals; in another the list stays empty.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    found = {number: signal.getsignal(number) or signal.SIG_DFL for number in (signal.SIGINT, signal.SIGTERM)}
    # A shell has what a script starts with & ignore Ctrl-C, and there is nobody to stop then.
    before = {number: handler for number, handler in found.items() if handler != signal.SIG_IGN}
    first = 0.0

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def catch(number: int, frame: object) -> None:
        nonlocal first
        if not caught:
            first = seconds()
            caught.append(number)
            tell("stopping after this update; once more to stop at once")
        elif seconds() - first > ONE_WISH:
            caught.append(number)
            restore()
            signal.raise_signal(number)

    for number in before:
        signal.signal(number, catch)
    try:
        yield caught
    finally:
        restore()
