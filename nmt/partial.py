"""Outputs that are not whole yet: files beside their place, each of one process at a time, with a note of how it was begun."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from nmt.data.files import reason, sibling
from nmt.data.text import is_stream
from nmt.errors import NmtError

PARTIAL = ".nmt-partial"
"""How the name of an unfinished output ends."""

NOTE = ".nmt-partial.json"
"""How the name of the note ends. It is there only while the unfinished output is."""


def partial_of(output: str) -> Path:
    """Where an output is written until it is whole; a name that nobody gives to a file of their own, so none is lost."""
    return sibling(Path(os.path.realpath(output)), "", PARTIAL)


def note_of(output: str) -> Path:
    """Where it is noted how an unfinished output was begun."""
    return sibling(Path(os.path.realpath(output)), "", NOTE)


def keeps(output: str) -> bool:
    """Whether a stopped job leaves its finished lines: pipes, devices and compressed files cannot be gone on with."""
    return output != "-" and not output.endswith((".gz", ".xz")) and not is_stream(output)


@contextmanager
def held(output: str) -> Iterator[BinaryIO]:
    """The unfinished output, made if need be. NmtError where another process has it, or it cannot be written."""
    partial = partial_of(output)
    while True:
        try:
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise NmtError(f"{output}: cannot be written ({reason(error)})") from None
        with open(descriptor, "r+b") as stream:
            if not _lock(stream):
                raise NmtError(f"{output}: another process is writing it; wait for it, or give another --output")
            if _is_at(stream, partial):  # else another process has finished or removed it before it was locked
                yield stream
                return


def remove_empty(output: str) -> None:
    """No unfinished output, where it holds nothing and no process has it."""
    with suppress(OSError), open(partial_of(output), "r+b") as stream:
        if _lock(stream) and _is_at(stream, partial_of(output)) and not os.fstat(stream.fileno()).st_size:
            note_of(output).unlink(missing_ok=True)
            partial_of(output).unlink()


def _lock(stream: BinaryIO) -> bool:
    """Whether no other process has it; a dead one has nothing.

    Not flock: worker processes would have what their parent has, and may outlive it by a batch.
    """
    try:
        fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)  # else this file system has no locks
    return True


def _is_at(stream: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except FileNotFoundError:
        return False
