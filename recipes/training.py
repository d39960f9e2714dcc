"""`nmt train`, by as many processes as there are cores or GPUs for, where an update is made of several micro-batches.

Two processes with a core each train a small network up to 1.3 times as fast as one with two threads.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from record import cores
from steps import run
from toml_file import refuse


def begun(output: Path) -> bool:
    """Whether there is a run in `output` to go on with: all else that `nmt train` needs for that is there before its settings."""
    return (output / "config.json").is_file()


def processes(micro_batches: int, resumed: Path | None = None) -> int:
    """How many train together: as many as have a core or a GPU each, and an equal share of the `micro_batches` of an update.

    A run that is `resumed` goes on with as many as before: what each has of an update may not change. SystemExit with one line
    where there are fewer GPUs than that; cores do more than one process's work.
    """
    import torch

    gpus = torch.cuda.device_count()
    if resumed is not None:
        share: int = json.loads((resumed / "config.json").read_text(encoding="utf-8"))["train"]["accumulate"]
        count = micro_batches // share
        if 0 < gpus < count:
            there = f"{gpus} GPU{'s' if gpus > 1 else ''}"
            refuse(resumed, f"was begun by {count} processes and goes on with as many; here are {there} (remove it to begin anew)")
        return count
    places = gpus or cores()
    return max(count for count in range(1, micro_batches + 1) if micro_batches % count == 0 and count <= places)


def train(data: Path, output: Path, how: Sequence[str | Path], micro_batches: int, processes: int) -> None:
    """Run `nmt train DATA -o OUTPUT` with the words of `how`, or `torchrun` of it; where it fails, end as it ended."""
    command: list[str | Path] = ["nmt", "train", data, "-o", output, *how, "--accumulate", str(micro_batches // processes)]
    if processes > 1:
        threads = ["--threads", str(max(1, cores() // processes))]
        command = ["torchrun", "--standalone", "--nproc-per-node", str(processes), "-m", *command, *threads]
    run(command)
