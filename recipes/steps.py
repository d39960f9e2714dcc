"""Commands of a recipe: printed as a person would type them, run, and not run again where their result is there already."""

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def near(word: str | Path) -> str:
    """A path as one would type it here: from the current directory, where it lies below that. Other words as they are."""
    here = Path.cwd()
    return str(word.relative_to(here)) if isinstance(word, Path) and word.is_relative_to(here) else str(word)


def run(command: Sequence[str | Path]) -> None:
    """Print and run a command whose first word is nmt, torchrun or a script; where it fails, end as it ended.

    Ctrl-C is for the command, which has it from the terminal too: it may take its time to save what it has.
    """
    words = [near(word) for word in command]
    environment = {"OMP_NUM_THREADS": "1"} if words[0] == "torchrun" else {}  # else it says that it sets that itself
    start = {"nmt": ["-m", "nmt"], "torchrun": [str(CHECKOUT / "recipes" / "torchrun.py")]}.get(words[0], [words[0]])
    shown = words if words[0] in ("nmt", "torchrun") else ["python", *words]
    say(" ".join(["$", *(f"{name}={value}" for name, value in environment.items()), shlex.join(shown)]))
    stopped = False
    with subprocess.Popen([sys.executable, *start, *words[1:]], env=_environment() | environment) as child:
        while child.returncode is None:
            try:
                child.wait()
            except KeyboardInterrupt:
                stopped = True
    code = child.returncode
    if stopped:
        raise SystemExit(130)
    if code:
        raise SystemExit(128 - code if code < 0 else code)


def output(command: Sequence[str | Path]) -> str:
    """What an nmt command writes to stdout."""
    words = [sys.executable, "-m", *(near(word) for word in command)]
    done = subprocess.run(words, stdout=subprocess.PIPE, env=_environment(), encoding="utf-8")
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def _environment() -> dict[str, str]:
    """For commands: nmt is that of this checkout, whose commit a result names, whatever lies in the current directory."""
    places = (str(CHECKOUT), str(CHECKOUT / "recipes"), os.environ.get("PYTHONPATH"))  # the latter for scripts, which are of there
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places)), "PYTHONSAFEPATH": "1"}


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """A folder that no other process may hold meanwhile. SystemExit where one does."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise SystemExit(f"recipe: error: {folder}: another process is at work there; wait for it, or end it") from None
    finally:
        os.close(descriptor)


def write(path: Path, text: str) -> None:
    """A file, whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """As people can read it; whole or not at all."""
    write(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def digest(value: object) -> str:
    """A short name for whatever JSON can say."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Step:
    """A step's output, and all that it depends on: its settings and the step before it."""

    output: Path
    cause: str
    """Digest of what the output depends on."""
    lasting: str = ""
    """Of what may not change while the output is made; all of the cause where nothing may."""

    @property
    def _stamp(self) -> Path:
        return self.output.with_name(f".{self.output.name}.made-from")

    def _stamped(self) -> list[str]:
        """The cause of what is there, what of it may not change, and `done` where it is whole."""
        return self._stamp.read_text().split() if self._stamp.is_file() else []

    def begun(self) -> bool:
        """The output, whole or not, was made from the same settings, or from others by which it may go on."""
        return self.output.exists() and self._stamped()[1:2] == [self.lasting or self.cause]

    def done(self) -> bool:
        """The output is whole and was made from the same settings. Otherwise says why the step is to be done."""
        if self.output.exists() and self._stamped() == [*self._claim(), "done"]:
            say(f"{self.output}: there already")
            return True
        if self.output.exists() and self._stamped() and not self.begun():
            say(f"{self.output}: was made from other settings or other data; making it again")
        return False

    def begin(self, resume: bool = False) -> None:
        """Claim the place; unless to `resume`, what an earlier recipe left there goes, so that nobody takes it for the new.

        SystemExit where it is somebody else's, or a process, one left over perhaps, still works there.
        """
        self.output.parent.mkdir(parents=True, exist_ok=True)
        if self.output.is_dir():
            with held(self.output):  # as `nmt train` does
                pass
        if self.output.exists() and not resume:
            if not self._stamp.is_file():
                raise SystemExit(f"recipe: error: {self.output}: no recipe made it; move it, or give another folder to --output")
            self._stamp.write_text("half-removed")
            if self.output.is_dir():
                shutil.rmtree(self.output)
            else:
                self.output.unlink()
        self._stamp.write_text(" ".join(self._claim()))

    def end(self) -> None:
        self._stamp.write_text(" ".join([*self._claim(), "done"]))

    def _claim(self) -> list[str]:
        return [self.cause, self.lasting or self.cause]
