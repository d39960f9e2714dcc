"""Trains untouched, then the same with `kill -9` at many moments and `--resume` after each, and compares all files of the two.

    make soak                              50 kills of each backend (8 minutes)
    python -m tests.soak --kills 5 rnn     fewer, of one

Dropout, accumulation and BPE-dropout are on. The moments are random, and aimed: at the start, at saves, at the end. Prints a line a
kill and a verdict a backend; the exit code is 1 where anything differs, and the files are kept then.
"""

import argparse
import glob
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

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

    def kill(self) -> bool:
        """Whether it was alive still. RuntimeError where it had ended, and not well."""
        if self.process.poll() is not None:
            self.end()
            return False
        self.process.kill()
        self.process.communicate()
        return True


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


def soak(data: Path, place: Path, backend: str, kills: int, updates: int, seed: int) -> list[str]:
    """Both trainings, in the new directory `place`; what is wrong at their end, nothing where all is well."""
    chance = random.Random(f"{seed} {backend}")
    whole, killed, temporary = (place / name for name in ("whole", "killed", "temporary"))
    temporary.mkdir(parents=True)
    untouched = Life(command(data, whole, backend, updates), whole, temporary)
    while untouched.process.poll() is None and untouched.reached() < 0:
        time.sleep(0.01)
    startup = time.monotonic() - untouched.began
    untouched.end()
    usual = set(temporary.iterdir())  # torch keeps a directory there
    at_end = max(1, kills // 10)
    marks = sorted(chance.randint(0, updates) for _ in range(kills - at_end)) + [updates] * at_end
    words = command(data, killed, backend, updates)
    counts: Counter[str] = Counter()
    number, ended = 0, False
    while number < kills:
        mark = marks[number]
        # A run that has ended is killed too: where it is resumed all the same, which must change nothing.
        aim = "at the start" if ended else "at the end" if mark == updates else chance.choice(AIMS)
        life = Life(words, killed, temporary)
        life.wait(aim, mark, chance, startup)
        reached, lived = max(0, life.reached()), time.monotonic() - life.began
        if not life.kill():
            ended = True
            continue
        number += 1
        left = left_behind(killed) if killed.exists() else []
        newest = latest_checkpoint(killed)
        counts["left something half done" if left else "left nothing"] += 1
        print(
            f"{backend} kill {number} ({aim}): after {lived:.2f} s, update {reached} logged, to go on from "
            f"{newest.name if newest else 'the start'}; left {', '.join(left) or 'nothing'}",
            flush=True,
        )
    Life(words, killed, temporary).end()
    found = differences(whole, killed) + [f"{path}: left over" for path in sorted(set(temporary.iterdir()) - usual)]
    files = [path for path in whole.rglob("*") if path.is_file()]
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    verdict = f"{len(found)} DIFFERENCES: {'; '.join(found)}" if found else f"all {len(files)} files the same, nothing left over"
    print(f"{backend}: {updates} updates, {kills} kills ({told}): {verdict}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", default=list(TINY))
    parser.add_argument("--kills", type=int, default=50, help="of each backend")
    parser.add_argument("--updates", type=int, help="of each training (default: 8 a kill)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="soak-"))
    data = dataset(place / "corpus", words(200, seed=1), valid=10, tokenizer="bpe", vocab_size=60).path
    updates = given.updates or 8 * given.kills
    found = [soak(data, place / each, each, given.kills, updates, given.seed) for each in given.backends]
    if any(found):
        print(f"the files are in {place}")
    else:
        shutil.rmtree(place)
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())
