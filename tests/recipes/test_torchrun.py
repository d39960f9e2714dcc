"""The launcher of recipes' trainings ends as its processes do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LAUNCHER = Path(__file__).parents[2] / "recipes" / "torchrun.py"


def started(script: str) -> subprocess.Popen[str]:
    """Two processes of a shell script, in which torchrun takes $$ for $."""
    command = [sys.executable, LAUNCHER, "--standalone", "--nproc-per-node", "2", "--no-python", "sh", "-c", script]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("exit 0", 0, ""),
        ("exit 3", 3, ""),
        ("kill -KILL $$$$", 137, "torchrun: error: a process was ended by SIGKILL\n"),
    ],
)
def test_its_exit_code_is_that_of_the_processes(script: str, code: int, words: str) -> None:
    launcher = started(script)
    assert launcher.communicate() == ("", words)
    assert launcher.returncode == code


def test_ctrl_c_shows_no_traceback() -> None:
    launcher = started("trap 'exit 0' INT; sleep 3; kill -INT $PPID; sleep 30")
    assert launcher.communicate() == ("", "")
    assert launcher.returncode == 130
