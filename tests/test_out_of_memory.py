"""Memory that really does not suffice, and worker processes that are killed: what is finished stays, one line says what to do."""

import json
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from tests.command_line import nmt_started, text, wait_until
from tests.memory import output_of, peak
from tests.toys import config, dataset, run, words

PROGRAM = """
import json, re, resource, sys
from pathlib import Path
from nmt import Translator, stream
from nmt.cli import main
from nmt.search import Greedy
from nmt.translate import Options

model, source, spare, workers, output = sys.argv[1:]
lines = Path(source).read_text().splitlines()
translator = Translator.load(model, device="cpu", threads=1)
translator._workers = int(workers)
list(translator.translate(["a b"], Options(Greedy(), max_length=2)))  # what is loaded late
failures = Path(output)
told = stream._out_of_memory

def counted(error):
    with failures.open("a") as counts:
        counts.write("." * told(error))
    return told(error)

stream._out_of_memory = counted
size = 1024 * int(re.search(r"VmSize:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
if int(spare):
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
def test_a_batch_that_does_not_fit_is_split_and_gives_the_same(place: Path, tmp_path: Path, workers: int) -> None:
    peak()  # skips where there is no telling
    source = text(tmp_path / "in", *("abcdefgh " * 150 + line for line, _ in words(60, seed=3)))
    wide, narrow = (
        json.loads(output_of(PROGRAM, place / "run", source, str(spare), str(workers), tmp_path / f"failures-{spare}"))
        for spare in (0, 100_000_000)
    )
    assert wide == narrow and wide[1] is None and len(wide[0]) == 60
    assert not (tmp_path / "failures-0").exists()
    assert (tmp_path / "failures-100000000").stat().st_size > 1


def test_a_line_that_does_not_fit_alone_is_named_after_those_before_it(place: Path, tmp_path: Path) -> None:
    peak()
    source = text(tmp_path / "in", "ab cd", "", "abc", "abcdefgh " * 20_000, "d")
    found, error = json.loads(output_of(PROGRAM, place / "run", source, "100000000", "1", tmp_path / "failures"))
    assert len(found) == 3
    assert error.startswith("NmtError: out of memory: input line 4 (") and "split it" in error


def children(process: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_a_killed_worker_ends_all_and_finished_lines_are_kept(place: Path, tmp_path: Path) -> None:
    peak()
    source = text(tmp_path / "in", *(line for line, _ in words(30_000, seed=3)))
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
    source = text(tmp_path / "in", *(line for line, _ in words(30_000, seed=3)))
    more = ("--threads", "1", "--device", "cpu", "--search", "greedy", "--max-length", "5", "-q")
    with nmt_started("translate", place / "run", source, "-o", tmp_path / "out", *more, stderr=subprocess.PIPE) as process:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
        err = process.communicate(timeout=100)[1].decode()
    words_ = f"{tmp_path}/out: cannot be written (file too large); finished lines are kept, go on with --continue"
    assert (process.returncode, err) == (1, f"nmt: error: {words_}\n")
    assert (tmp_path / "out.nmt-partial").stat().st_size == 20_000
