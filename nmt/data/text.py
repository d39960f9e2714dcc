"""The only reader and writer of text.

Only a line feed ends a line; one carriage return before it is dropped, as is a byte order mark at the start. Everything is UTF-8,
whatever the locale.
"""

import codecs
import gzip
import io
import lzma
import os
import re
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Protocol

from nmt.data.files import beside, check_name, check_writable, is_full, reason, sync
from nmt.errors import NmtError, UsageError

Errors = Literal["strict", "replace"]
BOM = "\ufeff"
BLOCK = 1 << 18


def read_lines(
    path: str | os.PathLike[str],
    errors: Errors = "strict",
    on_replaced: Callable[[int], None] | None = None,
    name: str | None = None,
) -> Iterator[str]:
    """The lines of a text file, of standard input ("-") or of a pipe, each as soon as it has arrived, in flat memory.

    Names that end in .gz or .xz are decompressed. With errors="replace" bytes that are not UTF-8 become U+FFFD and `on_replaced`
    is told the number (from 1) of each such line, just before the line is given. `name` is what messages call the file. Raises
    NmtError that names file and line for bytes that are not UTF-8, for a path that is missing, a directory or unreadable, and for
    a truncated or corrupt archive.
    """
    name = display(path) if name is None else name
    before = 0
    with open_bytes(path, name) as read:
        for block in _whole_lines(read):
            block = block.removeprefix(codecs.BOM_UTF8) if before == 0 else block
            block = block.replace(b"\r\n", b"\n")
            try:
                lines = block.decode("utf-8").split("\n")
            except UnicodeDecodeError:
                for i, line in enumerate(block.removesuffix(b"\n").split(b"\n"), before + 1):
                    yield _decode(line, i, name, errors, on_replaced)
                before += block.count(b"\n")
                continue
            before += len(lines) - 1
            if not lines[-1]:  # what follows the last line feed
                lines.pop()
            yield from lines


def _decode(line: bytes, number: int, name: str, errors: Errors, on_replaced: Callable[[int], None] | None) -> str:
    """One line of a block that is not UTF-8 throughout."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        if errors == "strict":
            raise NmtError(
                f"{name}, line {number}: byte 0x{line[error.start]:02x} at position {error.start + 1} is not valid UTF-8; "
                "convert the file, or give --errors replace"
            ) from None
    if on_replaced is not None:
        on_replaced(number)
    return line.decode("utf-8", "replace")


def _whole_lines(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Blocks of whole lines; only the last may lack its line feed. A block is what has arrived: a pipe is not waited for."""
    pending: list[bytes] = []  # pieces of an unfinished line, joined once: a long line is not copied over and over
    while data := read(BLOCK):
        end = data.rfind(b"\n") + 1
        if end:
            yield b"".join([*pending, data[:end]])
            pending.clear()
        if end < len(data):
            pending.append(data[end:])
    if pending:
        yield b"".join(pending)


@contextmanager
def open_bytes(path: str | os.PathLike[str], name: str) -> Iterator[Callable[[int], bytes]]:
    """A function that reads at most so many bytes, decompressed; fewer where fewer have arrived, none at the end.

    Raises NmtError as `read_lines` does.
    """
    try:
        if os.fspath(path) == "-":
            if sys.stdin is None:
                raise NmtError("standard input is closed; name a file")
            yield _stdin_reader(sys.stdin.buffer)
            return
        with open(path, "rb", buffering=0) as raw:
            if os.fspath(path).endswith(".gz"):
                with gzip.GzipFile(fileobj=raw) as unzipped:
                    yield _some(unzipped)
            elif os.fspath(path).endswith(".xz"):
                yield _unxzed(raw)
            else:
                yield _patient(raw)
    except FileNotFoundError:
        raise NmtError(f"{name}: no such file") from None
    except IsADirectoryError:
        raise NmtError(f"{name}: is a directory, not a text file") from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise NmtError(f"{name}: truncated or corrupt archive ({str(error).rstrip('.').lower()}); copy it again") from None
    except OSError as error:
        raise NmtError(f"{name}: cannot be read ({reason(error)})") from None


def _some(unzipped: gzip.GzipFile) -> Callable[[int], bytes]:
    """`unzipped.read1`. EOFError where there is not even a header: no archive is of no bytes, but a truncated one may be."""

    def read(size: int) -> bytes:
        data = unzipped.read1(size)
        if not data and unzipped.mtime is None:
            raise EOFError("no header")
        return data

    return read


def _unxzed(raw: io.RawIOBase) -> Callable[[int], bytes]:
    """What .xz streams, one after the other, hold. lzma.LZMAFile would take a damaged second one for the end of the file."""
    more, unpack = _patient(raw), lzma.LZMADecompressor(lzma.FORMAT_XZ)

    def read(size: int) -> bytes:
        nonlocal unpack
        while True:
            packed = b""
            if unpack.eof:
                packed = unpack.unused_data
                while not packed.strip(b"\0"):  # which may stand between streams
                    if not (packed := more(BLOCK)):
                        return b""
                packed, unpack = packed.lstrip(b"\0"), lzma.LZMADecompressor(lzma.FORMAT_XZ)
            elif unpack.needs_input and not (packed := more(BLOCK)):
                raise EOFError("it ends before its end marker")
            if data := unpack.decompress(packed, size):
                return data

    return read


def _stdin_reader(buffer: Any) -> Callable[[int], bytes]:
    """Unbuffered where there is a descriptor: no lock is held while waiting, which at exit a thread would die of."""
    read: Callable[[int], bytes] = buffer.read1
    return _patient(buffer.raw) if hasattr(buffer, "raw") else read


def _patient(raw: io.RawIOBase) -> Callable[[int], bytes]:
    """`raw.read`, waiting where a stream that another program made non-blocking has nothing yet: that is not its end."""

    def read(size: int) -> bytes:
        while (data := raw.read(size)) is None:
            arrived = select.poll()
            arrived.register(raw.fileno(), select.POLLIN)
            arrived.poll()
        return data

    return read


def check_counts(name: str, count: int, reference: str, reference_count: int) -> None:
    """NmtError that names both files where their line counts differ."""
    if count != reference_count:
        lines = "line" if count == 1 else "lines"
        raise NmtError(f"{name} has {count:,} {lines}, {reference} has {reference_count:,}: they must be parallel")


def check_inputs(*paths: str | os.PathLike[str]) -> None:
    """Refuse now what `read_lines` would refuse later: NmtError for what is missing, a directory or unreadable.

    UsageError where one stream (standard input, a pipe) is named twice: the second reader would find it empty.
    """
    streams: dict[object, str | os.PathLike[str]] = {}
    for path in paths:
        name = os.fspath(path)
        if name == "-":
            key: object = "-"
            with suppress(OSError, ValueError, AttributeError):  # no descriptor behind it: closed, or a test's stand-in
                key = _stream(os.fstat(sys.stdin.fileno())) or "-"
        else:
            try:
                status = os.stat(name)
            except OSError as error:
                missing = isinstance(error, FileNotFoundError)
                raise NmtError(
                    f"{display(path)}: " + ("no such file" if missing else f"cannot be read ({reason(error)})")
                ) from None
            if stat.S_ISDIR(status.st_mode):
                raise NmtError(f"{display(path)}: is a directory, not a text file")
            if not os.access(name, os.R_OK):
                raise NmtError(f"{display(path)}: cannot be read (permission denied)")
            key = _stream(status)
        if key is not None and key in streams:
            raise UsageError(f"{display(streams[key])} and {display(path)} are the same stream, which can be read only once")
        if key is not None:
            streams[key] = path


def _stream(status: os.stat_result) -> tuple[int, int] | None:
    """What identifies a pipe, socket or terminal; None for what can be read again, as /dev/null, the empty file."""
    again = stat.S_ISREG(status.st_mode) or stat.S_ISBLK(status.st_mode) or os.path.samestat(status, os.stat(os.devnull))
    return None if again else (status.st_dev, status.st_ino)


def rereadable(path: str | os.PathLike[str]) -> bool:
    """Whether `read_lines` gives the same lines a second time: a regular file, not a pipe or standard input."""
    return os.fspath(path) != "-" and os.path.isfile(path)


def display(path: str | os.PathLike[str]) -> str:
    """An input as messages name it."""
    name = os.fspath(path)
    return "standard input" if name == "-" else name or "''"


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> None: ...


class TextWriter:
    """Writes lines such that `read_lines` gives exactly them back; made by `open_text`."""

    def __init__(self, stream: _Sink) -> None:
        self._stream = stream
        self._first = True

    def write(self, line: str) -> None:
        """One line, without its line feed. ValueError where it holds one."""
        if "\n" in line:
            raise ValueError("a line cannot hold a line feed")
        if self._first and line.startswith(BOM):
            line = BOM + line  # a reader drops one
        if line.endswith("\r"):
            line += "\r"  # a reader drops one
        self._first = False
        self._stream.write(line.encode("utf-8") + b"\n")

    def flush(self) -> None:
        """Hand over what was written so far to whoever reads the stream."""
        self._stream.flush()


def _descriptor(name: str) -> int | None:
    """The number of an open descriptor that `name` is, as /dev/stdout: what stands behind it was opened, and begun, by others."""
    named = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", name)
    return int(named[1]) if named else {"/dev/stdout": 1, "/dev/stderr": 2}.get(name)


def is_stream(name: str) -> bool:
    """Whether an output is written straight: a pipe, a device, what another program has opened; no file with a place."""
    return _descriptor(name) is not None or (os.path.exists(name) and not os.path.isfile(name))


def check_output(path: str | os.PathLike[str], overwrite: bool = True) -> None:
    """Refuse now what `open_text` would refuse later."""
    name = os.fspath(path)
    if sys.stdout is None and (name == "-" or _descriptor(name) == 1):
        raise NmtError("standard output is closed")
    if name == "-":
        return
    if not name:
        raise NmtError("the name of the output is empty")
    check_name(name)
    if os.path.isdir(name):
        raise NmtError(f"{name}: is a directory, not a file")
    straight = is_stream(name)
    if not straight and not overwrite and os.path.isfile(name):  # a pipe or a device loses nothing
        raise NmtError(f"{name}: exists already; give --overwrite to replace it")
    # A file is written beside its place; a pipe or a device is opened itself, whatever directory it stands in.
    place = name if straight else os.path.dirname(os.path.realpath(name))
    if not os.path.exists(place) or not (straight or os.path.isdir(place)):
        raise NmtError(f"{name}: cannot be written ({'not open' if straight else f'no directory {place}'})")
    check_writable(place, name)


@contextmanager
def _stdout() -> Iterator[_Sink]:
    """Standard output, for bytes. NmtError where it cannot take them all; BrokenPipeError where its reader went away."""
    check_output("-")
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:
            raise
        raise NmtError(f"standard output: cannot be written ({reason(error)})") from None


@contextmanager
def open_text(path: str | os.PathLike[str], overwrite: bool = True) -> Iterator[TextWriter]:
    """A writer of lines to `path`; "-" is standard output, names that end in .gz or .xz are compressed.

    A file is written beside its place, renamed into it at success and removed at failure; pipes and devices are written straight.
    Raises NmtError that names the path where it cannot be written, or exists and `overwrite` is not given.
    """
    name = os.fspath(path)
    if name == "-":
        with _stdout() as stream:
            yield TextWriter(stream)
        return
    check_output(path, overwrite)
    target = Path(os.path.realpath(name))
    straight, descriptor = is_stream(name), _descriptor(name)
    written = beside(target)
    # To open a descriptor's file anew would empty it, and write at its beginning.
    place = os.dup(descriptor) if descriptor is not None else name if straight else written
    try:
        stream = open(place, "wb")  # noqa: SIM115  closed below; here only its own errors are told
    except OSError as error:
        raise NmtError(f"{name}: cannot be written ({reason(error)})") from None
    try:
        with stream:
            # No time stamp and no name inside: the same lines give the same bytes.
            if name.endswith(".gz"):
                with gzip.GzipFile(filename="", fileobj=stream, mode="wb", compresslevel=6, mtime=0) as zipped:
                    yield TextWriter(zipped)
            elif name.endswith(".xz"):
                with lzma.LZMAFile(stream, "wb") as xzed:
                    yield TextWriter(xzed)
            else:
                yield TextWriter(stream)
            if not straight:
                stream.flush()
                os.fsync(stream.fileno())
        if not straight:
            os.replace(written, target)
            sync(target.parent)
    except BaseException as error:
        if not straight:
            written.unlink(missing_ok=True)
        if is_full(error):
            raise NmtError(f"{name}: cannot be written ({reason(error)})") from None
        raise
