"""The directory of a run: one process at a time in it, its log, and where it stands.

RUN is a model directory (see `checkpoint`) of the best model so far, with log.jsonl, report.json and checkpoints/,
and on demand tensorboard/.
"""

import dataclasses
import fcntl
import hashlib
import itertools
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.board import BOARD, EVENTS, Board
from nmt.checkpoint import CHECKPOINTS, CONFIG, SOURCE, TARGET, WEIGHTS, latest_checkpoint, remove_leftovers, stranger
from nmt.data.files import check_name, check_outside_runs, made_as, open_file, reason, sync, writing
from nmt.errors import NmtError, WriteError

LOG, REPORT = "log.jsonl", "report.json"
OURS = (CONFIG, SOURCE, TARGET, WEIGHTS, LOG, REPORT, BOARD, CHECKPOINTS)

TRAINED = ("step", "epoch", "loss", "nll", "grad_norm", "grad_norms", "tokens_per_second", "lr", "skipped", "seconds")
VALIDATED = ("step", "nll", "ppl", "accuracy", "bleu", "chrf", "best", "seconds")
KEYS = {"train": TRAINED, "valid": VALIDATED, "average": VALIDATED, "skipped": ("step",)}
"""What lines of the log hold, of each event."""
ALWAYS_NUMBERS = ("step", "epoch", "tokens_per_second", "skipped", "seconds")
"""Of these, what is never null."""

MOST_LINE = 1 << 24
"""Bytes of a line of the log, which holds the norm of each gradient since the line before."""

MOST = 1e305
"""Any number of the log is nearer to 0: a perplexity may be 1e304, and what is larger than this no chart can hold."""


@contextmanager
def opened(path: Path, resume: bool, overwrite: bool) -> Iterator[None]:
    """Makes RUN if need be, and holds it against other processes; a process that dies holds nothing.

    NmtError where it is another's or data, cannot be written, holds something without leave to resume or overwrite (and then only
    what runs hold is removed, of nothing but a run), or is to be resumed and is no run. What could not be written meanwhile is an
    NmtError that says how to go on.
    """
    check_outside_runs(path)
    check_name(path)
    if resume and not path.is_dir():
        raise NmtError(f"{path}: no such run; leave out --resume to begin it")
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise NmtError(f"{path}: cannot be made ({reason(error)})") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise NmtError(f"{path}: another process is training there; wait for it, or choose another place") from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise NmtError(f"{path}: cannot be written (permission denied)")
        with writing(path):
            _make_room(path, resume, overwrite)
        yield
    except WriteError as error:
        newest = latest_checkpoint(path)
        where = f" from {newest}" if newest else ""
        raise NmtError(f"{error}: nothing that was saved is lost; once it can be, go on{where} with --resume") from error
    finally:
        os.close(descriptor)


def _make_room(path: Path, resume: bool, overwrite: bool) -> None:
    made = made_as(path)
    if made in ("data", "export"):
        raise NmtError(f"{path}: is {'data' if made == 'data' else 'an exported model'}, not a run; choose another place")
    remove_leftovers(path)
    folder = path / CHECKPOINTS
    if folder.is_symlink() and not folder.exists():
        raise NmtError(f"{folder}: is a link to nothing; make the directory that it names, or remove it")
    present = {child.name for child in path.iterdir()}
    if folder.is_dir() and not any(folder.iterdir()):
        present.discard(CHECKPOINTS)  # of a run killed before its first checkpoint, or a link to where they are to lie
    ours = [name for name in reversed(OURS) if name in present]  # config.json, which says that this is a run, is deleted last
    if resume and present and not ours:
        raise NmtError(f"{path}: not a run; it holds {min(present)}")
    if not (resume or overwrite) and present:
        raise NmtError(f"{path}: is not empty; give --resume to go on with it, --overwrite to begin anew, or another place")
    if overwrite and ours:
        _check_ours(path, ours, made == "model")
        for name in ours:
            _delete(path / name)
    folder.mkdir(exist_ok=True)


def _check_ours(path: Path, names: list[str], is_run: bool) -> None:
    """NmtError where something that --overwrite would delete is not what a run has put there."""
    odd = [path / name for name in names if not is_run or (path / name).is_dir() != (name in (CHECKPOINTS, BOARD))]
    odd += [child for child in (path / BOARD).glob("*") if child.is_dir() or not child.name.startswith(EVENTS)]
    found = odd[-1] if odd else stranger(path)
    if found is not None:
        raise NmtError(f"{found}: is not that of a run, so --overwrite does not delete it; move it, or choose another place")


def _delete(path: Path) -> None:
    """A file, or a directory of checkpoints; where that is a link to another disk, what lies there and not the link."""
    if not path.is_dir():
        path.unlink()
    elif path.is_symlink():
        for child in path.iterdir():
            shutil.rmtree(child)
    else:
        shutil.rmtree(path)


class Log:
    """RUN/log.jsonl: one JSON object a line; what is not a finite number is null."""

    def __init__(self, path: Path, size: int = 0, sha256: str | None = None, board: Board | None = None) -> None:
        """Goes on after the first `size` bytes; what a checkpoint does not know of belongs to updates that are lost.

        Where there is no log it begins here. NmtError for one that does not have these bytes, whose checksum is `sha256` (None: of
        a checkpoint that does not know it). `board` is told all events too.
        """
        self._path, self._board, self._sum = path, board, hashlib.sha256()
        self._run = path.parent.stat()
        if not (path.exists() or path.is_symlink()):
            return
        try:
            with open_file(path) as stream:
                before = stream.read(size)
            self._sum.update(before)
            if len(before) < size or sha256 not in (None, self._sum.hexdigest()):
                raise NmtError(f"{path}: is damaged or was edited")
        except NmtError as error:
            raise NmtError(f"{error}; to go on without the lines so far, move it to another place") from error
        with writing(path):
            os.truncate(path, size)

    def check_place(self) -> None:
        """NmtError where the run is no longer where it was: what is there now, if anything, is another's."""
        run = self._path.parent
        if not run.is_dir() or not os.path.samestat(self._run, run.stat()):
            raise NmtError(f"{run}: was moved or deleted while it was trained in; move it back, then go on with --resume")

    def write(self, event: Mapping[str, Any]) -> None:
        self.check_place()
        line = json.dumps({key: _finite(value) for key, value in event.items()}, allow_nan=False) + "\n"
        with writing(self._path), open(self._path, "ab") as stream:
            stream.write(line.encode())
        self._sum.update(line.encode())
        if self._board is not None:
            self._board.write(event)

    def standing(self) -> dict[str, int | str]:
        """What a checkpoint keeps of the lines so far, which are now safe on the disk: their bytes and checksum."""
        self.check_place()
        size = 0
        if self._path.exists():
            with writing(self._path):
                sync(self._path)
            size = self._path.stat().st_size
        return {"log": size, "log_sha256": self._sum.hexdigest()}


def read_log(run: Path) -> tuple[list[dict[str, Any]], str | None]:
    """The events in the log of a run, and what is wrong with the first line that training did not write: those before it are read.

    None of either where there is no log yet. A last line that a kill left half written is passed over: --resume writes it again.
    """
    path = run / LOG
    events: list[dict[str, Any]] = []
    if not path.is_file():
        return events, None
    with open_file(path) as stream:
        for number in itertools.count(1):
            line = stream.readline(MOST_LINE)
            if not line:
                break
            try:
                event = json.loads(line)
                whole = all(_is_right(key, event[key]) for key in KEYS[event["event"]])
            except (ValueError, KeyError, TypeError, RecursionError):
                whole = False
            if not whole:
                if not stream.read(1) and not line.rstrip().endswith(b"}"):
                    break
                return events, f"{path}, line {number}: is damaged: not a line that nmt train writes; remove it"
            events.append(event)
    return events, None


def _is_right(key: str, value: object) -> bool:
    """Whether training could have written that."""
    if key == "best":
        return isinstance(value, bool)
    if key == "grad_norms":
        return isinstance(value, list) and all(_is_right("grad_norm", norm) for norm in value)
    if value is None:
        return key not in ALWAYS_NUMBERS
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST  # so it is not NaN either


def is_training(run: Path) -> bool:
    """Whether a process trains there now."""
    descriptor = os.open(run, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass
class Interval:
    """Sums over the updates since the last line of the log; skipped ones have no part in loss, nll and tokens."""

    loss: float = 0.0
    nll: float = 0.0
    tokens: int = 0
    real: int = 0
    padded: int = 0
    seconds: float = 0.0
    norms: list[float | None] = field(default_factory=list)
    """Of the gradient of each update before clipping; None where it is no finite number."""

    def report(self) -> dict[str, Any]:
        """The numbers of a line of the log. loss and nll are per target token, `</s>` included."""
        return {
            "loss": self.loss / self.tokens if self.tokens else math.nan,
            "nll": self.nll / self.tokens if self.tokens else math.nan,
            "grad_norm": self.norms[-1],
            "grad_norms": self.norms,
            "tokens": self.tokens,
            "padding": 1 - self.real / self.padded,
            "tokens_per_second": self.tokens / max(self.seconds, 1e-9),
        }


@dataclass
class State:
    """Where a run stands; with the tensors, all that a checkpoint holds."""

    step: int = 0
    """Updates done, skipped ones included."""
    epoch: int = 0
    position: int = 0
    """Updates done in this epoch."""
    seconds: float = 0.0
    """Time spent, over all resumes."""
    best_score: float | None = None
    """Of the model that RUN holds."""
    best_step: int | None = None
    counted_score: float | None = None
    """The best of the validations that patience counts: those that an uninterrupted run has too."""
    waited: int = 0
    """Of these, how many in a row were not better."""
    validated: int | None = None
    """The step of the last validation."""
    finished: list[int] | None = None
    """The step after which training last came to its end, with nothing left to do but go on, and the average_last it had."""
    skipped: int = 0
    bad: int = 0
    """Updates in a row, up to this one, that were skipped."""
    interval: Interval = field(default_factory=Interval)
    scaler: dict[str, float] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "State":
        """The inverse of `dataclasses.asdict`; other keys are ignored, and those that an older state lacks are as at the start."""
        known = {item.name: value[item.name] for item in dataclasses.fields(cls) if item.name in value}
        return cls(**{**known, "interval": Interval(**known["interval"])})
