"""Output places: directories and JSON files.

They are written beside their place and renamed into it, so that what has the final name is whole.
"""

import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeGuard

from nmt.errors import NmtError, WriteError

WRITTEN = {
    "data": r"(config|report)\.json|(source|target)\.model|valid\.(source|target)\.txt"
    r"|(train|valid)\.(source|target)\.(tokens|offsets)",
    "model": r"config\.json|(source|target)\.model|model\.safetensors",
    "export": r"config\.json|(source|target)\.model|model\.bin|(source|target|shared)_vocabulary\.json|README\.md",
}
"""The names of all files of a directory of each kind; whatever else stands in one, nmt did not put there."""

LONGEST_NAME = 255
"""Bytes, on the usual file systems."""


MOST_JSON = 1 << 23
"""Bytes of a JSON file of ours: what is longer was not written by nmt, and would take many times its size of memory."""

MOST_BRACKETS = 100_000
"""Of a JSON file: each object takes a hundred bytes and more."""


def reason(error: OSError) -> str:
    """The system's words for an error, without number and path."""
    return (error.strerror or str(error)).lower()


def shown(path: str | os.PathLike[str]) -> str:
    """A name as data can hold it, whatever the locale: UTF-8, with other bytes as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def sibling(target: Path, before: str, after: str) -> Path:
    """The name of `target` with something before and after it; a digest in its place where that would be too long for a name."""
    name = f"{before}{target.name}{after}"
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = f"{before}{hashlib.sha256(os.fsencode(target.name)).hexdigest()}{after}"
    return target.parent / name


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """What the system refuses within becomes a WriteError that names `path`."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{os.fspath(path)}: cannot be written ({reason(error)})") from error


def beside(target: Path) -> Path:
    """A hidden sibling that no other process uses."""
    return sibling(target, ".", f".{os.getpid()}.partial")


def check_writable(place: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """NmtError that names `path` where nothing can be written into `place`."""
    if not os.access(place, os.W_OK):
        fixed = os.statvfs(place).f_flag & os.ST_RDONLY
        raise NmtError(f"{os.fspath(path)}: cannot be written ({'read-only file system' if fixed else 'permission denied'})")


def check_name(path: str | os.PathLike[str]) -> None:
    """NmtError where nothing can have this name: it is too long, a link to itself, in a directory that may not be searched."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass  # may be made, or the parent is what is wrong with it
    except OSError as error:
        raise NmtError(f"{os.fspath(path)}: cannot be written ({reason(error)})") from None


def sync(path: Path) -> None:
    """Have the disk hold a directory's entries, or a file's bytes, before anything relies on them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def made_as(directory: Path) -> Literal["data", "model", "export"] | None:
    """What nmt made a directory as, by its config.json; None where it did not.

    Data, a model (a run or a checkpoint too), or a model in the format of another program.
    """
    try:
        config = read_json(directory / "config.json")
    except NmtError:
        return None
    if not isinstance(config, dict) or "format" not in config:
        return None
    if config.get("kind") == "data":
        return "data"
    if config.get("kind") == "export":
        return "export"
    return "model" if "checksums" in config else None


@contextmanager
def open_file(path: Path, most: int | None = None) -> Iterator[BufferedReader]:
    """A file of ours, to be read. NmtError where it is missing or unreadable, or has more bytes than `most`.

    Nor may it be anything but a file: a pipe would be waited for, and a device may have no end.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise NmtError(f"{path}: is a {'directory' if path.is_dir() else 'pipe or device'}, not a file")
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if most is not None and size > most:
                raise NmtError(f"{path}: has {size:,} bytes, more than nmt writes into it ({most:,}): it is damaged, or not of nmt")
            yield stream
    except FileNotFoundError:
        raise NmtError(f"{path}: no such file") from None
    except OSError as error:
        raise NmtError(f"{path}: cannot be read ({reason(error)})") from None


def checksum(path: Path, most: int | None = None) -> str:
    """The sha256 of a file's bytes. NmtError as `open_file` has it."""
    with open_file(path, most) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_outside_runs(path: str | os.PathLike[str]) -> None:
    """NmtError where `path` is to be made among the checkpoints of a run, which would take it for one of them."""
    for place in (os.path.abspath(path), os.path.realpath(path)):
        for parent in Path(place).parents:
            if parent.name == "checkpoints" and made_as(parent.parent) == "model":
                raise NmtError(f"{os.fspath(path)}: is among the checkpoints of the run {parent.parent}; choose another place")


def check_directory(path: str | os.PathLike[str], overwrite: bool, inputs: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Refuse now what `new_directory` would refuse: NmtError where `path` is a file, or holds something and may not be replaced.

    Nor may it be where it holds one of `inputs`, which would be gone with it, a run's checkpoints, or anything that nmt does not
    write into such a directory.
    """
    check_name(path)
    target = Path(path)
    if target.is_symlink() and not target.exists():
        raise NmtError(f"{target}: is a link to nothing")
    if not target.exists():
        return
    if not target.is_dir():
        raise NmtError(f"{target}: exists and is not a directory")
    if not any(target.iterdir()):
        return
    if not overwrite:
        raise NmtError(f"{target}: exists already and is not empty; give --overwrite to replace it")
    made = made_as(target)
    if made is None:  # never delete a directory that we did not write: a home, a corpus
        raise NmtError(f"{target}: is not a directory that nmt wrote, so --overwrite does not replace it; choose another place")
    if (target / "checkpoints").is_dir():
        raise NmtError(f"{target}: is a run, and --overwrite does not delete its checkpoints; choose another place")
    for each in inputs:
        if os.fspath(each) != "-" and Path(os.path.realpath(each)).is_relative_to(os.path.realpath(target)):
            raise NmtError(f"{target}: holds {os.fspath(each)}, which is to be read, and would replace it; choose another place")
    strangers = [child.name for child in target.iterdir() if child.is_dir() or not re.fullmatch(WRITTEN[made], child.name)]
    if strangers:
        raise NmtError(
            f"{target / min(strangers)}: does not belong to the {made} in {target}, and --overwrite would delete it; "
            "move it, or choose another place"
        )


@contextmanager
def new_directory(path: str | os.PathLike[str], overwrite: bool) -> Iterator[Path]:
    """A temporary directory beside `path` that is renamed to it at success, all synced, and removed at failure.

    Raises NmtError as `check_directory` does, and where the place cannot be written.
    """
    check_directory(path, overwrite)
    target = Path(os.path.realpath(path))
    partial = beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)  # of a killed process that had our number
        partial.mkdir()
    except OSError as error:
        raise WriteError(f"{os.fspath(path)}: cannot be written ({reason(error)})") from None
    try:
        yield partial
        for parent, _, files in os.walk(partial):
            for file in files:
                sync(Path(parent, file))
            sync(Path(parent))
        check_directory(path, overwrite)
        if target.exists():
            replaced = partial.with_suffix(".old")
            os.rename(target, replaced)
            try:
                os.rename(partial, target)
            except BaseException:  # a signal too
                if not target.exists():
                    os.rename(replaced, target)
                raise
            shutil.rmtree(replaced)
        else:
            os.rename(partial, target)
        sync(target.parent)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        # A file's own message names a place that is gone now.
        cause = (error.__cause__ or error.__context__) if isinstance(error, NmtError) else error
        if cause is not None and is_full(cause):
            raise WriteError(f"{os.fspath(path)}: cannot be written ({reason(cause)})") from None
        raise


def is_full(error: BaseException) -> TypeGuard[OSError]:
    """Whether there is no room left: the system does not say for which file."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """`value` as indented UTF-8 JSON, in place of what was there in one step. Raises NmtError where it cannot be written."""
    target = Path(path)
    partial = beside(target)
    # A lone surrogate (a file name's odd byte) has no UTF-8; its backslash form is just what JSON writes for it.
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace") + b"\n"
    try:
        with open(partial, "wb") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, target)
        sync(target.parent)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise WriteError(f"{target}: cannot be written ({reason(error)})") from None


def sealed(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """`value` with its own checksum as `key`."""
    return {**value, key: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()}


def unsealed(path: Path, value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The inverse, for what was read from `path`. NmtError if anything was changed."""
    content = {name: part for name, part in value.items() if name != key}
    if sealed(content, key)[key] != value.get(key):
        raise NmtError(f"{path}: is damaged or was edited: it does not have the checksum it was written with")
    return content


def read_json(path: str | os.PathLike[str], most: int = MOST_JSON) -> Any:
    """The value in a JSON file of at most `most` bytes. Raises NmtError that names the file, and the line where it is malformed."""
    name = os.fspath(path)

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"it holds {constant}")

    def number(text: str) -> float:
        return value if math.isfinite(value := float(text)) else refuse(text)

    with open_file(Path(path), most) as stream:
        content = stream.read()
    if content.count(b"{") + content.count(b"[") > MOST_BRACKETS:
        raise NmtError(f"{name}: has more brackets than nmt writes into it: it is damaged, or not of nmt")
    try:
        return json.loads(content, parse_float=number, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise NmtError(f"{name}, line {error.lineno}: not valid JSON ({error.msg.lower()})") from None
    except UnicodeDecodeError:
        raise NmtError(f"{name}: not valid JSON (not UTF-8)") from None
    except RecursionError:
        raise NmtError(f"{name}: not valid JSON (nested too deeply)") from None
    except ValueError as error:  # a number that is none, or of thousands of digits
        raise NmtError(f"{name}: not valid JSON ({str(error).partition(';')[0].lower()})") from None
