"""Several processes at one piece of work, as torchrun starts them, but forked from the test: they need not import anything."""

import os
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from nmt.cli import main


@dataclass(frozen=True)
class End:
    """How a process ended, and what it wrote."""

    code: int
    """Negative: the signal that it died of."""
    out: str
    err: str


def team(
    size: int, *words: str | Path, before: Callable[[int], list[str] | None] = lambda rank: None, stdin: str = os.devnull
) -> list[End]:
    """`nmt WORDS` in `size` processes with one thread each, in the order of their ranks; `before` is called first in each, and may
    add words.

    `stdin` is the file that the first of them reads there.
    """
    port = free_port()
    with tempfile.TemporaryDirectory() as place:
        processes = [_fork(rank, size, port, [str(word) for word in words], Path(place), before, stdin) for rank in range(size)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        texts = [[Path(place, f"{rank}.{name}").read_text() for name in ("out", "err")] for rank in range(size)]
    return [End(code, *text) for code, text in zip(codes, texts, strict=True)]


def free_port() -> int:
    """One that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _fork(
    rank: int, size: int, port: int, words: list[str], place: Path, before: Callable[[int], list[str] | None], stdin: str
) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: theirs sleep
        process = os.fork()
    if process:
        return process
    code = 70
    try:
        names = {
            "TORCHELASTIC_RUN_ID": "test",
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": size,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        os.environ.update({name: str(value) for name, value in names.items()})
        streams = [
            os.open(stdin if rank == 0 else os.devnull, os.O_RDONLY),
            *(os.open(place / f"{rank}.{name}", os.O_WRONLY | os.O_CREAT) for name in ("out", "err")),
        ]
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115  pytest has others in their place
        torch.set_num_threads(1)
        code = main([*words, *(before(rank) or [])])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
