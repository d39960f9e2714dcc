"""Everything a person sees on stderr: messages, warnings, tables, progress. stdout is for data and never touched here.

Bars are drawn only where stderr is a terminal; elsewhere progress is a plain line now and then. `--quiet` leaves errors.
"""

import sys
import time
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.progress import BarColumn, ProgressColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

PLAIN_INTERVAL = 10.0
"""Seconds between two plain progress lines."""

WIDE = 100
"""Columns of a terminal that has room for a bar."""


def date() -> float:
    """Seconds since 1970, by the machine's clock, which may be set: for people only."""
    return time.time()


def seconds() -> float:
    """The clock: seconds from an arbitrary start, never going back. The rest of the program measures time with this."""
    return time.monotonic()


def duration(length: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(length), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rate(amount: float) -> str:
    """An amount a second with as many digits as mean something."""
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:.1f}" if amount >= 1 else f"{amount:.2g}"


def replaced(count: int) -> str:
    """What `--errors replace` did."""
    return f"{count:,} line{'s' if count > 1 else ''} held invalid UTF-8, which became U+FFFD"


class Console:
    """The voice of one command. `quiet` silences it."""

    def __init__(self, quiet: bool = False, output: str | None = None) -> None:
        """`output` is where the command writes its data: on standard output ("-"), and that a terminal, bars would cover it."""
        self.quiet = quiet
        self._rich = RichConsole(stderr=True, highlight=False)
        self._draws = self._rich.is_terminal and not (output == "-" and sys.stdout is not None and sys.stdout.isatty())

    def say(self, message: str) -> None:
        """One line: lower case, no final period."""
        if not self.quiet:
            self._print(message)

    def warn(self, message: str) -> None:
        """One line on what a person may want to change."""
        self.say(f"nmt: warning: {message}")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A small table; the first column is text, the others are numbers, aligned on the right."""
        if self.quiet:
            return
        for line in layout(columns, rows, title):
            self._print(line)

    @contextmanager
    def progress(
        self, label: str, unit: str, total: int | None = None, start: int = 0, until: float | None = None, speed: bool = True
    ) -> "Iterator[Progress]":
        """Progress of work counted in `unit` ("lines"), at `start` of `total`, where that is known.

        `until` is when, by `seconds()`, the work stops in any case. Without `speed` the units a second are not told: the worker
        has a better measure.

        with console.progress("translating", "lines", total) as progress: progress.advance(32)
        """
        if self.quiet or not self._draws:
            yield Progress(self, label, unit, total, start, until, speed, None)
            return
        status = TextColumn("{task.fields[status]}", markup=False, table_column=Column(overflow="fold"))
        columns: list[ProgressColumn] = [TextColumn("{task.description}"), status]
        if total is not None and self._rich.width >= WIDE:  # elsewhere the figures need the room, and may take a second line
            columns.insert(1, BarColumn(20))
        # What is written to stdout is data, in a pipe or a file, and goes there as it is.
        with RichProgress(*columns, console=self._rich, transient=True, redirect_stdout=False) as bar:
            yield Progress(self, label, unit, total, start, until, speed, bar)

    def _print(self, line: str) -> None:
        with heard_or_not():
            self._rich.print(one_line(line), markup=False, soft_wrap=True)


class Progress:
    """How far a piece of work is: done, rate, time left, and a note of the worker's own."""

    def __init__(
        self,
        console: Console,
        label: str,
        unit: str,
        total: int | None,
        start: int,
        until: float | None,
        speed: bool,
        bar: RichProgress | None,
    ) -> None:
        self._console, self._label, self._unit, self._total, self._until = console, label, unit, total, until
        self._tells_speed = speed
        self._done = self._start = start
        self._note = ""
        self._began = self._spoke = seconds()
        self._bar = bar
        self._task: TaskID | None = bar.add_task(label, total=total, completed=start, status="") if bar else None

    def advance(self, amount: int = 1, note: str | None = None) -> None:
        """`amount` more units are done; `note` ("loss 3.21") stays until the next one."""
        self._done += amount
        if note is not None:
            self._note = note
        now = seconds()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, status=self._status(now))
        elif now - self._spoke >= PLAIN_INTERVAL:
            self._spoke = now
            self._console.say(f"{self._label}: {self._status(now)}")

    def _status(self, now: float) -> str:
        speed = (self._done - self._start) / max(now - self._began, 1e-9)
        of = "" if self._total is None else f"/{self._total:,}"
        parts = [f"{self._done:,}{of} {self._unit}"]
        parts += [f"{rate(speed)} {self._unit}/s"] if self._tells_speed else []
        ends = [] if self._total is None or speed == 0 else [(self._total - self._done) / speed]
        ends += [] if self._until is None else [self._until - now]
        if ends:
            parts.append(f"{duration(max(min(ends), 0))} left")
        return ", ".join([*parts, self._note] if self._note else parts)


def layout(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> list[str]:
    """The lines of a table in plain text, indented below a title: first column on the left, others on the right; never cut."""
    widths = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]  # as seen: 漢 takes two columns
    lines = [title] if title else []
    for row in [columns, *rows] if any(columns) else rows:
        blanks = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [row[0] + blanks[0], *(blank + cell for blank, cell in zip(blanks[1:], row[1:], strict=True))]
        lines.append((("  " if title else "") + "  ".join(cells)).rstrip())
    return lines


@contextmanager
def heard_or_not() -> Iterator[None]:
    """No work is lost because stderr, say a log on a full disk, takes no more words; where its reader went away it ends."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass


def one_line(message: str) -> str:
    """`message` with what would break its line, rule the terminal, or has no UTF-8 (of names, mostly) shown escaped."""
    with suppress(UnicodeError):
        message = message.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")  # a name in the locale "C"
    unfit = {each for each in message if unicodedata.category(each) in ("Cc", "Zl", "Zp", "Cs")}
    return message.translate({ord(each): each.encode("unicode_escape").decode() for each in unfit})


def fail(message: str) -> None:
    """The one line that ends a command that cannot go on."""
    with heard_or_not():
        print(one_line(f"nmt: error: {message}"), file=sys.stderr, flush=True)
