"""Commands of a recipe: printed as a person would type them, run, and not run again where their result is there already."""

import hashlib
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def run(command: Sequence[str | Path]) -> None:
    """Print and run a command whose first word is nmt or a script; where it fails, end as it ended."""
    words = [str(word) for word in command]
    say(f"$ {shlex.join(words)}")
    interpreter = [sys.executable, "-m"] if words[0] == "nmt" else [sys.executable]
    done = subprocess.run([*interpreter, *words])
    if done.returncode != 0:
        raise SystemExit(done.returncode)


def output(command: Sequence[str | Path]) -> str:
    """What an nmt command writes to stdout."""
    words = [sys.executable, "-m", *(str(word) for word in command)]
    return subprocess.run(words, stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout


def digest(value: object) -> str:
    """A short name for whatever JSON can say."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Step:
    """A step's output, and all that it depends on: its settings and the step before it."""

    output: Path
    cause: str
    """Digest of what the output depends on."""

    @property
    def _stamp(self) -> Path:
        return self.output.with_name(f".{self.output.name}.made-from")

    def begun(self) -> bool:
        """The output, whole or not, was made from the same settings."""
        return self.output.exists() and self._stamp.is_file() and self._stamp.read_text().split()[0] == self.cause

    def done(self) -> bool:
        """The output is whole and was made from the same settings. Otherwise says why the step is to be done."""
        if self.begun() and self._stamp.read_text().split()[1:] == ["done"]:
            say(f"{self.output}: there already")
            return True
        if self.output.exists() and not self.begun():
            say(f"{self.output}: was made from other settings or other data; making it again")
        return False

    def begin(self) -> None:
        self.output.parent.mkdir(parents=True, exist_ok=True)
        self._stamp.write_text(self.cause)

    def end(self) -> None:
        self._stamp.write_text(f"{self.cause} done")
