"""Who does the work on batches: this process, or several forked from it, each with one thread.

On a CPU the matrix products of a step are too small for two threads to share well, and much of the time is not spent in them at
all. Processes share everything but the work: the weights are in memory once.
"""

import gc
import multiprocessing
import os
import signal
import sys
import traceback
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Protocol, TypeVar

from nmt.errors import NmtError

Batch = TypeVar("Batch")
Results = TypeVar("Results")


class Crew(ABC, Generic[Batch, Results]):
    """Takes batches while somebody is free, and gives each back with its results, in any order."""

    @abstractmethod
    def free(self) -> bool:
        """Whether `give` may be called."""

    @abstractmethod
    def busy(self) -> bool:
        """Whether `take` may be called."""

    @abstractmethod
    def give(self, batch: Batch) -> None:
        """Begin to work on `batch`."""

    @abstractmethod
    def take(self) -> tuple[Batch, Results]:
        """Wait for a batch that was given, and its results. Raises what the work on it raised."""

    @abstractmethod
    def dismiss(self) -> None:
        """Nobody works on, whatever was given."""


class Hire(Protocol):
    """Makes a crew of so many out of a work, which each of them does by itself."""

    def __call__(self, work: Callable[[Batch], Results], count: int, /) -> Crew[Batch, Results]: ...


class Alone(Crew[Batch, Results]):
    """This process does the work."""

    def __init__(self, work: Callable[[Batch], Results]) -> None:
        self._work = work
        self._given: list[Batch] = []

    def free(self) -> bool:
        return not self._given

    def busy(self) -> bool:
        return bool(self._given)

    def give(self, batch: Batch) -> None:
        self._given.append(batch)

    def take(self) -> tuple[Batch, Results]:
        batch = self._given.pop()
        return batch, self._work(batch)

    def dismiss(self) -> None:
        self._given.clear()


class Workers(Crew[Batch, Results]):
    """Up to `count` processes, each forked when it is first needed; what `work` reads is as it was then.

    Batches and results are pickled on their way.
    """

    def __init__(self, work: Callable[[Batch], Results], count: int) -> None:
        self._work = work
        self._count = count
        self._processes: list[Any] = []  # one of the classes of a context, which have no common name
        self._idle: list[Connection] = []
        self._given: dict[Connection, Batch] = {}

    def free(self) -> bool:
        return bool(self._idle) or len(self._processes) < self._count

    def busy(self) -> bool:
        return bool(self._given)

    def give(self, batch: Batch) -> None:
        # A worker has one batch at a time: while it works it reads nothing, and two that write to each other wait for ever.
        connection = self._idle.pop() if self._idle else self._fork()
        self._given[connection] = batch
        with suppress(OSError):  # it is dead, which `take` sees
            connection.send(batch)

    def take(self) -> tuple[Batch, Results]:
        connection = wait(list(self._given))[0]
        assert isinstance(connection, Connection)
        try:
            results, error = connection.recv()
        except (EOFError, OSError):
            raise NmtError("a worker process was killed, perhaps for lack of memory; use --threads 1, or smaller batches") from None
        batch = self._given.pop(connection)
        if error is not None:
            raise error
        self._idle.append(connection)
        return batch, results

    def _fork(self) -> Connection:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        inherited = [*self._given, *self._idle, ours]
        process = context.Process(target=_serve, args=(self._work, theirs, inherited), daemon=True)
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until the child has its own way with it
        with warnings.catch_warnings():
            # Python 3.12 warns of every fork beside a thread, and libraries have threads that sleep. The child runs tensors only.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        theirs.close()
        self._processes.append(process)
        return ours

    def dismiss(self) -> None:
        for connection in (*self._given, *self._idle):
            connection.close()
        for process in self._processes:
            process.terminate()
            process.join()


def crew(work: Callable[[Batch], Results], count: int) -> Crew[Batch, Results]:
    """`count` workers, or this process where that is one, or the system cannot fork safely."""
    return Workers(work, count) if count > 1 and sys.platform == "linux" else Alone(work)


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def spread(work: Callable[[Batch], Results], batches: Sequence[Batch], count: int) -> list[Results]:
    """What `work` makes of each of `batches`, in their order, done by up to `count` workers."""
    hands: Crew[tuple[int, Batch], Results] = crew(lambda numbered: work(numbered[1]), count)
    waiting, found = deque(enumerate(batches)), dict[int, Results]()
    try:
        while waiting or hands.busy():
            while waiting and hands.free():
                hands.give(waiting.popleft())
            (number, _), results = hands.take()
            found[number] = results
    finally:
        hands.dismiss()
    return [found[number] for number in range(len(batches))]


def _serve(work: Callable[[Any], Any], connection: Connection, inherited: list[Connection]) -> None:
    """The life of a worker: it ends with the parent, whose end of the pipe closes then."""
    for each in inherited:  # else the pipe of a dead parent would stay open here
        each.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if "torch" in sys.modules:  # not everybody's work is on tensors, and to import it takes a second
        sys.modules["torch"].set_num_threads(1)
    gc.freeze()  # what the parent made is not looked through again and again
    while True:
        try:
            batch = connection.recv()
        except (EOFError, OSError):
            return
        answer: tuple[Any, Exception | None]
        try:
            answer = work(batch), None
        except Exception as error:
            error.add_note("in a worker process:\n" + traceback.format_exc())
            answer = None, error
        try:
            connection.send(answer)
        except OSError:
            return
