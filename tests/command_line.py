"""Running command lines in tests."""

import os
import subprocess
import sys
from pathlib import Path

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
