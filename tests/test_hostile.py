"""Directories made to do harm: refused in one line that names the file, in little memory, and nothing in them is run.

One process runs all command lines, and is asked after each how much memory it took: to import torch each time would take minutes.
"""

import hashlib
import json
import os
import pickle
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.command_line import text
from tests.memory import ROOT, peak
from tests.toys import config, dataset, run, words

PROGRAM = """
import contextlib, io, json, re, signal, sys
from pathlib import Path
from nmt.allocator import return_fragments
from nmt.cli import main

def held(name):
    return 1024 * int(re.search(name + r":\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

results = []
for words in json.load(sys.stdin):
    told, out = io.StringIO(), io.TextIOWrapper(io.BytesIO())
    return_fragments()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that from now on
    before = held("VmRSS")
    signal.alarm(100)  # which ends all: a pipe would be waited for, a device read, for ever
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(out):
        code = main(words)
    signal.alarm(0)
    results.append((code, told.getvalue(), held("VmHWM") - before))
print(json.dumps(results))
"""
LIMIT = 100_000_000
GIB = 1 << 30


class Bomb:
    """Unpickled, it makes a file."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.mkdir, ("exploded",)


def content(data: bytes, size: int = 0) -> Callable[[Path], object]:
    """A file that begins with `data`, and is of so many bytes, most of which no disk holds."""

    def make(path: Path) -> None:
        path.write_bytes(data)
        os.truncate(path, max(size, len(data)))

    return make


def header(value: object, claimed: int | None = None, size: int = 0) -> Callable[[Path], object]:
    """A file of tensors with this header."""
    whole = json.dumps(value).encode() if not isinstance(value, bytes) else value
    return content(struct.pack("<Q", len(whole) if claimed is None else claimed) + whole, size)


def tensor(count: int, begin: int = 0) -> dict[str, object]:
    return {"dtype": "F32", "shape": [count], "data_offsets": [begin, begin + 4 * count]}


ANY: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "empty": content(b""),
    "10 GiB of no disk": content(b"", 10 * GIB),
    "noise": content(random.Random(1).randbytes(5000)),
    "a pickle": content(pickle.dumps(Bomb())),
    "a pickle of torch": lambda path: torch.save({"weights": Bomb()}, path),
    "a directory": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}
JSON: dict[str, Callable[[Path], object]] = {
    "brackets": content(b"[" * 200_000),
    "objects in objects": content(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "many brackets": content(b"[" + b"[]," * 2_000_000 + b"[]]"),
    "blanks": content(b" " * 20_000_000),
    "thousands of digits": content(b"1" * 5000),
    "no number": content(b'{"format": NaN}'),
    "a number without end": content(b'{"format": 1e999}'),
    "null": content(b"null"),
}
TENSORS: dict[str, Callable[[Path], object]] = {
    "a header of 2^63 bytes": header({}, 1 << 63),
    "a header of -1 bytes": header({}, (1 << 64) - 1),
    "many tensors": header({f"a{number}": tensor(0) for number in range(300_000)}),
    "terabytes": header({"a": tensor(10**12)}),
    "10 GiB of no disk, as it says": header(json.dumps({"a": tensor(GIB)}).encode().ljust(200), size=208 + 4 * GIB),
    "negative": header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, size=100),
    "overlapping": header({"a": tensor(4), "b": tensor(4)}, size=1000),
    "twice the same": header(b'{"a":%b,"a":%b}' % ((json.dumps(tensor(1)).encode(),) * 2), size=1000),
}


def forged(changes: dict[str, Any]) -> Callable[[Path], object]:
    """config.json with other values, and the checksum that belongs to them."""

    def make(path: Path) -> None:
        value = json.loads((path.parent.parent / "kept").read_text())
        del value["sha256"]
        for key, change in changes.items():
            value[key] = {**value[key], **change} if isinstance(change, dict) else change
        value["sha256"] = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
        path.write_text(json.dumps(value))

    return make


FORGED: dict[str, Callable[[Path], object]] = {
    "a width of 10^9": forged({"model": {"width": 10**9}}),
    "a width of 10^6": forged({"model": {"width": 10**6}}),
    "10^9 layers": forged({"model": {"layers": 10**9}}),
    "10^6 layers": forged({"model": {"layers": 10**6}}),
    "settings of no kind": forged({"model": []}),
    "checksums of no kind": forged({"checksums": ["source.model", "target.model"]}),
    "no vocabulary": forged({"vocabulary": None}),
    "layers of no number": forged({"model": {"layers": [1]}}),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a run of an RNN on it, and the same without checkpoints and log: a model."""
    place = tmp_path_factory.mktemp("good")
    data = dataset(place / "corpus", words(60, seed=1), valid=5, tokenizer="bpe", vocab_size=40)
    run(data, place / "run", config("rnn", max_steps=2, save_every=1, valid_every=2))
    shutil.copytree(data.path, place / "data")
    shutil.copytree(place / "run", place / "model")
    shutil.rmtree(place / "model" / "checkpoints")
    text(place / "text", "abc", "d")
    return place


def results(commands: list[list[str]], cwd: Path) -> list[tuple[int, str, int]]:
    """Exit code, stderr and memory taken of each command line; the first is not to be counted, since it imports."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(commands),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        cwd=cwd,
        env=environment,
    )
    assert done.returncode == 0, "none came back from one of the commands"
    return [tuple(each) for each in json.loads(done.stdout)]


def commands(kind: str, place: str) -> dict[str, list[str]]:
    """The command lines that read a directory of this kind."""
    cpu = ["--device=cpu", "--threads=1", "-q"]
    small = ["--backend=rnn", "--set=train.max_steps=1", "--set=model.layers=1", "--set=model.width=16", "--set=model.embedding=16"]
    borrowing = ["preprocess", "corpus/train.0", "corpus/train.1", "-o", "made", "--vocab-from", place, "-q"]
    if kind == "data":
        found = {"train": ["train", place, "-o", "made", *small, *cpu], "borrow": borrowing, "info": ["info", place]}
        return {**found, "report": ["report", "run", "--data", place, "-o", "page", "--overwrite", *cpu]}
    return {
        "translate": ["translate", place, "text", "--search=greedy", "--max-length=3", *cpu],
        "info": ["info", place],
        "average": ["average", place, "model", "-o", "made", "-q"],
        "logprob": ["logprob", place, "text", "text", *cpu],
        "ensemble": ["translate", "model", "text", "--ensemble", place, "--max-length=3", *cpu],
        "init": ["train", "data", "-o", "made", "--init-from", place, *small, *cpu],
        "export": ["export", place, "--format=ctranslate2", "-o", "made", "-q"],
        "borrow": borrowing,
        "report": ["report", place, "-o", "page", "--overwrite", *cpu],
    }


FEW = {key: {**ANY, **JSON}[key] for key in ("empty", "10 GiB of no disk", "a pipe", "a device", "a pickle", "brackets")}

FILES: list[tuple[str, str, str, dict[str, Callable[[Path], object]]]] = [
    # kind, file, the command that meets all, what stands in the file's place
    ("model", "config.json", "translate", {**ANY, **JSON, **FORGED}),
    ("model", "model.safetensors", "translate", {**ANY, **TENSORS}),
    ("model", "source.model", "translate", ANY),
    ("model", "target.model", "logprob", ANY),
    ("run", "log.jsonl", "info", {"10 GiB of no disk": ANY["10 GiB of no disk"]}),
    ("run", "checkpoints/step-2/state.json", "report", FEW),
    ("run", "report.json", "report", FEW),
    ("data", "config.json", "train", {**ANY, **JSON}),
    ("data", "report.json", "train", FEW),
    ("data", "source.model", "train", ANY),
    ("data", "train.source.tokens", "train", ANY),
    ("data", "train.target.offsets", "train", ANY),
    ("data", "valid.source.txt", "train", ANY),
]
SOME = ("10 GiB of no disk", "a pipe", "brackets", "many tensors")
"""What all commands meet."""

UNREAD = {("model.safetensors", "borrow"), ("train.source.tokens", "borrow"), ("train.target.offsets", "borrow")}
UNREAD |= {("valid.source.txt", "borrow"), ("valid.source.txt", "info"), ("report.json", "borrow"), ("report.json", "info")}


def test_what_is_made_to_harm_is_refused(good: Path, tmp_path: Path) -> None:
    peak()  # skips where there is no telling
    for each in ("data", "run", "model", "corpus", "text"):
        os.symlink(good / each, tmp_path / each)
    asked = [commands("model", "model")["translate"]]
    told: list[tuple[str, str]] = []
    for kind, file, command, harms in FILES:
        for name, make in harms.items():
            place = tmp_path / f"{kind}, {Path(file).name}, {name}"
            shutil.copytree(good / kind, place)
            harmed = place / file
            harmed.rename(tmp_path / "kept")
            make(harmed)
            known = commands(kind, place.name)
            for word in dict.fromkeys([command, *(known if name in SOME and kind != "run" else ())]):
                if (harmed.name, word) not in UNREAD:
                    asked.append(known[word])
                    told.append((word, place.name))
    (code, err, _), *found = results(asked, tmp_path)
    assert code == 0, err
    wrong = []
    for (word, refused), (code, err, taken) in zip(told, found, strict=True):
        what = f"{word}, {refused}: {code}, {taken:,} bytes, {err}"
        if word == "report" and code == 0:  # a page that tells what it lacks
            fine = err == ""
        else:
            fine = code == 1 and err.startswith(f"nmt: error: {refused}") and err.count("\n") == 1 and "unexpected" not in err
        if not fine or taken > LIMIT:
            wrong.append(what)
    assert not wrong, "\n".join(wrong)
    assert not (tmp_path / "exploded").exists()
