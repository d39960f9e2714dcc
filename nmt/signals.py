"""Ctrl-C and SIGTERM as a wish that can wait for the end of a piece of work."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def deferred(tell: Callable[[str], None]) -> Iterator[list[int]]:
    """The numbers of the signals that came. A second one acts at once, as it would have without this; one to be ignored still is.

    Only the main thread can catch signals; in another the list stays empty.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    found = {number: signal.getsignal(number) or signal.SIG_DFL for number in (signal.SIGINT, signal.SIGTERM)}
    # A shell has what a script starts with & ignore Ctrl-C, and there is nobody to stop then.
    before = {number: handler for number, handler in found.items() if handler != signal.SIG_IGN}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def catch(number: int, frame: object) -> None:
        caught.append(number)
        restore()
        tell("stopping after this update; once more to stop at once")

    for number in before:
        signal.signal(number, catch)
    try:
        yield caught
    finally:
        restore()
