"""Memory that really does not suffice, and worker processes that are killed: what is finished stays, one line says what to do."""

import json
import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nmt.search import Greedy
from nmt.translate import Options, Translator
from tests.command_line import nmt_started, text, wait_until
from tests.memory import output_of, peak
from tests.toys import config, dataset, run, words

PROGRAM = """
import json, re, resource, sys
from pathlib import Path
from nmt import Translator
from nmt.search import Greedy
from nmt.translate import Options

model, source, spare = sys.argv[1:]
lines = Path(source).read_text().splitlines()
translator = Translator.load(model, device="cpu", threads=1)
list(translator.translate(["a b"], Options(Greedy(), max_length=2)))  # what is loaded late
size = 1024 * int(re.search(r"VmSize:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
resource.setrlimit(resource.RLIMIT_AS, (size + int(spare), resource.RLIM_INFINITY))
found = []
try:
    for each in translator.translate(lines, Options(Greedy(), batch_tokens=1_000_000, max_length=3, max_source=100_000)):
        found.append(each.text)
    error = None
except Exception as raised:
    error = f"{type(raised).__name__}: {raised}"
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
print(json.dumps([found, error]))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of a Transformer that is wide enough for its activations to be most of what is held."""
    place = tmp_path_factory.mktemp("memory")
    data = dataset(place / "corpus", words(60, seed=1), valid=5, tokenizer="bpe", vocab_size=40)
    run(data, place / "run", config("transformer", {"width": 256, "feed_forward": 1024}, max_steps=2, save_every=2, valid_every=2))
    return place


@pytest.mark.parametrize("workers", [1, 2])
def test_a_batch_that_does_not_fit_is_split_and_gives_the_same(place: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    lines = [line for line, _ in words(40, seed=3)]
    options = Options(Greedy(), max_length=5)
    whole = list(Translator.load(place / "run", device="cpu").translate(lines, options))
    search = Translator._search

    def narrow(translator: Translator, batch: list[Any], options: Options) -> list[Any]:
        if len(batch) > 3:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
        return search(translator, batch, options)

    monkeypatch.setattr(Translator, "_search", narrow)
    translator = Translator.load(place / "run", device="cpu")
    translator._workers = workers
    assert list(translator.translate(lines, options)) == whole


def test_a_line_that_does_not_fit_alone_is_named_after_those_before_it(place: Path, tmp_path: Path) -> None:
    peak()
    source = text(tmp_path / "in", "ab cd", "", "abc", "abcdefgh " * 20_000, "d")
    found, error = json.loads(output_of(PROGRAM, place / "run", source, "100000000"))
    assert len(found) == 3
    assert error.startswith("NmtError: out of memory: input line 4 (") and "split it" in error


def children(process: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_a_killed_worker_ends_all_and_finished_lines_are_kept(place: Path, tmp_path: Path) -> None:
    peak()
    source = text(tmp_path / "in", *(line for line, _ in words(8_000, seed=3)))
    partial = tmp_path / "out.nmt-partial"
    more = ("--threads", "2", "--device", "cpu", "--search", "greedy", "--max-length", "5", "-q")
    with nmt_started("translate", place / "run", source, "-o", tmp_path / "out", *more, stderr=subprocess.PIPE) as process:
        wait_until(lambda: partial.exists() and partial.stat().st_size > 0)
        workers = children(process.pid)
        os.kill(workers[0], signal.SIGKILL)
        err = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 1
    assert err == "nmt: error: a worker process was killed, perhaps for lack of memory; use --threads 1, or smaller batches\n"
    assert len(workers) == 2 and not any(Path(f"/proc/{worker}").exists() for worker in workers)
    kept = partial.read_bytes()
    assert kept.endswith(b"\n") and not (tmp_path / "out").exists()


def test_a_full_disk_keeps_finished_lines(place: Path, tmp_path: Path) -> None:
    """A limit of the size of files stands for it."""
    source = text(tmp_path / "in", *(line for line, _ in words(8_000, seed=3)))
    more = ("--threads", "1", "--device", "cpu", "--search", "greedy", "--max-length", "5", "-q")
    with nmt_started("translate", place / "run", source, "-o", tmp_path / "out", *more, stderr=subprocess.PIPE) as process:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (5_000, 5_000))
        err = process.communicate(timeout=100)[1].decode()
    told = f"{tmp_path}/out: cannot be written (file too large); finished lines are kept, go on with --continue"
    assert (process.returncode, err) == (1, f"nmt: error: {told}\n")
    assert (tmp_path / "out.nmt-partial").stat().st_size == 5_000
