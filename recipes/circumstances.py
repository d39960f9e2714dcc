"""Where and by what a result was made: machine, versions, commit."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NOT_CODE = ("recipes/results", "recipes/README.md", "recipes/experiments/results", "recipes/experiments/README.md")
"""What scripts write themselves: changes there do not make a result another."""


def circumstances() -> dict[str, Any]:
    """Of a result that is made now."""
    versions = {"python": platform.python_version(), **{name: version(name) for name in ("nmt", "torch", "sacrebleu")}}
    return {"device": device(), "versions": versions, "commit": commit(HERE.parent)}


def device() -> str:
    """The processor's name and how many of its cores this process may use; the GPU's name where there is one."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    about = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*: (.+)$", about.read_text(), re.MULTILINE) if about.is_file() else None
    return f"{cores} cores, {named[1] if named else platform.machine()}"


def commit(checkout: Path) -> str:
    """The commit of this checkout, marked where its files differ from it; empty outside a checkout, and without git."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=checkout, capture_output=True, check=True, encoding="utf-8").stdout.strip()

    changes = ("--no-optional-locks", "status", "--porcelain", "--untracked-files=no", "--", ".")
    try:
        changed = git(*changes, *(f":(exclude){path}" for path in NOT_CODE))
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
