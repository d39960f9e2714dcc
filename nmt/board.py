"""The numbers of a run's log as event files, for TensorBoard: `tensorboard --logdir RUN`."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.console import date
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
    """Writes beside the log of `run`. What earlier processes wrote of updates after `step` is no longer shown.

    At once and in this thread: torch's SummaryWriter has one of its own, which tells a full disk to nobody who could act on it.
    """

    def __init__(self, run: Path, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        place = run / BOARD
        with writing(place):
            place.mkdir(exist_ok=True)
            number = len(list(place.iterdir()))  # TensorBoard reads them in the order of their names
        self._path = place / f"{EVENTS}{date():010.0f}.{number:06d}"
        self._append(Event(wall_time=date(), file_version="brain.Event:2"))
        self._append(Event(wall_time=date(), step=step + 1, session_log=SessionLog(status=SessionLog.START)))

    def write(self, event: Mapping[str, Any]) -> None:
        """Every number of a line of the log, as `train/loss`, at its update."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=f"{event['event']}/{key}", simple_value=value)
            for key, value in event.items()
            if key != "step" and isinstance(value, int | float) and not isinstance(value, bool)
        ]
        self._append(Event(wall_time=date(), step=event["step"], summary=Summary(value=values)))

    def _append(self, event: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        with writing(self._path), open(self._path, "ab") as stream:
            RecordWriter(stream).write(event.SerializeToString())
