"""Several processes at one piece of work: what they tell each other, all of it by torch.distributed.

One of them leads: it alone writes, logs and speaks. The others are told what it knows and do their share.
"""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from nmt import ranks
from nmt.device import choose_device
from nmt.errors import NmtError, UsageError
from nmt.workers import Crew

Value = TypeVar("Value")
Batch = TypeVar("Batch")
Results = TypeVar("Results")

LONGEST = timedelta(minutes=30)
"""What one may keep the others waiting, as by a save to a slow disk. One that dies is noticed at once."""

FOR_EVER = timedelta(days=365)
SLOW = 10
"""Seconds after which one says that it waits for others to start."""


class GoneError(NmtError):
    """Another process has ended, or does not answer."""


class Team:
    """The processes at one piece of work, as one of them sees them. Alone, it asks nobody."""

    def __init__(self, rank: int = 0, size: int = 1, remedy: str = "") -> None:
        """`remedy` says what to do when one of them is lost."""
        self.rank, self.size = rank, size
        self._remedy = remedy
        self._tensors: dist.ProcessGroup | None = None
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
        largest = torch.tensor(numbers)
        if self.size > 1:
            self._ask(lambda: dist.all_reduce(largest, dist.ReduceOp.MAX))
        return largest.tolist()

    def gather(self, value: Value) -> list[Value]:
        """What each process has, in the order of their ranks; all get it."""
        values = [value] * self.size
        if self.size > 1:
            self._ask(lambda: dist.all_gather_object(values, value))
        return values

    def share(self, value: Value) -> Value:
        """What the leader has."""
        values = [value]
        if self.size > 1:
            self._ask(lambda: dist.broadcast_object_list(values, 0))
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
        for rank, first in enumerate(self.gather(failure)):
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
        """Of the leader: all `count` of them as one crew; the others belong to it while they `serve`. `work` is its own part."""
        return _Crew([work, *(partial(self._exchange, rank) for rank in range(1, count))], self._dismiss)

    def serve(self, work: Callable[[Any], Any]) -> None:
        """Of the others: works on what the leader gives, until that ends. Signals end this process at once: it holds nothing."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while (given := self._receive(0)) is not None:
            answer: tuple[Any, Exception | None]
            try:
                answer = work(given[0]), None
            except Exception as error:
                answer = None, error
            self._send(answer, 0)

    def _exchange(self, rank: int, batch: Any) -> Any:
        self._send((batch,), rank)
        results, error = self._receive(rank)
        if error is not None:
            raise self._named(error, rank) if isinstance(error, NmtError) else error
        return results

    def _dismiss(self) -> None:
        for rank in range(1, self.size):
            with suppress(GoneError):
                self._send(None, rank)

    def _send(self, value: object, rank: int) -> None:
        self._ask(lambda: dist.send_object_list([value], rank))

    def _receive(self, rank: int) -> Any:
        values = [None]
        self._ask(lambda: dist.recv_object_list(values, rank))
        return values[0]

    def _ask(self, question: Callable[[], Value]) -> Value:
        try:
            return question()
        except RuntimeError as error:  # gloo has no class of its own for it
            raise GoneError(f"another of the {self.size} processes has ended or does not answer; {self._remedy}") from error

    def _named(self, error: NmtError, rank: int) -> NmtError:
        return type(error)(f"process {rank} of {self.size}: {error}")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Errors that all processes have are the leader's to tell; of others one must know where they come from."""
        try:
            yield
        except NmtError as error:
            if self.leads:
                raise
            if self._agreed:
                raise SystemExit(2 if isinstance(error, UsageError) else 1) from error
            raise self._named(error, self.rank) from error


ALONE = Team()


class _Crew(Crew[Batch, Results]):
    """Hands, each with a thread that waits for it or works itself."""

    def __init__(self, hands: list[Callable[[Batch], Results]], dismiss: Callable[[], None]) -> None:
        self.count = len(hands)
        self._idle = [(hand, ThreadPoolExecutor(1)) for hand in hands]
        self._given: dict[Future[Results], tuple[Batch, Any]] = {}
        self._dismiss = dismiss

    def free(self) -> bool:
        return bool(self._idle)

    def busy(self) -> bool:
        return bool(self._given)

    def give(self, batch: Batch) -> None:
        hand, thread = self._idle.pop()
        self._given[thread.submit(hand, batch)] = batch, (hand, thread)

    def take(self) -> tuple[Batch, Results]:
        done = wait(self._given, return_when=FIRST_COMPLETED).done.pop()
        batch, idle = self._given.pop(done)
        results = done.result()
        self._idle.append(idle)
        return batch, results

    def dismiss(self) -> None:
        for _, (_, thread) in self._given.values():
            thread.shutdown(wait=True)
        self._dismiss()


@contextmanager
def joined(remedy: str, say: Callable[[str], None], patience: timedelta = LONGEST) -> Iterator[Team]:
    """The processes that were started together with this one, found by what torchrun says in the environment; ALONE without any.

    `remedy` says what to do when one is lost, `patience` is how long one waits for another, and `say` tells who looks on where that
    is long in the beginning. Raises NmtError where they do not meet.
    """
    size, rank = ranks.size(), ranks.rank()
    if size == 1:
        yield ALONE
        return
    # One that is not there may never come, and Python would see no signal before it did.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    waiting = threading.Timer(SLOW, say, [f"waiting for all {size} processes, of which this is number {rank}"])
    waiting.start()
    try:
        dist.init_process_group("gloo", timeout=patience)
    except (RuntimeError, ValueError) as error:
        raise NmtError(f"the {size} processes do not find each other: {str(error).splitlines()[0]}") from error
    finally:
        waiting.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
    team = Team(rank, size, remedy)
    with team._telling():
        yield team
        dist.destroy_process_group()
