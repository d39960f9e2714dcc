"""The numbers of a run's log as event files, for TensorBoard: `tensorboard --logdir RUN`."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.data.files import writing
from nmt.errors import NmtError

BOARD = "tensorboard"
"""The directory in a run."""

EVENTS = "events.out.tfevents."
"""How the names of all files in it begin."""


def check_installed() -> None:
    """NmtError where the package that writes event files is not."""
    if importlib.util.find_spec("tensorboard") is None:
        raise NmtError("train.tensorboard needs a package that is not installed: pip install 'nmt[tensorboard]'")


class Board:
    """Writes beside the log of `run`. What earlier processes wrote of updates after `step` is no longer shown."""

    def __init__(self, run: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._place = run / BOARD
        with writing(self._place):
            self._writer: Any = SummaryWriter(str(self._place), purge_step=step + 1)

    def write(self, event: Mapping[str, Any]) -> None:
        """Every number of a line of the log, as `train/loss`, at its update."""
        with writing(self._place):
            for key, value in event.items():
                if key != "step" and isinstance(value, int | float) and not isinstance(value, bool):
                    self._writer.add_scalar(f"{event['event']}/{key}", value, event["step"])
            self._writer.flush()
