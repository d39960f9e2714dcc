"""The entry: runs one command line and tells every failure in one line, with its exit code."""

import io
import itertools
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from typing import Any

import typer

from nmt import ranks
from nmt.commands import app
from nmt.errors import NmtError, OneOfManyError, UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's) and return its exit code; a failure is one line on stderr.

    0 done, 2 wrong usage, 1 anything else; 130 and 143 for Ctrl-C and SIGTERM, 141 where the reader of stdout went away.
    """
    _settle_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words  # asked here, since an error may come before any option is read
    if "_NMT_COMPLETE" in os.environ:  # a shell asks what could come next
        app(words, prog_name="nmt")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # unwinds, so half-written files go away
    command = typer.main.get_command(app)
    if not words:
        with suppress(typer.Exit), redirect_stdout(sys.stderr):
            command.make_context("nmt", ["--help"])
        return 2
    try:
        code = 0
        for before, word in itertools.pairwise(["nmt", *words]):
            if not word or re.fullmatch("--[^=]+=", word):
                empty = word or f"the word after {before}"
                raise UsageError(f"{empty} is empty: a variable of the shell that is not set?")
        try:
            os.getcwd()
        except FileNotFoundError:  # what libraries make of it ends the process
            raise NmtError("the working directory is there no more: go to another one") from None
        try:
            with command.make_context("nmt", words) as context:
                command.invoke(context)
        except typer.Exit as done:
            code = done.exit_code
        _flush_stdout()
        return code
    except BrokenPipeError:  # `| head -1`: end as SIGPIPE would
        _give_up_stdout()
        return 128 + signal.SIGPIPE
    except SystemExit as ended:  # rich makes this of it
        if isinstance(ended.__context__, BrokenPipeError):
            return 128 + signal.SIGPIPE
        raise
    except (KeyboardInterrupt, typer.Abort):
        _give_up_stdout()
        return 128 + signal.SIGINT
    except Exception as error:
        if debug:
            traceback.print_exc()
        _give_up_stdout()
        return _explain(error)


def _settle_streams() -> None:
    """Make the standard streams what the rest relies on: UTF-8, blocking, whole writes, and a stderr in any case.

    sys.stdin and sys.stdout stay None where they were closed, as by `>&-`: who needs them says so.
    """
    # A closed one's number would be given to the next file opened, into which libraries then write their warnings.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  for as long as the process lives
    for stream in (sys.stdout, sys.stderr):
        # A pipe may have been made non-blocking by another program: when it is full, what is written would be lost.
        with suppress(OSError, ValueError, AttributeError):  # no descriptor behind it: closed, or a test's stand-in
            os.set_blocking(stream.fileno(), True)
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):  # PYTHONUNBUFFERED: may write a part, and tell nobody
        sys.stdout = open(sys.stdout.fileno(), "w", closefd=False)  # noqa: SIM115
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors=errors)  # whatever the locale says


def _flush_stdout() -> None:
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise NmtError(f"standard output: cannot be written ({str(error.strerror).lower()})") from None


def _give_up_stdout() -> None:
    """Drop what stdout holds and cannot write: the interpreter's last flush would fail again, with an exit code of its own."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(error: Exception) -> int:
    """Say what went wrong in one line; the exit code."""
    from nmt.console import fail

    # click's UsageError: some versions of typer have a click of their own, and do not export it.
    usage: Any = typer.BadParameter.__base__
    if ranks.follows() and not isinstance(error, OneOfManyError):
        return 2 if isinstance(error, usage | UsageError) else 1
    if isinstance(error, usage):
        message = " ".join(error.format_message().split()).replace("Value error, ", "")  # typer's word for what is refused
        where = error.ctx.command_path if error.ctx else "nmt"
        fail(f"{message[:1].lower()}{message[1:].rstrip('.')} (see {where} --help)")
        return 2
    if isinstance(error, NmtError):
        fail(str(error))
        return 2 if isinstance(error, UsageError) else 1
    if isinstance(error, OSError) and error.strerror:
        fail(f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower())
    elif isinstance(error, MemoryError):
        fail(f"out of memory{f': {error}' if str(error) else ''}")
    else:
        fail(f"{type(error).__name__}: {error} (unexpected; --debug shows where)")
    return 1
