"""What a result tells of how it came about: device, versions, commit."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from steps import CHECKOUT

NOT_CODE = ("recipes/README.md", "recipes/results", "recipes/experiments/README.md", "recipes/experiments/results")
"""What recipes and experiments write themselves: changes there do not make a result another."""


def circumstances() -> dict[str, Any]:
    """Of what is made here now."""
    versions = {"python": platform.python_version(), **{name: version(name) for name in ("nmt", "torch", "sacrebleu")}}
    return {"device": device(), "versions": versions, "commit": commit()}


def begun_in(made: Path | None) -> dict[str, Any]:
    """The circumstances of a training that begins now; of one that goes on, its earlier ones too, as `made` tells them."""
    now = circumstances()
    if made is None or not made.is_file():
        return now
    before = json.loads(made.read_text(encoding="utf-8"))
    return now | {key: joined([before[key], now[key]]) for key in ("device", "commit")}


def joined(words: Iterable[str]) -> str:
    """Each once, in order."""
    return "; ".join(dict.fromkeys(part for word in words for part in word.split("; ")))


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device() -> str:
    """The GPU's name where there is one; else the processor's, and how many of its cores this process may use."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    about = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*: (.+)$", about.read_text(), re.MULTILINE) if about.is_file() else None
    return f"{cores()} cores, {named[1] if named else platform.machine()}"


def commit(checkout: Path = CHECKOUT) -> str:
    """The commit of a checkout, marked where its files differ from it; empty outside a checkout, and without git."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=checkout, capture_output=True, check=True, encoding="utf-8").stdout.strip()

    try:
        ours = [".", *(f":(exclude){path}" for path in NOT_CODE)]
        changed = git("--no-optional-locks", "status", "--porcelain", "--untracked-files=no", "--", *ours)
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
