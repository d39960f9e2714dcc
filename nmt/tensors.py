"""Files of tensors (safetensors) that know their own checksum and whom they belong to."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nmt.data.files import reason, sync
from nmt.errors import NmtError, WriteError

MOST_HEADER = 1 << 23
"""Bytes of the header of a file, which names its tensors, some hundreds. To read it takes several times as much memory."""

HINT = "a damaged checkpoint can be deleted, to go on with the one before it"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], owner: str) -> str:
    """Writes `path` in one step; returns the checksum of the tensors and of `owner`, which is stored beside them.

    No two tensors may share memory.
    """
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    checksum = _checksum(ready, owner)
    # A directory: safetensors writes beside its target first, under a name of its own that nobody would know after a kill.
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    file = partial / path.name
    try:
        partial.mkdir()
        file.touch()
        mode = file.stat().st_mode  # of a file made here: safetensors keeps its own from everybody else
        save_file(ready, file, metadata={"sha256": checksum})  # one key: several would be written in no fixed order
        file.chmod(mode)
        sync(file)
        os.replace(file, path)
        partial.rmdir()
        sync(path.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        cause = error if isinstance(error, OSError) else _system_error(error)
        raise WriteError(f"{path}: cannot be written ({reason(cause)})") from cause
    return checksum


def _system_error(error: SafetensorError) -> OSError:
    """What safetensors was told by the system, whose number it has at the end of its own words."""
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))


def known_name(path: Path, stream: BinaryIO) -> str:
    """What safetensors can open the file by, which `stream` reads: a name that is not UTF-8 is none for it."""
    name = os.fspath(path)
    return name if _has_utf8(name) else f"/dev/fd/{stream.fileno()}"


def _has_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def opened(path: Path, framework: str = "pt") -> Iterator[Any]:
    """What safetensors knows of a file. NmtError where it is missing or damaged, which may show later, when something is read.

    safetensors believes no header before it has compared it with the file's length, so a forged one takes no memory.
    """
    if not path.is_file():
        raise NmtError(f"{path}: no such file; {HINT}")
    try:
        with open(path, "rb") as stream:
            header = int.from_bytes(stream.read(8), "little")
            if header > MOST_HEADER:
                raise ValueError(f"a header of {header:,} bytes")
            with safe_open(known_name(path, stream), framework=framework) as file:
                yield file
    except (SafetensorError, OSError, RuntimeError, ValueError, KeyError) as error:
        raise NmtError(f"{path}: is damaged or not a safetensors file ({error}); {HINT}") from error


def count_tensors(path: Path) -> int:
    """How many there are in a file."""
    with opened(path) as file:
        return len(file.keys())


def stored_checksum(path: Path) -> str:
    """The checksum that is written in a file."""
    with opened(path) as file:
        return str((file.metadata() or {}).get("sha256"))


def read_tensors(path: Path, owner: str, expected: Mapping[str, Tensor] | None = None) -> tuple[dict[str, Tensor], str]:
    """The tensors, on the CPU, and their checksum. NmtError for a file that is missing, damaged, or not `owner`'s.

    Nothing is read of a file whose tensors do not have the names and shapes of those `expected`.
    """
    with opened(path) as file:
        claimed = (file.metadata() or {}).get("sha256")
        if expected is not None:
            _check_names(expected, {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}, path)  # noqa: SIM118
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    checksum = _checksum(tensors, owner)
    if checksum != claimed:
        raise NmtError(f"{path}: is damaged, or belongs to another model than the files beside it; {HINT}")
    return tensors, checksum


def _check_names(expected: Mapping[str, Tensor], found: Mapping[str, tuple[int, ...]], path: Path) -> None:
    for name in sorted(expected.keys() | found.keys()):
        here, there = tuple(expected[name].shape) if name in expected else None, found.get(name)
        if here != there:
            raise NmtError(f"{path}: its tensor {name} has the shape {there}, and the settings ask for {here}")


def _checksum(tensors: Mapping[str, Tensor], owner: str) -> str:
    """Of what the file means and not of its bytes: names, types, shapes, numbers."""
    total = hashlib.sha256(owner.encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
