"""Where translations go: text or JSON lines, to one place or to one file an input; a stopped job goes on where it stopped."""

import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from nmt.alignment import pharaoh
from nmt.data.files import check_writable, is_full, read_json, reason, shown, sync, write_json
from nmt.data.text import Errors, TextWriter, check_output, display, open_text, read_lines, rereadable
from nmt.errors import NmtError, UsageError
from nmt.partial import NOTE, PARTIAL, held, keeps, note_of, partial_of, remove_empty
from nmt.results import Translation


@dataclass(frozen=True)
class Layout:
    """How a translation is written."""

    jsonl: bool = False
    scores: bool = False
    alignments: bool = False

    def rows(self, translation: Translation, line: int) -> list[str]:
        """Its lines; `line` counts from 0. As text there is exactly one: the text, then a column for each thing asked for."""
        links = translation.alignment() if self.alignments else []
        if self.jsonl:
            objects = translation.to_json(line)
            if self.alignments:
                objects[0]["alignment"] = links
            return [json.dumps(each, ensure_ascii=False) for each in objects]
        columns = [translation.text]
        if self.scores:
            columns.append(f"{translation.hypotheses[0].score:.6f}")
        if self.alignments:
            columns.append(pharaoh(links))
        return ["\t".join(columns)]


@dataclass(frozen=True)
class Job:
    """Inputs whose translations go, in order, to one output."""

    inputs: tuple[str, ...]
    output: str
    done: int = 0
    """Input lines whose translations an earlier process has left beside `output`."""
    size: int = 0
    """Bytes of these translations."""

    def note(self, common: Mapping[str, object]) -> dict[str, object]:
        """How its lines are made: as `common` says, of its own inputs."""
        return {**common, "INPUT": [path if path == "-" else shown(os.path.realpath(path)) for path in self.inputs]}


def plan(inputs: Sequence[str], output: str, prefix: str | None = None) -> list[Job]:
    """One job for all inputs, or one for each where `output` is a directory: it exists, or its name ends in a slash.

    NmtError where nothing can be written there, UsageError where it would take the place of what is read: the inputs, `prefix`.
    """
    jobs = _jobs(inputs, output)
    for job in jobs:
        if job.output.endswith((PARTIAL, NOTE)):
            raise UsageError(f"{job.output}: so ends the name of what is not whole yet; give another one")
    for path in [*inputs, *([] if prefix is None else [prefix])]:
        for ours in (place(job.output) for job in jobs for place in (partial_of, note_of)):
            if ours.exists() and path != "-" and os.path.samefile(path, ours):
                raise UsageError(f"{path} is where the unfinished output would be written: give it another name")
    return jobs


def _jobs(inputs: Sequence[str], output: str) -> list[Job]:
    if not (output.endswith(os.sep) or os.path.isdir(output)):
        check_output(output)
        return [Job(tuple(inputs), output)]
    names = [os.path.basename(path) for path in inputs]
    if "-" in inputs:
        raise UsageError(f"{output} is a directory and standard input has no name: give a file to --output")
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two inputs are named {name}: their translations would be one file in {output}")
    make_directory(output)
    jobs = [Job((path,), os.path.join(output, name)) for path, name in zip(inputs, names, strict=True)]
    for job in jobs:
        check_output(job.output)
        for path in inputs:
            if os.path.exists(job.output) and os.path.samefile(path, job.output):
                raise UsageError(f"{path} would be replaced by its own translation: give --output another directory")
    return jobs


def make_directory(path: str) -> None:
    """NmtError where there is none and none can be made, or where nothing can be written into it."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise NmtError(f"{path}: cannot be made ({reason(error)})") from None
    check_writable(path, path)


def repeatable(path: str) -> bool:
    """Whether the same lines can be read a second time: a file, also one at standard input (`< file`)."""
    if path != "-":
        return rereadable(path)
    try:
        return stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):  # no descriptor behind it: closed, or a test's stand-in
        return False


def count_lines(paths: Sequence[str]) -> int:
    """Lines still to be read of inputs that are `repeatable`."""
    here = os.lseek(sys.stdin.fileno(), 0, os.SEEK_CUR) if "-" in paths else 0
    count = sum(1 for path in paths for _ in read_lines(path, "replace"))
    if "-" in paths:
        os.lseek(sys.stdin.fileno(), here, os.SEEK_SET)
    return count


def unfinished(jobs: Sequence[Job], rows: int, jsonl: bool = False) -> list[Job]:
    """What an earlier process has left of `jobs`; `rows` lines of output stand for one of input.

    An output that exists without an unfinished one beside it is whole, and its job done. UsageError where the unfinished one
    is plainly of another --n-best or --format.
    """
    left = []
    for job in jobs:
        if not keeps(job.output):
            raise UsageError("--continue needs --output with files that are not compressed")
        partial = partial_of(job.output)
        if partial.exists():
            with held(job.output) as stream:
                done, size = _whole(stream, partial, rows, jsonl)
            left.append(replace(job, done=done, size=size))
        elif not os.path.exists(job.output):
            left.append(job)
    return left


def _whole(stream: BinaryIO, partial: Path, rows: int, jsonl: bool) -> tuple[int, int]:
    """Input lines answered in an unfinished output, and their bytes. What is half written behind them is cut off."""
    end = position = lines = 0
    last = b""
    for line in stream:
        position += len(line)
        if line.endswith(b"\n"):
            lines, last = lines + 1, line
            end = position if lines % rows == 0 else end
    if jsonl and lines and _place(last) != divmod(lines - 1, rows):
        raise UsageError(f"{partial}: was begun with another --n-best or --format, with which --continue goes on")
    stream.truncate(end)
    return lines // rows, end


def check_same(jobs: Sequence[Job], note: Mapping[str, object]) -> None:
    """UsageError where the lines that `jobs` go on from were made in another way than `note` says, which is JSON."""
    for job in jobs:
        if not job.done or not note_of(job.output).exists():  # lines that somebody has put there have none
            continue
        try:
            begun = read_json(note_of(job.output))
        except NmtError:
            begun = None
        if not isinstance(begun, dict):
            raise NmtError(f"{note_of(job.output)}: is damaged; delete it and {partial_of(job.output)}, to begin anew")
        wanted = job.note(note)
        if "-" in (*job.inputs, *begun.get("INPUT", "-")):  # a pipe has no name, and comes again as another one, or as a file
            begun["INPUT"] = wanted["INPUT"]
        others = [name for name in wanted.keys() | begun.keys() if wanted.get(name) != begun.get(name)]
        if others:
            raise UsageError(
                f"{partial_of(job.output)}: was begun with another {' and another '.join(sorted(others))}; "
                "go on with the same, or begin anew without --continue"
            )


def _place(row: bytes) -> tuple[object, object] | None:
    """Line and rank in a row of JSON; None where it is none of ours."""
    try:
        found = json.loads(row)
    except (ValueError, RecursionError):
        return None
    return (found.get("line"), found.get("rank")) if isinstance(found, dict) else None


@contextmanager
def begun(jobs: Sequence[Job]) -> Iterator[None]:
    """Each job has an unfinished output from now on, so that after a kill at any moment --continue knows what is not done yet,
    though an older output may stand there. Those that are empty at the end are removed, but beside an older output.

    NmtError where one cannot be made, or where another process writes there.
    """
    keeping = [job.output for job in jobs if keeps(job.output)]
    try:
        for output in keeping:
            with held(output):
                pass
        yield
    finally:
        for output in keeping:
            _remove_empty(output)


def _remove_empty(output: str) -> None:
    """No unfinished output that holds nothing, but beside an older output, which would pass for the new one, whole."""
    if not os.path.exists(output):
        remove_empty(output)


@contextmanager
def _open_output(job: Job, note: Mapping[str, object]) -> Iterator[TextWriter]:
    """A writer to the unfinished output, renamed at success and kept for `--continue` otherwise."""
    if not keeps(job.output):
        with open_text(job.output) as writer:
            yield writer
        return
    partial = partial_of(job.output)
    try:
        with held(job.output) as stream:
            if job.done and os.fstat(stream.fileno()).st_size != job.size:
                raise NmtError(f"{job.output}: another process has gone on with it; give --continue again")
            stream.truncate(job.size)
            stream.seek(job.size)
            # Before the first line, and gone before the output is whole: no kill leaves it alone, or lines without it.
            if not job.done and note:
                write_json(note_of(job.output), job.note(note))
            yield TextWriter(stream)
            stream.flush()
            os.fsync(stream.fileno())
            note_of(job.output).unlink(missing_ok=True)
            os.replace(partial, os.path.realpath(job.output))
            sync(partial.parent)
    except BaseException as error:
        _remove_empty(job.output)
        if is_full(error):
            goes_on = "; finished lines are kept, go on with --continue" if kept([job]) else ""
            raise NmtError(f"{job.output}: cannot be written ({reason(error)}){goes_on}") from None
        raise


def kept(jobs: Sequence[Job]) -> bool:
    """Whether a stopped process has left lines that `--continue` goes on from."""
    places = [partial_of(job.output) for job in jobs if keeps(job.output)]
    return any(place.exists() and place.stat().st_size for place in places)


class Traffic:
    """The inputs of several jobs as one stream of lines, and its translations back into the jobs' outputs.

    One stream, so that batches are full across files, and a model is loaded once.
    """

    def __init__(self, jobs: Sequence[Job], errors: Errors, note: Mapping[str, object] | None = None) -> None:
        """`note` is what `check_same` would compare, were the jobs stopped."""
        self._jobs = jobs
        self._note = note or {}
        self._errors = errors
        self._ends: list[int] = []  # lines given out when each job's inputs were at their end
        self._starts: list[tuple[int, int, str]] = []  # of each input: lines given out before it, lines of it skipped, its path
        self.replaced = 0
        """Lines that held invalid UTF-8 so far."""

    @property
    def streaming(self) -> bool:
        """Whether an input is a pipe: what has come should be answered while more is awaited."""
        return not all(repeatable(path) for job in self._jobs for path in job.inputs)

    def total(self) -> int | None:
        """Lines to translate; None where that cannot be known before they are read."""
        if self.streaming:
            return None
        return sum(count_lines(job.inputs) - job.done for job in self._jobs)

    def lines(self) -> Iterator[str]:
        """All lines still to be translated."""
        given = 0
        for job in self._jobs:
            skip = job.done
            for path in job.inputs:
                begun, skipped = False, 0
                for line in read_lines(path, self._errors, self._count_replaced):
                    if skip:
                        skip, skipped = skip - 1, skipped + 1
                        continue
                    if not begun:
                        begun = True
                        self._starts.append((given, skipped, path))
                    given += 1
                    yield line
            if skip:
                names = " and ".join(map(display, job.inputs))
                more = f"{skip:,} line{'s' if skip > 1 else ''} more"
                raise NmtError(f"{partial_of(job.output)}: has {more} than {names}; it is of another job, delete it")
            self._ends.append(given)

    def place(self, number: int) -> str:
        """File and line of the line that was given out as number `number`, from 1: for messages."""
        before, skipped, path = next(start for start in reversed(self._starts) if start[0] < number)
        return f"{display(path)}, line {number - before + skipped}"

    def write(self, translations: Iterable[Translation], layout: Layout) -> Iterator[Translation]:
        """Each translation once it is written and handed over to who waits for it.

        An output is opened before the first translation is asked for: who reads a pipe may open it before he sends the first line.
        """
        arriving = iter(translations)
        translation = None
        written = 0
        for place, job in enumerate(self._jobs):
            line = job.done
            with _open_output(job, self._note) as writer:
                if place == 0:
                    translation = next(arriving, None)
                # A line of the next job can only have been read after this job's end was noted.
                while translation is not None and not (place < len(self._ends) and written == self._ends[place]):
                    for row in layout.rows(translation, line):
                        writer.write(row)
                    writer.flush()
                    line, written = line + 1, written + 1
                    yield translation
                    translation = next(arriving, None)

    def _count_replaced(self, number: int) -> None:
        self.replaced += 1
