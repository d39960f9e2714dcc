"""What is in a directory of ours, for people and programs: data, a run, a checkpoint, a model."""

import math
from pathlib import Path
from typing import Any

from nmt.checkpoint import CHECKPOINTS, CONFIG, STATE, WEIGHTS, check_vocabularies, checkpoints, read_config, read_state
from nmt.data.files import read_json, shown
from nmt.data.shards import Dataset
from nmt.errors import NmtError
from nmt.run import read_log
from nmt.tensors import opened


def describe(path: Path) -> dict[str, Any]:
    """What `path` holds, ready for JSON; its `kind` is data, run, checkpoint or model.

    Raises NmtError where it is none of these, is not whole, or is damaged. The weights themselves are not read.
    """
    if not path.exists():
        raise NmtError(f"{path}: no such directory")
    if not (path / CONFIG).is_file():
        raise NmtError(f"{path}: has no {CONFIG}: not data, a run, a checkpoint or a model of nmt")
    config = read_json(path / CONFIG)
    if isinstance(config, dict) and config.get("kind") == "data":
        data = Dataset.open(path)  # checks what it opens
        return {"path": shown(path), **data.config}
    config = read_config(path)
    check_vocabularies(path, config)
    found: dict[str, Any] = {"path": shown(path), "kind": "model", **config}
    if (path / WEIGHTS).is_file():
        found["parameters"] = parameters(path / WEIGHTS)
    elif not (path / CHECKPOINTS).is_dir():  # a run has them when it has validated
        raise NmtError(f"{path / WEIGHTS}: no such file: the model is not whole; copy it again")
    if (path / STATE).is_file():
        found |= {"kind": "checkpoint", "state": read_state(path)}
    if (path / CHECKPOINTS).is_dir():
        found |= {"kind": "run", "checkpoints": [each.name for each in checkpoints(path)], **_progress(path)}
    return found


def as_text(found: dict[str, Any]) -> list[str]:
    """A line for each fact, `key  value`; keys of tables have the table's name before a dot."""
    facts = list(_flat(found, ""))
    width = max(len(key) for key, _ in facts)
    return [f"{key:{width}}  {value}" for key, value in facts]


def _flat(value: object, name: str) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [fact for key, item in value.items() for fact in _flat(item, f"{name}.{key}" if name else str(key))]
    if isinstance(value, list):
        return [(name, " ".join(str(item) if item is not None else "none" for item in value))]
    if isinstance(value, bool) or value is None:
        return [(name, {True: "true", False: "false", None: "none"}[value])]
    return [(name, f"{value:,}" if isinstance(value, int) else str(value))]


def parameters(path: Path) -> int:
    """Numbers in a tensor file, by its header alone."""
    with opened(path, "np") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 (not a mapping)


def _progress(run: Path) -> dict[str, Any]:
    """The last line of training in the log, and the validation that the run's model comes from. NmtError for a damaged line."""
    events, damage = read_log(run)
    if damage is not None:
        raise NmtError(damage)
    found: dict[str, Any] = {}
    for event in events:
        if event["event"] == "train":
            found["last"] = {key: event[key] for key in ("step", "epoch", "loss", "nll")}
        if event.get("best"):  # each better than those before it
            found["best"] = {key: event[key] for key in ("step", "nll", "ppl", "accuracy", "bleu", "chrf")}
    return found
