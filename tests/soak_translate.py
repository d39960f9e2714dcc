"""Translates in one go, then the same with kills at many moments and `--continue` after each, and compares the bytes of the two.

    make soak-translate                        40 stops of each job
    python -m tests.soak_translate --stops 5   fewer

Stops are SIGKILL, SIGTERM, Ctrl-C and a full disk; their moments are random, from the start of the process to its end, so that some
fall into a half-written line, and into the renaming. Prints a line a job; the exit code is 1 where anything differs.
"""

import argparse
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak import Life
from tests.toys import TINY, dataset, words

ENDS = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGINT: 128 + signal.SIGINT}
"""Exit codes of what a signal has stopped."""

SAMPLING = ("--search", "sample", "--seed", "3", "--temperature", "0.7")
LISTS = ("--format", "jsonl", "--n-best", "3")


@dataclass(frozen=True)
class Job:
    """A command line without its output: inputs, options, whether they go to a directory, or come from `< file`."""

    options: Sequence[str]
    inputs: int = 3
    to_directory: bool = False
    from_stdin: bool = False
    backend: str = "rnn"
    counts: Counter[str] = field(default_factory=Counter)


JOBS = {
    "greedy, three files to one": Job(("--search", "greedy")),
    "beam, lists, three files to a directory": Job(("--beam-size", "3", *LISTS), to_directory=True, backend="transformer"),
    "samples, lists, < file, two processes": Job((*SAMPLING, *LISTS, "--threads", "2"), 1, from_stdin=True),
    "beam, scores and links, small batches": Job(("--beam-size", "2", "--scores", "--alignments", "--batch-tokens", "300"), 1),
}


def texts(place: Path, lines: int) -> list[Path]:
    """Three files with blank and overlong lines; the second is empty."""
    sides = [source for source, _ in words(lines, seed=5)]
    for number in range(0, lines, 7):
        sides[number] = ("", " \u3000", " ".join(sides[:5]) * 3)[number % 3]
    paths = [place / name for name in ("one", "two", "three")]
    for path, part in zip(paths, (sides[: lines // 2], [], sides[lines // 2 :]), strict=True):
        path.write_text("".join(f"{line}\n" for line in part))
    return paths


def command(job: Job, runs: Path, inputs: Sequence[Path], output: Path, again: bool) -> subprocess.Popen[str]:
    """The process, begun."""
    fixed = ["--max-length", "12", "--max-source", "60", "--device", "cpu", "-o", f"{output}/" if job.to_directory else str(output)]
    threads = [] if "--threads" in job.options else ["--threads", "1"]
    named = [] if job.from_stdin else [str(path) for path in inputs[: job.inputs]]
    line = [sys.executable, "-m", "nmt", "translate", str(runs / job.backend), *named, *fixed, *threads, *job.options]
    stdin = open(inputs[0]) if job.from_stdin else None  # noqa: SIM115  the child's
    try:
        return subprocess.Popen([*line, *(["--continue"] if again else [])], stdin=stdin, stderr=subprocess.PIPE, text=True)
    finally:
        if stdin:
            stdin.close()


def everything(output: Path) -> dict[str, bytes]:
    """The bytes of all files that are there for the sake of an output, by name."""
    beside = [*output.parent.glob(f"{output.name}*"), *output.parent.glob(f".{output.name}*")]
    files = [file for path in beside for file in (path.iterdir() if path.is_dir() else [path])]
    return {str(file.relative_to(output.parent)): file.read_bytes() for file in files}


def wrong(job: Job, runs: Path, inputs: Sequence[Path], place: Path, stops: int, chance: random.Random) -> list[str]:
    """What differs at the end of a job stopped so many times, in the new directory `place`."""
    (place / "whole").mkdir(parents=True)
    (place / "stopped").mkdir()
    began = time.monotonic()
    whole = command(job, runs, inputs, place / "whole" / "out", False)
    errors = whole.communicate()[1]
    took = time.monotonic() - began
    if whole.returncode:
        raise RuntimeError(f"nmt translate ended with {whole.returncode}: {errors.strip()}")
    right = everything(place / "whole" / "out")
    output = place / "stopped" / "out"
    if not job.to_directory:
        output.write_text("of an older job\n")  # whoever goes on does not take it for done
    faults, again = [], False
    for _ in range(stops):
        process = command(job, runs, inputs, output, again)
        number = chance.choice((*ENDS, signal.SIGXFSZ))
        if number == signal.SIGXFSZ:  # no file may become longer: as on a full disk, but for the words
            time.sleep(0.1)
            most = chance.randint(0, max(map(len, right.values())))
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
        else:
            ready = time.monotonic() + chance.uniform(0, 1.1 * took)
            while time.monotonic() < ready and process.poll() is None:
                time.sleep(0.001)
            # Nothing unfinished is there before the process has looked at its arguments.
            while not again and process.poll() is None and not any("nmt-partial" in name for name in everything(output)):
                time.sleep(0.001)
            process.send_signal(number)
        errors = process.communicate()[1]
        code = process.returncode
        lines = errors.splitlines()
        if code == 0:
            job.counts["ended"] += 1
            found = everything(output)
            if found != right:
                others = sorted(name for name in found.keys() | right.keys() if found.get(name) != right.get(name))
                faults.append(f"ended with other bytes in {', '.join(others)}, after {'--continue' if again else 'no stop'}")
            shutil.rmtree(output) if job.to_directory else output.unlink()
            if not job.to_directory:
                output.write_text("of an older job\n")
            again = False
            continue
        # Where not even a line was kept, and an older output stands there, there is nothing to go on with.
        again = any("nmt-partial" in name for name in everything(output))
        job.counts[signal.Signals(number).name if number != signal.SIGXFSZ else "no room"] += 1
        job.counts["half a line left"] += any(
            data and not data.endswith(b"\n") for name, data in everything(output).items() if name.endswith("nmt-partial")
        )
        if number == signal.SIGXFSZ:
            if code != 1 or "cannot be written (file too large)" not in (lines or [""])[-1]:
                faults.append(f"no room: {code}, {errors!r}")
        elif code not in (ENDS[number], -number):  # a signal before there is a handler
            faults.append(f"{number.name}: {code}, {errors!r}")
    last = command(job, runs, inputs, output, again)
    errors = last.communicate()[1]
    if last.returncode:
        return [*faults, f"the last: {last.returncode}, {errors!r}"]
    found = everything(output)
    faults += [f"{name}: left over" for name in sorted(found.keys() - right.keys())]
    return faults + [f"{name}: differs" for name in right if found.get(name) != right[name]]


def soak(place: Path, jobs: dict[str, Job], stops: int, lines: int, seed: int) -> list[str]:
    """All of `jobs`, in the existing directory `place`; what is wrong."""
    data = dataset(place / "corpus", words(200, seed=1), valid=10, tokenizer="bpe", vocab_size=60).path
    for backend in {job.backend for job in jobs.values()}:
        settings = [f"model.{key}={value}" for key, value in TINY[backend].items()]
        told = ["--set" if odd else each for each in settings for odd in (True, False)]
        train = [sys.executable, "-m", "nmt", "train", str(data), "-o", str(place / backend), "--backend", backend, "-q"]
        Life([*train, "--max-steps", "3", "--device", "cpu", "--threads", "1", *told], place / backend, place).end()
    inputs = texts(place, lines)
    faults = []
    for number, (name, job) in enumerate(jobs.items()):
        chance = random.Random(f"{seed} {name}")
        found = wrong(job, place, inputs, place / f"job-{number}", stops, chance)
        faults += [f"{name}: {each}" for each in found]
        counts = ", ".join(f"{count} {what}" for what, count in sorted(job.counts.items()) if count)
        verdict = f"{len(found)} FAULTS: {'; '.join(found)}" if found else "the same bytes, nothing left over"
        print(f"{name}: {stops} stops ({counts}): {verdict}", flush=True)
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stops", type=int, default=40, help="of each job")
    parser.add_argument("--lines", type=int, default=3000, help="to translate")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="soak-"))
    faults = soak(place, JOBS, given.stops, given.lines, given.seed)
    if faults:
        print(f"the files are in {place}")
    else:
        shutil.rmtree(place)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
