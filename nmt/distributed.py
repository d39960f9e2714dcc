"""Several processes at one piece of work: what they tell each other, all of it by torch.distributed.

One of them leads: it alone writes, logs and speaks. The others are told what it knows and do their share.
"""

import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from nmt import ranks
from nmt.device import choose_device
from nmt.errors import NmtError, OneOfManyError, UsageError
from nmt.workers import Crew

Value = TypeVar("Value")
Batch = TypeVar("Batch")
Results = TypeVar("Results")

MEETING, LONGEST, FOR_EVER = timedelta(minutes=10), timedelta(minutes=30), timedelta(days=365)
"""What one waits for the others to start; for an answer of those that work as it does, which may be at a save to a slow disk; and
for what may never come, such as input. One that dies is noticed at once."""

GRACE = 30
"""Seconds in which those at work may end it, when there is no use for it any more."""

SLOW = 10
"""Seconds after which one says that it waits for others to start."""


class GoneError(NmtError):
    """Another process has ended, or does not answer."""


class Team:
    """The processes at one piece of work, as one of them sees them. Alone, it asks nobody."""

    def __init__(self, rank: int = 0, size: int = 1, patience: timedelta = LONGEST) -> None:
        """`patience` is how long one waits for the answer of another; of several, all must be ready to talk."""
        self.rank, self.size = rank, size
        self.remedy = "start all of them again"
        """What to do when one of them is lost."""
        self._group = dist.new_group(timeout=patience) if size > 1 else None
        self._tensors = self._group
        self._serving = set(range(1, size))
        self._agreed = False

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes, logs and speaks."""
        return self.rank == 0

    def device(self, name: str) -> torch.device:
        """As `choose_device`; of several processes on a machine each has a GPU of its own."""
        device = choose_device(name)
        if self.size == 1 or device.type != "cuda":
            return device
        if device.index is not None:
            raise UsageError(f"--device {name} is one GPU, and each of {self.size} processes has its own: leave it out")
        number, available = ranks.local_rank(), torch.cuda.device_count()
        if number >= available:
            raise NmtError(f"this is process {number + 1} of this machine, which has {available} GPUs: start one for each")
        return torch.device("cuda", number)

    def connect(self, device: torch.device) -> None:
        """From now on tensors on `device` can be added."""
        if self.size > 1 and device.type == "cuda":
            torch.cuda.set_device(device)
            self._tensors = self._ask(lambda: dist.new_group(backend="nccl", timeout=LONGEST))

    def add(self, tensor: Tensor) -> None:
        """`tensor` becomes its sum over all processes, in place, with the same bits in each."""
        if self.size > 1:
            self._ask(lambda: dist.all_reduce(tensor, group=self._tensors))

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """The gradient of each parameter becomes its sum over all processes; where there is none it counts as 0."""
        if self.size == 1:
            return
        parameters = [parameter for parameter in parameters if parameter.requires_grad]
        slopes = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
        flat = torch.cat([slope.flatten() for slope in slopes])  # one long message costs less than many short ones
        self.add(flat)
        for parameter, slope in zip(parameters, torch.split(flat, [each.numel() for each in parameters]), strict=True):
            parameter.grad = slope.view_as(parameter)

    def most(self, *numbers: int) -> list[int]:
        """Of each number the largest that a process has."""
        # A truth value would make a tensor of a kind that not every backend can compare.
        largest = torch.tensor(numbers, dtype=torch.int64)
        if self.size > 1:
            self._ask(lambda: dist.all_reduce(largest, dist.ReduceOp.MAX, self._group))
        return largest.tolist()

    def gather(self, value: Value) -> list[Value]:
        """What each process has, in the order of their ranks; all get it."""
        values = [value] * self.size
        if self.size > 1:
            self._ask(lambda: dist.all_gather_object(values, value, self._group))
        return values

    def share(self, value: Value) -> Value:
        """What the leader has."""
        values = [value]
        if self.size > 1:
            self._ask(lambda: dist.broadcast_object_list(values, 0, self._group))
        return values[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block that all leave together: where it fails in one, it fails in all, with the error of the first of these.

        Nothing may be asked of the others within it.
        """
        if self.size == 1:
            yield
            return
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        for rank, first in enumerate(self.gather(_portable(failure))):
            if first is not None:
                self._agreed = True
                raise self._named(first, rank) if rank > 0 and isinstance(first, NmtError) else first

    def common(self, message: str) -> NmtError:
        """The error of all processes at this moment: the leader tells it."""
        self._agreed = True
        return NmtError(message)

    def lead(self, work: Callable[[], None]) -> None:
        """`work` is done by the leader; where it fails, it fails in all."""
        with self.together():
            if self.leads:
                work()

    def crew(self, work: Callable[[Batch], Results], count: int) -> Crew[Batch, Results]:
        """Of the leader: itself, who does `work`, and those of the others who `serve`; `count` in all."""
        return _Crew([work, *(partial(self._exchange, rank) for rank in range(1, count))], self._serving)

    def dismiss(self) -> None:
        """Of the leader: nobody is to serve any longer."""
        while self._serving:
            with suppress(GoneError):
                self._send(None, self._serving.pop())

    def serve(self, work: Callable[[Any], Any]) -> None:
        """Of the others: works on what the leader gives, until that ends. Signals end this process at once: it holds nothing."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while (given := self._receive(0)) is not None:
            answer: tuple[Any, Exception | None]
            try:
                answer = work(given[0]), None
            except Exception as error:
                answer = None, _portable(error)
            self._send(answer, 0)

    def _exchange(self, rank: int, batch: Any) -> Any:
        self._send((batch,), rank)
        results, error = self._receive(rank)
        if error is not None:
            raise self._named(error, rank) if isinstance(error, NmtError) else error
        return results

    def _send(self, value: object, rank: int) -> None:
        self._ask(lambda: dist.send_object_list([value], rank, self._group))

    def _receive(self, rank: int) -> Any:
        values = [None]
        self._ask(lambda: dist.recv_object_list(values, rank, self._group))
        return values[0]

    def _ask(self, question: Callable[[], Value]) -> Value:
        try:
            return question()
        except RuntimeError as error:  # gloo has no class of its own for it
            raise GoneError(f"another of the {self.size} processes has ended or does not answer; {self.remedy}") from error

    def _named(self, error: NmtError, rank: int) -> NmtError:
        return type(error)(f"process {rank} of {self.size}: {error}")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Errors that all processes have are the leader's to tell; of others one must know where they come from."""
        try:
            yield
        except Exception as error:
            if self.leads:
                raise
            if self._agreed:
                raise SystemExit(2 if isinstance(error, UsageError) else 1) from error
            what = str(error) if isinstance(error, NmtError) else f"{type(error).__name__}: {error}"
            raise OneOfManyError(f"process {self.rank} of {self.size}: {what}") from error


ALONE = Team()


class _Crew(Crew[Batch, Results]):
    """Hands, each with a thread that works, or waits for who does."""

    def __init__(self, hands: list[Callable[[Batch], Results]], serving: set[int]) -> None:
        """`hands` stand in the order of ranks. Who does not answer in the end goes out of `serving`: it cannot be told anything."""
        self._tasks = [SimpleQueue[Batch]() for _ in hands]
        self._done = SimpleQueue[tuple[int, list[Results], Exception | None]]()
        self._idle = [*range(len(hands))]
        self._given: dict[int, Batch] = {}
        self._serving = serving
        for number, hand in enumerate(hands):
            threading.Thread(target=self._serve, args=(number, hand), daemon=True).start()  # a wait that never ends ends nothing

    def _serve(self, number: int, hand: Callable[[Batch], Results]) -> None:
        while True:
            batch = self._tasks[number].get()
            try:
                self._done.put((number, [hand(batch)], None))
            except Exception as error:
                self._done.put((number, [], error))

    def free(self) -> bool:
        return bool(self._idle)

    def busy(self) -> bool:
        return bool(self._given)

    def give(self, batch: Batch) -> None:
        number = self._idle.pop()
        self._given[number] = batch
        self._tasks[number].put(batch)

    def take(self) -> tuple[Batch, Results]:
        number, results, error = self._done.get()
        batch = self._given.pop(number)
        self._idle.append(number)
        if error is not None:
            raise error
        return batch, results[0]

    def dismiss(self) -> None:
        with suppress(Empty):
            while self._given:
                self._given.pop(self._done.get(timeout=GRACE)[0])
        self._serving.difference_update(self._given)


def _portable(error: Exception | None) -> Exception | None:
    """`error`, or where it cannot be sent to another process, one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return NmtError(f"{type(error).__name__}: {error}")
    return error


@contextmanager
def joined(say: Callable[[str], None], patience: timedelta = LONGEST) -> Iterator[Team]:
    """The processes that were started together with this one, found by what torchrun says in the environment; ALONE without any.

    `patience` is how long one waits for the answer of another, and `say` tells who looks on where the others are slow to start.
    Raises NmtError where they do not meet.
    """
    size, rank = ranks.size(), ranks.rank()
    if size == 1:
        yield ALONE
        return
    # One that is not there may never come, and Python would see no signal before it did.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    waiting = threading.Timer(SLOW, say, [f"process {rank} waits for all {size} to meet at {ranks.meeting()}"])
    waiting.start()
    try:
        dist.init_process_group("gloo", timeout=MEETING)
        team = Team(rank, size, patience)
    except (RuntimeError, ValueError) as error:
        raise NmtError(f"the {size} processes do not find each other: {str(error).splitlines()[0]}") from error
    finally:
        waiting.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
    with team._telling():
        yield team
        dist.destroy_process_group()
