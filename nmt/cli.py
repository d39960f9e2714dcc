"""The entry: runs one command line and tells every failure in one line, with its exit code."""

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from typing import Any

import typer

from nmt.commands import app
from nmt.errors import NmtError, UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's) and return its exit code; a failure is one line on stderr.

    0 done, 2 wrong usage, 1 anything else; 130 and 143 for Ctrl-C and SIGTERM, 141 where the reader of stdout went away.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words  # asked here, since an error may come before any option is read
    if "_NMT_COMPLETE" in os.environ:  # a shell asks what could come next
        app(words, prog_name="nmt")
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors=errors)  # whatever the locale says
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # unwinds, so half-written files go away
    command = typer.main.get_command(app)
    if not words:
        with suppress(typer.Exit), redirect_stdout(sys.stderr):
            command.make_context("nmt", ["--help"])
        return 2
    try:
        with command.make_context("nmt", words) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as done:
        return done.exit_code
    except BrokenPipeError:  # `| head -1`: end as SIGPIPE would; the interpreter's last flush must not fail either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (KeyboardInterrupt, typer.Abort):
        return 128 + signal.SIGINT
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _explain(error)
    return 0


def _explain(error: Exception) -> int:
    """Say what went wrong in one line; the exit code."""
    from nmt.console import fail

    # click's UsageError: some versions of typer have a click of their own, and do not export it.
    usage: Any = typer.BadParameter.__base__
    if isinstance(error, usage):
        message = " ".join(error.format_message().replace("Value error, ", "").split())
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
