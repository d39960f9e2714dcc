"""Lines through batches and out again in their old order, as they come, in memory that does not grow with the input.

A line holds sentences (none where it is blank, several where it was split). Sentences of one size wait in one queue. The
batch that runs next is always that of the oldest sentence in none, filled with younger ones of the same size, or of others where
these do not suffice and it may be, so output flows steadily, and only lines within the lookahead are ever held.
"""

import queue
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import torch

from nmt.allocator import out_of_memory, return_fragments
from nmt.errors import NmtError
from nmt.workers import Crew, Hire, crew

Result = TypeVar("Result")
Item = TypeVar("Item")

LOOKAHEAD = 20
"""Batches' worth of source positions read ahead: with the lengths of ordinary text it keeps batches near their budget."""


@dataclass(frozen=True)
class TooLarge:
    """In place of a result: memory does not suffice for a sentence of so many subwords alone."""

    subwords: int


@dataclass
class Sentence(Generic[Result]):
    """What one row of a batch needs, and what came of it."""

    source: list[int]
    """Ids with `</s>`."""
    size: int
    """Positions that the source is padded to; sentences are batched with others of this size, as far as there are enough."""
    target: list[int]
    """Ids without start token and `</s>`: a prefix to begin with, or a translation to score."""
    limit: int
    """The most target tokens, `</s>` not counted."""
    width: int
    """Positions a row takes of the budget."""
    number: int
    """Its line in the input, from 1: for messages."""
    taken: bool = False
    """It is in a batch."""
    done: list[Result | TooLarge] = field(default_factory=list)
    """The result, once it has run."""

    @property
    def result(self) -> Result:
        (found,) = self.done
        assert not isinstance(found, TooLarge)
        return found


def input_line(number: int) -> str:
    """How messages name a line of which only its number, from 1, is known."""
    return f"input line {number}"


Lines = Iterable[tuple[Item, list[Sentence[Result]]] | None]


def in_order(
    lines: Lines[Item, Result],
    work: Callable[[list[Sentence[Result]]], list[Result]],
    budget: int,
    most_lines: int | None,
    where: Callable[[int], str] = input_line,
    workers: int = 1,
    batches: int = 1,
    hire: Hire = crew,
) -> Iterator[tuple[Item, list[Sentence[Result]]]]:
    """Each line's item and its sentences, with their results, in the order of the lines.

    `work` gets sentences of one size whose rows × width stay within `budget` (a single row may exceed it); or, if it makes
    `batches` > 1 of them by itself, that many batches' worth, of any sizes. It is given fewer where memory runs out, and runs in so
    many `workers`, whom `hire` finds. At most `most_lines` lines wait at a time. A None in `lines`
    says that nothing more has arrived yet: what waits is finished before more is asked for. An error that `lines` raises comes
    after all lines before it, and so does that of a line for which memory does not suffice. `where` is how messages name a line by
    its number.
    """
    hands = hire(partial(within_memory, work), workers)
    try:
        yield from _in_order(iter(lines), hands, budget, most_lines, where, workers, batches)
    finally:
        hands.dismiss()


def _in_order(
    arrivals: Iterator[tuple[Item, list[Sentence[Result]]] | None],
    hands: Crew[list[Sentence[Result]], list[Result | TooLarge]],
    budget: int,
    most_lines: int | None,
    where: Callable[[int], str],
    workers: int,
    batches: int,
) -> Iterator[tuple[Item, list[Sentence[Result]]]]:
    waiting: deque[tuple[Item, list[Sentence[Result]]]] = deque()
    coming: deque[Sentence[Result]] = deque()  # all sentences of these lines that are in no batch, and some that are
    queues: defaultdict[int, deque[Sentence[Result]]] = defaultdict(deque)
    held = 0
    failure: Exception | None = None
    exhausted = drain = False

    def hand_out() -> None:
        """The oldest sentence goes next. Lines are queued in order, so it is the first of its queue."""
        while coming and hands.free():
            oldest = coming.popleft()
            if not oldest.taken:
                hands.give(_load(queues, oldest.size, budget, batches, workers))

    while True:
        while not drain and held < LOOKAHEAD * budget and (most_lines is None or len(waiting) < most_lines):
            try:
                line = next(arrivals)
            except StopIteration:
                exhausted = drain = True
                break
            except Exception as error:
                failure, exhausted, drain = error, True, True
                break
            if line is None:
                drain = bool(waiting)
                continue
            waiting.append(line)
            held += _size(line[1])
            coming.extend(line[1])
            for sentence in line[1]:
                queues[sentence.size].append(sentence)
        hand_out()
        if hands.busy():
            batch, results = hands.take()
            hand_out()  # nobody waits while lines are written and read
            for sentence, result in zip(batch, results, strict=True):
                sentence.done.append(result)
        while waiting and all(sentence.done for sentence in waiting[0][1]):
            item, sentences = waiting.popleft()
            held -= _size(sentences)
            for sentence in sentences:
                if isinstance(found := sentence.done[0], TooLarge):
                    raise NmtError(
                        f"out of memory: {where(sentence.number)} ({found.subwords:,} subwords) does not fit even alone; split it, "
                        "or translate with a smaller beam or --max-source"
                    )
            yield item, sentences
        if not waiting:
            if failure is not None:
                raise failure
            if exhausted:
                return
            drain = False


def _size(sentences: list[Sentence[Result]]) -> int:
    return max(1, sum(sentence.width for sentence in sentences))


def _take(queue: deque[Sentence[Result]], budget: int) -> list[Sentence[Result]]:
    batch = [queue.popleft()]
    width = batch[0].width
    while queue and (len(batch) + 1) * max(width, queue[0].width) <= budget:
        batch.append(queue.popleft())
        width = max(width, batch[-1].width)
    for sentence in batch:
        sentence.taken = True
    return batch


def _load(
    queues: Mapping[int, deque[Sentence[Result]]], size: int, budget: int, batches: int, workers: int
) -> list[Sentence[Result]]:
    """A batch of `size`; or several batches' worth, first of `size`, then like it, but for what keeps the others as busy."""
    if batches == 1:
        return _take(queues[size], budget)
    width = sum(sentence.width for queue in queues.values() for sentence in queue)
    most = min(batches * budget, max(budget, -(-width // workers)))
    load: list[Sentence[Result]] = []
    for each in sorted(queues, key=lambda other: abs(other - size)):
        part = _take(queues[each], most) if queues[each] else []
        load.extend(part)
        most -= sum(sentence.width for sentence in part)
        if queues[each]:
            break
    return load


def within_memory(work: Callable[[list[Sentence[Result]]], list[Result]], batch: list[Sentence[Result]]) -> list[Result | TooLarge]:
    """`work(batch)`, in halves where memory does not suffice for the whole."""
    try:
        return [*work(batch)]
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
    if len(batch) == 1:
        return [TooLarge(len(batch[0].source) - 1)]
    # Not inside the handler: the traceback there keeps the failed batch's tensors alive.
    return_fragments()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    half = len(batch) // 2
    return within_memory(work, batch[:half]) + within_memory(work, batch[half:])


def arriving(lines: Iterable[Item], ahead: int = 1000) -> Iterator[Item | None]:
    """`lines`, read ahead by a thread, at most `ahead` of them, with a None wherever the next has yet to arrive.

    For pipes and terminals: what has come is worked on while more is awaited. An error of `lines` is raised in its place. Reading
    begins now: who writes into a pipe may wait for its reader before he reads the answers.
    """
    arrived: queue.Queue[tuple[Item, None] | tuple[None, Exception | None]] = queue.Queue(maxsize=ahead)
    stopped = threading.Event()

    def read() -> None:
        end: Exception | None = None
        try:
            for line in lines:
                arrived.put((line, None))
                if stopped.is_set():
                    return
        except Exception as error:
            end = error
        arrived.put((None, end))

    # A daemon: a read that never returns must not keep the program from ending.
    threading.Thread(target=read, daemon=True, name="reader").start()

    def given() -> Iterator[Item | None]:
        try:
            while True:
                if arrived.empty():
                    yield None
                line, error = arrived.get()
                if error is not None:
                    raise error
                if line is None:
                    return
                yield line
        finally:
            stopped.set()
            while not arrived.empty():  # a `put` that waits for room goes on, and sees that it is to stop
                arrived.get()

    return given()
