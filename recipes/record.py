"""What a result tells of how it came about: device, versions, commit."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from steps import CHECKOUT

NOT_CODE = ("recipes/README.md", "recipes/results", "recipes/experiments/README.md", "recipes/experiments/results")
"""What recipes and experiments write themselves: changes there do not make a result another."""


def circumstances() -> dict[str, Any]:
    """Of what is made here now."""
    return {"device": device(), "versions": versions(), "commit": commit()}


def begun_in(made: Path | None) -> dict[str, Any]:
    """The circumstances of work that begins now; of work that goes on, its earlier ones too, as the file `made` tells them."""
    before = [] if made is None or not made.is_file() else [json.loads(made.read_text(encoding="utf-8"))]
    return together([*before, circumstances()])


def together(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several circumstances as one; others' keys are left out."""
    names = dict.fromkeys(name for each in found for name in each["versions"])
    versions = {name: joined(each["versions"][name] for each in found if name in each["versions"]) for name in names}
    return {**{key: joined(each[key] for each in found) for key in ("device", "commit")}, "versions": versions}


def joined(words: Iterable[str]) -> str:
    """Each once, in order."""
    return "; ".join(dict.fromkeys(part for word in words for part in word.split("; ")))


def versions() -> dict[str, str]:
    """Of Python and of the packages whose work is in a result; sacremoses, by which tokens are made, where it is installed."""
    found = {"python": platform.python_version()}
    for name in ("nmt", "torch", "sacrebleu", "sacremoses"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            if name != "sacremoses":
                raise
    return found


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
