"""How much memory a program takes: it runs in a process of its own, and the kernel is asked."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STATUS = Path("/proc/self/status")


def peak() -> int:
    """The most bytes that this process has held so far. (getrusage's ru_maxrss would count what its parent held before exec.)"""
    found = re.search(r"^VmHWM:\s*(\d+) kB$", STATUS.read_text(), re.MULTILINE) if STATUS.is_file() else None
    if found is None:
        pytest.skip("only Linux's /proc tells how much memory a process has held")
    return 1024 * int(found[1])


def output_of(program: str, *arguments: str | Path) -> str:
    """What a Python program prints, that imports from the tests as they import from each other."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8", cwd=ROOT).stdout
