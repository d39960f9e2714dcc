"""Trains untouched, then the same broken off many times, with `--resume` after each, and compares all files of the two.

    make soak                                          50 breaks of each kind, of each backend (30 minutes)
    python -m tests.soak --breaks 5 --by signal rnn    fewer, of one kind, of one backend

by kill    SIGKILL
by signal  Ctrl-C or SIGTERM, once or twice: it must leave with 130 or 143
by disk    a full disk: RUN lies on one that grows by a little for each life, which must end with one line (for root)

Dropout, accumulation and BPE-dropout are on. The moments are random, and aimed: at the start, at saves, at the end. Prints a line a
break and a verdict a training; the exit code is 1 where anything differs, and the files are kept then.
"""

import argparse
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from nmt.checkpoint import STATE, latest_checkpoint
from nmt.run import LOG
from tests.toys import TINY, dataset, words

PLACES = {
    "in a save": "checkpoints/.step-*.partial",
    "late in a save": "checkpoints/.step-*.partial/.optimizer.*",
    "in a removal": "checkpoints/.step-*.removed",
    "at a best model": ".model.safetensors.*.partial",
    "at an epoch": ".epoch-*.partial",
}
"""Aim -> what is there at that moment and not for long."""

AIMS = ("at the start", "anywhere", *PLACES)
PATIENCE = 12
"""Updates in which what an aim waits for has to come; then the kill comes without it."""

TOLD = re.compile(
    r"nmt: error: \S+: cannot be written \(no space left on device\): nothing that was saved is lost; "
    r"once it can be, go on (from \S+ )?with --resume\n"
)
"""All that a full disk may say."""

How = Literal["kill", "signal", "disk"]

TIMES = ("seconds", "tokens_per_second")
SAVE_EVERY, VALID_EVERY, LOG_EVERY = 5, 7, 2  # no two together for long: an interval of the log lasts over kills and saves


def command(data: Path, run: Path, backend: str, updates: int) -> list[str]:
    """The training, which is given again word for word, with --resume, after each kill."""
    train = {"save_every": SAVE_EVERY, "valid_every": VALID_EVERY, "log_every": LOG_EVERY, "keep_last": 3, "average_last": 2}
    train |= {"batch_tokens": 128, "accumulate": 2, "max_steps": updates, "learning_rate": 0.01, "warmup": 5}
    settings: dict[str, Any] = {f"train.{key}": value for key, value in train.items()}
    settings |= {f"model.{key}": value for key, value in TINY[backend].items()}
    settings |= {"model.dropout": 0.2, "data.bpe_dropout": 0.1, "train.metric": "nll"}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    fixed = ["train", str(data), "--output", str(run), "--backend", backend, "--device", "cpu", "--threads", "1", "--quiet"]
    return [sys.executable, "-m", "nmt", *fixed, *words]


class Life:
    """One process of the training, from its start to its end or its kill."""

    def __init__(self, words: list[str], run: Path, temporary: Path) -> None:
        self.run = run
        self._log_before = self._log_time()
        self.began = time.monotonic()
        again = ["--resume"] if run.exists() else []
        environment = {**os.environ, "TMPDIR": str(temporary)}
        self.process = subprocess.Popen([*words, *again], env=environment, stderr=subprocess.PIPE, text=True)

    def _log_time(self) -> int:
        return (self.run / LOG).stat().st_mtime_ns if (self.run / LOG).exists() else 0

    def reached(self) -> int:
        """The last update that this life has logged; -1 before its first. What the log had before is cut off when it is resumed."""
        return -1 if self._log_time() == self._log_before else last_logged(self.run)

    def wait(self, aim: str, mark: int, chance: random.Random, startup: float) -> None:
        """Until the moment to kill at, or until it has ended."""
        if aim == "at the start":
            end = self.began + chance.uniform(0, startup)
            while time.monotonic() < end and self.process.poll() is None:
                time.sleep(0.001)
            return
        while self.process.poll() is None and self.reached() < mark:
            time.sleep(0.001)
        if aim in PLACES:
            pattern = str(self.run / PLACES[aim])
            while self.process.poll() is None and not glob.glob(pattern) and self.reached() < mark + PATIENCE:
                time.sleep(0.0002)
        time.sleep(chance.uniform(0, 0.004 if aim in PLACES else 0.05))

    def end(self) -> str:
        """Lets it live. RuntimeError where it does not end well."""
        errors = self.process.communicate()[1]
        if self.process.returncode:
            raise RuntimeError(f"nmt train ended with {self.process.returncode}: {errors.strip()}")
        return errors

    def kill(self) -> str | None:
        """How, if it was alive still. RuntimeError where it had ended, and not well."""
        if self.process.poll() is not None:
            self.end()
            return None
        self.process.kill()
        self.process.communicate()
        return "SIGKILL"

    def stop(self, chance: random.Random) -> str | None:
        """By what signals, if it was alive still. RuntimeError where it does not end as these say, and without a word."""
        number = chance.choice((signal.SIGINT, signal.SIGTERM))
        times = chance.choice((1, 1, 2))
        for _ in range(times):
            if self.process.poll() is None:
                self.process.send_signal(number)
                time.sleep(chance.uniform(0, 0.03))
        errors = self.process.communicate()[1]
        lost = errors.startswith("Exception ignored in") and errors.endswith("KeyboardInterrupt: \n")
        if self.process.returncode == 0 and (not errors or lost):  # Python drops what is raised while it frees an object
            return None
        early = self.process.returncode == -number  # before Python, or nmt, was there to catch it
        if (self.process.returncode != 128 + number and not early) or errors:
            raise RuntimeError(f"{number.name} ended nmt train with {self.process.returncode}: {errors.strip()}")
        return f"{times} {number.name}{', before it could be caught' if early else ''}"


def last_logged(run: Path) -> int:
    """The update of the last whole line of the log of a run; 0 where there is none."""
    if not (run / LOG).exists():
        return 0
    with open(run / LOG, "rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - 5000))
        lines = stream.read().split(b"\n")[:-1]
    return int(json.loads(lines[-1])["step"]) if lines else 0


def left_behind(run: Path) -> list[str]:
    """The files and directories that are there only until their names are final."""
    return sorted({str(path.relative_to(run)) for path in run.rglob(".*")})


def timeless(path: Path) -> object:
    """What a file holds, but for what depends on the clock."""
    if path.name == LOG:
        events = [json.loads(line) for line in path.read_text().splitlines()]
        return [{key: value for key, value in event.items() if key not in TIMES} for event in events]
    if path.name == STATE:
        state = json.loads(path.read_text())
        del state["seconds"], state["interval"]["seconds"]
        del state["log"], state["log_sha256"], state["sha256"]  # of the log, which has times in it; of the whole
        return state
    return path.read_bytes()


def differences(whole: Path, killed: Path) -> list[str]:
    """What is wrong with the files of `killed`, a line each."""
    one, other = ({str(path.relative_to(run)) for path in run.rglob("*")} for run in (whole, killed))
    found = [f"{name}: left over" for name in sorted(other - one)] + [f"{name}: missing" for name in sorted(one - other)]
    files = [name for name in sorted(one & other) if (whole / name).is_file()]
    return found + [f"{name}: differs" for name in files if timeless(whole / name) != timeless(killed / name)]


class Soak:
    """Both trainings, in the new directory `place`."""

    def __init__(self, data: Path, place: Path, backend: str, how: How, breaks: int, updates: int, seed: int) -> None:
        self.title, self.breaks, self.updates = f"{backend} by {how}", breaks, updates
        self.chance = random.Random(f"{seed} {backend} {how}")
        self.whole, self.broken, self.temporary = (place / name for name in ("untouched/run", "broken/run", "temporary"))
        for folder in (self.whole.parent, self.broken.parent, self.temporary):
            folder.mkdir(parents=True)
        self.words = command(data, self.broken, backend, updates)
        untouched = Life(command(data, self.whole, backend, updates), self.whole, self.temporary)
        while untouched.process.poll() is None and untouched.reached() < 0:
            time.sleep(0.01)
        self.startup = time.monotonic() - untouched.began
        untouched.end()
        self.usual = set(self.temporary.iterdir())  # torch keeps a directory there
        self.counts: Counter[str] = Counter()

    def live(self) -> Life:
        return Life(self.words, self.broken, self.temporary)

    def interrupted(self, how: How) -> list[str]:
        """What is wrong at the end of a training that was killed or stopped; nothing where all is well."""
        at_end = max(1, self.breaks // 10)
        marks = sorted(self.chance.randint(0, self.updates) for _ in range(self.breaks - at_end)) + [self.updates] * at_end
        number, ended = 0, False
        while number < self.breaks:
            mark = marks[number]
            # A run that has ended is broken off too: where it is resumed all the same, which must change nothing.
            aim = "at the start" if ended else "at the end" if mark == self.updates else self.chance.choice(AIMS)
            life = self.live()
            life.wait(aim, mark, self.chance, self.startup)
            reached, lived = max(0, life.reached()), time.monotonic() - life.began
            by = life.kill() if how == "kill" else life.stop(self.chance)
            if by is None:
                ended = True
                continue
            number += 1
            self.tell(number, f"{by} {aim}, after {lived:.2f} s, update {reached} logged")
        return self.verdict()

    def filled(self) -> list[str]:
        """The same for one whose disk was full."""
        page = os.sysconf("SC_PAGESIZE")
        checkpoint = sum(path.stat().st_size for path in self.whole.glob("checkpoints/step-*/*")) // 3
        with small_disk(self.broken.parent) as resize:
            for number in range(1, self.breaks + 1):
                used = sum(-(-path.lstat().st_size // page) for path in self.broken.rglob("*") if path.is_file()) * page
                free = self.chance.choice((0, page, 2 * page, checkpoint // 5, checkpoint // 2, checkpoint - page, checkpoint))
                resize(max(page, used + free))
                life = self.live()
                errors = life.process.communicate()[1]
                if life.process.returncode == 0:
                    break
                if life.process.returncode != 1 or not TOLD.fullmatch(errors):
                    raise RuntimeError(f"a full disk ended nmt train with {life.process.returncode}: {errors.strip()}")
                self.tell(number, errors.removeprefix("nmt: error: ").replace(f"{self.broken}/", "").split(": nothing")[0])
            resize(1 << 30)
            return self.verdict()

    def tell(self, number: int, what: str) -> None:
        left = left_behind(self.broken) if self.broken.exists() else []
        newest = latest_checkpoint(self.broken)
        self.counts["left something half done" if left else "left nothing"] += 1
        print(
            f"{self.title} {number}: {what}, to go on from {newest.name if newest else 'the start'}; "
            f"left {', '.join(left) or 'nothing'}",
            flush=True,
        )

    def verdict(self) -> list[str]:
        """Once it has lived to its end."""
        self.live().end()
        found = differences(self.whole, self.broken)
        found += [f"{path}: left over" for path in sorted(set(self.temporary.iterdir()) - self.usual)]
        files = [path for path in self.whole.rglob("*") if path.is_file()]
        told = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        verdict = (
            f"{len(found)} DIFFERENCES: {'; '.join(found)}" if found else f"all {len(files)} files the same, nothing left over"
        )
        print(f"{self.title}: {self.updates} updates, {self.counts.total()} breaks ({told}): {verdict}", flush=True)
        return found


@contextmanager
def small_disk(place: Path) -> Iterator[Callable[[int], None]]:
    """A disk at the directory `place`, of one page and then of the bytes it is told. PermissionError where none may be mounted."""
    options = ["-t", "tmpfs", "-o", f"size={os.sysconf('SC_PAGESIZE')}", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(["mount", *options], stderr=subprocess.DEVNULL, check=False).returncode:
        raise PermissionError(f"{place}: no disk may be mounted")
    try:
        yield lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", str(place)], check=True) and None
    finally:
        subprocess.run(["umount", str(place)], check=True)


def soak(data: Path, place: Path, backend: str, how: How, breaks: int, updates: int, seed: int) -> list[str]:
    """What is wrong at the end of a training that was broken off; nothing where all is well."""
    soaking = Soak(data, place, backend, how, breaks, updates, seed)
    return soaking.filled() if how == "disk" else soaking.interrupted(how)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", default=list(TINY))
    parser.add_argument("--by", choices=typing.get_args(How), nargs="+", default=typing.get_args(How), help="kinds of break")
    parser.add_argument("--breaks", type=int, default=50, help="of each kind, of each backend")
    parser.add_argument("--updates", type=int, help="of each training (default: 8 a break)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored, by what is started here too
    place = Path(tempfile.mkdtemp(prefix="soak-"))
    data = dataset(place / "corpus", words(200, seed=1), valid=10, tokenizer="bpe", vocab_size=60).path
    updates = given.updates or 8 * given.breaks
    found = [
        soak(data, place / each / how, each, how, given.breaks, updates, given.seed) for how in given.by for each in given.backends
    ]
    if any(found):
        print(f"the files are in {place}")
    else:
        shutil.rmtree(place)
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())
