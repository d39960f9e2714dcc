"""What the directory of a run has to tell: its log, its configuration, its state, the report of its data.

Whatever is missing has a reason, and nothing that is missing keeps the rest from being told.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.checkpoint import CHECKPOINTS, WEIGHTS, latest_checkpoint, read_config, read_state
from nmt.data.files import made_as, read_json
from nmt.data.report import Report, Table
from nmt.errors import NmtError
from nmt.info import parameters
from nmt.run import LOG, REPORT, is_training, read_log

VALIDATIONS = ("valid", "average")
"""Events of the log that have scores."""


@dataclass(frozen=True)
class Run:
    """What was found."""

    path: Path
    name: str
    """As the page calls it."""
    config: dict[str, Any]
    events: list[dict[str, Any]]
    """Of the log."""
    parameters: int | None
    report: dict[str, Any]
    """Of preprocess; empty where it is missing."""
    tables: list[Table]
    """The same for people."""
    status: str
    """Whether training has come to its end."""
    missing: list[str]
    """What cannot be shown, and why; a sentence each."""

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """Events of these kinds by ascending step; of two at one step the later, which a run that went on has written."""
        found = {event["step"]: event for event in self.events if event["event"] in kinds}
        return [found[step] for step in sorted(found)]

    @property
    def best(self) -> dict[str, Any] | None:
        """The validation that the run's model comes from."""
        return next((event for event in reversed(self.events) if event["event"] in VALIDATIONS and event["best"]), None)

    @property
    def tokens_per_second(self) -> float | None:
        """The median over the lines of the log."""
        rates = [event["tokens_per_second"] for event in self.of("train")]
        return statistics.median(rates) if rates else None


def check(path: Path) -> None:
    """NmtError where `path` is no run."""
    if not path.exists():
        raise NmtError(f"{path}: no such directory")
    if made_as(path) != "model" or not ((path / CHECKPOINTS).is_dir() or (path / LOG).is_file()):
        raise NmtError(f"{path}: is not a run, which nmt train makes: it lacks a whole config.json, {CHECKPOINTS} or {LOG}")


def gather(path: Path, name: str) -> Run:
    """What is in the run at `path`. Raises NmtError where it is no run, or its configuration is damaged."""
    check(path)
    config = read_config(path)
    missing: list[str] = []
    events, damage = read_log(path)
    kinds = {event["event"] for event in events}
    if damage is not None:
        missing.append(f"What follows in the log is not shown: {damage}.")
    elif "train" not in kinds:
        missing.append(
            f"There are no curves of training yet: the first figures come after update {config['train']['log_every']:,}."
        )

    newest = latest_checkpoint(path)
    report, tables = _report(path, missing)
    if not kinds.intersection(VALIDATIONS):
        held_out = report.get("pairs", {}).get("valid")
        when = f"the first validation is after update {config['train']['valid_every']:,}"
        missing.append(f"There are no validation scores: {'the data has no validation set' if held_out == 0 else when}.")
    return Run(
        path=path,
        name=name,
        config=config,
        events=events,
        parameters=_parameters(path, newest, missing),
        report=report,
        tables=tables,
        status=_status(path, newest, events, missing),
        missing=missing,
    )


def _report(path: Path, missing: list[str]) -> tuple[dict[str, Any], list[Table]]:
    try:
        values = read_json(path / REPORT)
        tables = Report(values).tables()
        _ = values["versions"].items()  # which the page reads too
        return values, tables
    except NmtError as error:
        missing.append(f"The report of preprocess is missing: {error}.")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        missing.append(f"The report of preprocess is missing: {path / REPORT} is damaged or was edited.")
    return {}, []


def _parameters(path: Path, newest: Path | None, missing: list[str]) -> int | None:
    """Of the run's model, or where there is none yet of its newest checkpoint's."""
    place = path if (path / WEIGHTS).is_file() or newest is None else newest
    try:
        return parameters(place / WEIGHTS)
    except NmtError as error:
        missing.append(f"The number of parameters is missing: {error}.")
        return None


def _status(path: Path, newest: Path | None, events: list[dict[str, Any]], missing: list[str]) -> str:
    """How far training is; what is not whole is told in `missing`."""
    if is_training(path):
        return "in training"
    if newest is None:
        missing.append("Training was stopped before its first checkpoint.")
        return "stopped"
    try:
        state = read_state(newest)
    except NmtError as error:
        missing.append(f"Where training stands is not known: {error}.")
        return "stopped"
    if state["finished"] is not None and state["finished"][0] == state["step"]:
        return "ended"
    reached = max((event["step"] for event in events), default=0)
    lost = f", and loses what the log tells of later updates, up to {reached:,}" if reached > state["step"] else ""
    if events and events[-1]["event"] == "skipped":
        missing.append(f"The last updates were skipped: their loss or gradient was no number. The run has stopped at {reached:,}.")
    else:
        missing.append(
            f"Training was stopped before its end: nmt train DATA -o {path} --resume goes on after update {state['step']:,}{lost}."
        )
    return "stopped"
