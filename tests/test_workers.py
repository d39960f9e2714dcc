"""Several processes do what one does, and what goes wrong in one is told by the parent."""

import multiprocessing
import os
import signal
from collections.abc import Iterator

import pytest
import torch

from nmt.errors import NmtError
from nmt.stream import Sentence, in_order
from nmt.vocab import EOS
from nmt.workers import Workers, crew

Line = tuple[int, list[Sentence[int]]]


def lines(count: int) -> Iterator[Line]:
    """Each of one sentence, or of none or two, of a few lengths."""
    for number in range(1, count + 1):
        size = number % 5
        yield number, [Sentence([number, *[7] * size, EOS], size + 2, [], 9, size + 2, number) for _ in range(number % 3)]


def firsts(batch: list[Sentence[int]]) -> list[int]:
    return [sentence.source[0] for sentence in batch]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("budget", [1, 40, 10_000])
def test_lines_come_in_order_with_their_results(workers: int, budget: int) -> None:
    done = list(in_order(lines(200), firsts, budget, None, workers=workers))
    assert [number for number, _ in done] == list(range(1, 201))
    assert all([each.result for each in sentences] == [number] * (number % 3) for number, sentences in done)
    assert multiprocessing.active_children() == []


def test_the_work_is_done_elsewhere_and_by_as_many_as_are_needed() -> None:
    def process(batch: list[Sentence[int]]) -> list[int]:
        return [os.getpid()] * len(batch)

    (_, [only]), *_ = in_order([(1, [Sentence([5, EOS], 2, [], 9, 2, 1)])], process, 100, None, workers=3)
    many = {each.result for _, sentences in in_order(lines(60), process, 1, None, workers=3) for each in sentences}
    assert only.result != os.getpid() and os.getpid() not in many
    assert len(many) == 3


def test_workers_have_one_thread_each() -> None:
    def threads(batch: list[Sentence[int]]) -> list[int]:
        return [torch.get_num_threads()] * len(batch)

    assert {each.result for _, found in in_order(lines(9), threads, 1, None, workers=2) for each in found} == {1}


def fails(batch: list[Sentence[int]]) -> list[int]:
    if any(sentence.number == 50 for sentence in batch):
        raise ValueError("line 50")
    return firsts(batch)


def test_an_error_is_raised_here_with_where_it_was() -> None:
    with pytest.raises(ValueError, match="line 50") as raised:
        list(in_order(lines(100), fails, 1, None, workers=2))
    assert "in fails" in "".join(raised.value.__notes__)
    assert multiprocessing.active_children() == []


def test_a_sentence_too_large_for_a_worker_is_named() -> None:
    def small(batch: list[Sentence[int]]) -> list[int]:
        if any(sentence.number == 50 for sentence in batch):
            raise MemoryError
        return firsts(batch)

    with pytest.raises(NmtError, match=r"out of memory: text, line 50 \(1 subwords\)"):
        list(in_order(lines(100), small, 30, None, "text, line {}".format, workers=2))


def test_a_killed_worker_is_told() -> None:
    def dies(batch: list[Sentence[int]]) -> list[int]:
        if any(sentence.number == 50 for sentence in batch):
            os.kill(os.getpid(), signal.SIGKILL)
        return firsts(batch)

    with pytest.raises(NmtError, match="a worker process was killed"):
        list(in_order(lines(100), dies, 1, None, workers=2))
    assert multiprocessing.active_children() == []


def test_a_worker_that_died_idle_is_told() -> None:
    workers = crew(firsts, 2)
    assert isinstance(workers, Workers)
    batch = [Sentence[int]([5, EOS], 2, [], 9, 2, 1)]
    workers.give(batch)
    assert workers.take()[1] == [5]
    (process,) = multiprocessing.active_children()
    process.kill()
    process.join()
    workers.give(batch)
    with pytest.raises(NmtError, match="was killed"):
        workers.take()
    workers.dismiss()


def test_who_stops_reading_leaves_no_process() -> None:
    found = in_order(lines(10_000), firsts, 1, None, workers=2)
    next(found)
    assert multiprocessing.active_children()
    found.close()  # type: ignore[attr-defined]  # a generator
    assert multiprocessing.active_children() == []


def test_workers_die_with_their_parent() -> None:
    """Also where it had no time to say so."""
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        found = in_order(lines(10_000), firsts, 1, None, workers=2)
        next(found)
        next(found)
        next(found)
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(write)
    assert os.waitpid(parent, 0)[1] == signal.SIGKILL
    assert os.read(read, 1) == b""  # the end: no process has the other end open any more
    os.close(read)
