"""Measures that memory does not follow the size of the input, nor time: a table of the commands' peaks, through the command line.

    make memory                       all of it (30 minutes on two cores)
    python -m tests.soak_memory train --updates 2000    one part, less of it

What is measured is what a command and its worker processes hold together: the sum of their proportional shares ("Pss" of Linux's
/proc: a page that several share counts once), asked again and again. The exit code is 1 where something grows.
"""

import argparse
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.soak import last_logged
from tests.toys import TINY

PAIRS = (30_000, 300_000, 1_000_000)
LINES = (1_000, 10_000, 100_000)
UPDATES = 10_000
SAMPLES = 20
"""Of a training, at equal distances."""

GROWTH = 1.25
"""The most that the peak of the largest input may be of that of the one before it. Smaller ones do not fill all that is bounded:
the sample that subwords are trained on, the kernels of oneDNN.
"""

DRIFT = 0.05
"""By so much the last fifth of a training may hold more than the second."""

MIB = 1 << 20


def corpus(place: Path, count: int) -> tuple[Path, Path]:
    """Two texts of `count` lines, of words as frequent as those of languages are."""
    chance = random.Random(count)
    stock = ["".join(chance.choices("abcdefghijklmnopqrst", k=chance.randint(2, 9))) for _ in range(20_000)]
    cumulative = list(itertools.accumulate(1 / rank for rank in range(1, len(stock) + 1)))
    paths = place / f"{count}.source", place / f"{count}.target"
    with open(paths[0], "w") as source, open(paths[1], "w") as target:
        for _ in range(count):
            words = chance.choices(stock, cum_weights=cumulative, k=chance.randint(3, 20))
            source.write(" ".join(words) + "\n")
            target.write(" ".join(word[::-1] for word in reversed(words)) + "\n")
    return paths


def held(process: int) -> int:
    """Bytes that a process and those it has started hold now; 0 where it has ended."""
    try:
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0
    own = next((1024 * int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return own + sum(held(int(child)) for child in children)


def watched(words: Sequence[str | Path], seen: Callable[[int], object], stdin: Path | None = None, pause: float = 0.02) -> None:
    """Runs `nmt WORDS` to its end and tells `seen` its number every `pause` seconds; `stdin` comes through a pipe."""
    command = [sys.executable, "-m", "nmt", *map(str, words)]
    feeder = subprocess.Popen(["cat", stdin], stdout=subprocess.PIPE) if stdin else None
    with subprocess.Popen(command, stdin=feeder.stdout if feeder else None, stderr=subprocess.PIPE, text=True) as process:
        if feeder and feeder.stdout:
            feeder.stdout.close()
        while process.poll() is None:
            seen(process.pid)
            time.sleep(pause)
        errors = process.stderr.read() if process.stderr else ""
    if feeder:
        feeder.wait()
    if process.returncode:
        raise RuntimeError(f"nmt {words[0]} ended with {process.returncode}: {errors.strip()}")


def peak(words: Sequence[str | Path], stdin: Path | None = None) -> int:
    """The most that was seen of `nmt WORDS`."""
    most = 0

    def look(process: int) -> None:
        nonlocal most
        most = max(most, held(process))

    watched(words, look, stdin)
    return most


def row(what: str, sizes: Sequence[int], peaks: Sequence[int]) -> bool:
    """Prints a line of the table; whether memory follows the size."""
    ratio = peaks[-1] / peaks[-2]
    cells = ", ".join(f"{size:,}: {each / MIB:,.0f} MiB" for size, each in zip(sizes, peaks, strict=True))
    print(f"{what}: {cells}; the last is {ratio:.2f} of the one before{' GROWS' if ratio > GROWTH else ''}", flush=True)
    return ratio > GROWTH


def preprocess(place: Path, sizes: Sequence[int]) -> bool:
    """Of corpora of so many pairs."""
    texts = [corpus(place, size) for size in sizes]
    grows = False
    for workers in (1, 2):
        output, fixed = place / "data", ["--overwrite", "--quiet", "--tokenizer", "bpe", "--vocab-size", "4000"]
        peaks = [peak(["preprocess", *pair, "-o", output, "--workers", str(workers), *fixed]) for pair in texts]
        grows |= row(f"preprocess, bpe, {workers} workers" if workers > 1 else "preprocess, bpe", sizes, peaks)
    return grows


def tiny_run(place: Path, backend: str, *more: str) -> list[str | Path]:
    """The words that train a network of `backend` on a small corpus, which is made here."""
    data = place / "small"
    if not data.exists():
        watched(["preprocess", *corpus(place, 2_000), "-o", data, "--vocab-size", "300", "--valid-size", "50", "-q"], bool)
    settings = [f"model.{key}={value}" for key, value in TINY[backend].items()]
    words = [word for setting in settings for word in ("--set", setting)]
    return ["train", data, "-o", place / backend, "--backend", backend, "--device", "cpu", "--threads", "1", "-q", *words, *more]


def translate(place: Path, sizes: Sequence[int]) -> bool:
    """Of texts of so many lines, greedily."""
    watched(tiny_run(place, "transformer", "--max-steps", "20", "--overwrite"), bool)
    texts = [corpus(place, size)[0] for size in sizes]
    grows = False
    for threads in (1, 2):
        # A limit: a network that has learned little does not know when to end.
        fixed: list[str | Path] = ["translate", place / "transformer", "--search", "greedy", "--max-length", "20", "-q"]
        fixed += ["--threads", str(threads), "-o", place / "out"]
        for piped in (False, True):
            peaks = [peak(fixed, text) if piped else peak([*fixed, text]) for text in texts]
            who = "one process" if threads == 1 else f"{threads} worker processes"
            grows |= row(f"translate, {'a pipe' if piped else 'a file'}, {who}", sizes, peaks)
    return grows


def train(place: Path, updates: int) -> bool:
    """Of a network of each backend, at equal distances in its training."""
    grows = False
    for backend in TINY:
        often = {"train.save_every": 500, "train.valid_every": 500, "train.log_every": 10, "train.batch_tokens": 512}
        often |= {"data.bpe_dropout": 0.1, "train.max_steps": updates, "train.warmup": 400, "train.keep_last": 2}
        words = tiny_run(place, backend, *(word for key, value in often.items() for word in ("--set", f"{key}={value}")))
        shutil.rmtree(place / backend, ignore_errors=True)
        sums, counts = [0] * SAMPLES, [0] * SAMPLES

        def look(process: int, backend: str = backend, sums: list[int] = sums, counts: list[int] = counts) -> None:
            step = last_logged(place / backend)
            size = held(process)
            if step and size:
                sample = min(SAMPLES - 1, step * SAMPLES // updates)
                sums[sample] += size
                counts[sample] += 1

        watched(words, look, pause=0.2)
        means = [total / max(1, count) for total, count in zip(sums, counts, strict=True)]
        fifth = SAMPLES // 5
        second, last = (sum(part) / fifth for part in (means[fifth : 2 * fifth], means[-fifth:]))
        drifts = last > (1 + DRIFT) * second
        told = " ".join(f"{mean / MIB:.0f}" for mean in means)
        print(
            f"train, {backend}, {updates:,} updates: {told} MiB (a figure every {updates // SAMPLES:,} updates); "
            f"the last fifth is {last / second:.3f} of the second{' GROWS' if drifts else ''}",
            flush=True,
        )
        grows |= drifts
    return grows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["preprocess", "translate", "train"])
    parser.add_argument("--pairs", type=int, nargs="+", default=PAIRS, help="of corpora to preprocess")
    parser.add_argument("--lines", type=int, nargs="+", default=LINES, help="of texts to translate")
    parser.add_argument("--updates", type=int, default=UPDATES, help="of a training")
    given = parser.parse_args()
    if not os.path.exists("/proc/self/smaps_rollup"):
        parser.error("only Linux's /proc tells how much memory a process holds")
    parts: dict[str, Callable[[Path], bool]] = {
        "preprocess": lambda place: preprocess(place, given.pairs),
        "translate": lambda place: translate(place, given.lines),
        "train": lambda place: train(place, given.updates),
    }
    place = Path(tempfile.mkdtemp(prefix="memory-"))
    try:
        return int(any([parts[name](place) for name in given.parts]))
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    sys.exit(main())
