"""Running command lines in tests."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from nmt.cli import main


def nmt_process(
    *words: str | Path, environment: dict[str, str] | None = None, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """`nmt WORDS` in a process of its own, for what only a process has: locale, exit status, pipes."""
    return subprocess.run(
        [sys.executable, "-m", "nmt", *map(str, words)],
        input=stdin,
        capture_output=True,
        env={**os.environ, **(environment or {})},
        timeout=120,
        check=False,
    )


@contextmanager
def nmt_started(*words: str | Path, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """`nmt WORDS` in a process that goes on beside the test, and never longer than it."""
    with subprocess.Popen([sys.executable, "-m", "nmt", *map(str, words)], **options) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(stream: IO[bytes] | None, seconds: float = 60) -> bytes:
    """The next line of a pipe that has none left in its buffer; a failure where none comes."""
    assert stream is not None and select.select([stream], [], [], seconds)[0], f"no line in {seconds} s"
    return stream.readline()


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    """Asks again and again; a failure where it never becomes true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not so after {seconds} s"
        time.sleep(0.02)


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    """Exit code and error of a command line that must fail: one line on stderr, nothing on stdout."""
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("nmt: error: ") and err.count("\n") == 1 and err.endswith("\n"), err
    return code, err.removeprefix("nmt: error: ").rstrip("\n")


def text(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def out(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """stdout of a command line that must succeed."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out
