"""Models and training states on disk: tensors in safetensors, all else JSON, so that loading one never runs code.

    MODEL  config.json  model.safetensors  source.model  target.model
    RUN    the same, of its best model, with log.jsonl  report.json  checkpoints/step-N/
    step-N the same, of that step, with optimizer.safetensors  state.json

Every file is written beside its place and renamed, so whatever has its final name is whole, wherever a process was killed. What
is read is checked: config.json holds the checksums of itself and of the subword models, a tensor file that of its tensors and the
identity of the model they belong to, state.json those of itself and of both tensor files.
"""

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import nmt
from nmt.config import Config
from nmt.data.files import (
    check_directory,
    check_outside_runs,
    new_directory,
    read_json,
    sealed,
    sync,
    unsealed,
    write_json,
    writing,
)
from nmt.data.subword import Subword
from nmt.errors import NewerError, NmtError, UsageError, WriteError
from nmt.models import build
from nmt.models.base import Seq2Seq
from nmt.tensors import HINT, count_tensors, read_tensors, stored_checksum, write_tensors

FORMAT = 1
"""Of the files named above. A change that this reader would misread makes it one more."""

MOST_STATE = 1 << 25
"""Bytes of state.json: it holds the norm of each gradient since the last line of the log, which may be long ago."""

LEFTOVER = re.compile(r"\.((\w+\.(json|model|safetensors)|step-\d+)\.\d+\.partial|epoch-\w+\.partial|step-\d+\.removed)")
"""Names of what a killed training may have left half written or half removed."""

CONFIG, WEIGHTS, SOURCE, TARGET = "config.json", "model.safetensors", "source.model", "target.model"
OPTIMIZER, STATE, CHECKPOINTS = "optimizer.safetensors", "state.json", "checkpoints"
SEAL = "sha256"


@dataclass(frozen=True)
class SavedModel:
    """A model as it was saved, in evaluation mode, with everything that is needed to use it."""

    model: Seq2Seq
    config: dict[str, Any]
    source: Subword
    target: Subword
    path: Path


def resolve(path: Path) -> Path:
    """The model directory that `path` means, which is `path` itself. NmtError that says what it looks like if it is none."""
    if not path.exists():
        raise NmtError(f"{path}: no such directory")
    if not path.is_dir():
        raise NmtError(f"{path}: is a file; a model is a directory (a run, one of its checkpoints, or what `nmt average` wrote)")
    if (path / CONFIG).is_file() and (path / WEIGHTS).is_file():
        return path
    if (path / CHECKPOINTS).is_dir():
        newest = latest_checkpoint(path)
        instead = f"; its newest checkpoint is {newest}" if newest else ""
        raise NmtError(f"{path}: a run without a best model: nothing was validated yet, or its {WEIGHTS} is gone{instead}")
    if any(_step(child) is not None for child in path.iterdir()):
        raise NmtError(f"{path}: holds checkpoints; name one of them, or the run {path.resolve().parent}")
    if (path / CONFIG).is_file():
        raise NmtError(f"{path}: has no {WEIGHTS}; if this is data of `nmt preprocess`, name the run that was trained on it")
    raise NmtError(f"{path}: not a model: it has no {CONFIG} and no {WEIGHTS}")


def read_config(directory: Path) -> dict[str, Any]:
    """What `directory`/config.json says, checked. NmtError if it is damaged, NewerError from a newer version."""
    config = _json(directory / CONFIG)
    if not isinstance(config.get("format"), int):
        raise NmtError(f"{directory / CONFIG}: not the configuration of a model; {HINT}")
    if config["format"] > FORMAT:
        raise NewerError(
            f"{directory}: was made by nmt {config.get('version')} in format {config['format']}; this is nmt {nmt.__version__}, "
            f"which reads formats up to {FORMAT}: install a newer nmt"
        )
    config = _unsealed(directory / CONFIG, config)
    tables = all(isinstance(config.get(name), dict) for name in ("model", "vocabulary", "checksums"))
    if not tables or not {SOURCE, TARGET} <= config["checksums"].keys():
        raise NmtError(f"{directory / CONFIG}: not the configuration of a model")
    return config


def write_config(directory: Path, config: Mapping[str, Any], source: Subword, target: Subword) -> None:
    """The three files that a run's models have in common: config.json and the subword models. NmtError for one without room.

    config.json comes first: it is what says that all the others, present already or to come, are ours.
    """
    whole = {
        "format": FORMAT,
        "version": nmt.__version__,
        **{key: value for key, value in config.items() if key not in ("format", "version", "checksums", "sha256")},
        "checksums": {SOURCE: source.fingerprint, TARGET: target.fingerprint},
    }
    write_json(directory / CONFIG, sealed(whole, SEAL))
    for name, subword in ((SOURCE, source), (TARGET, target)):
        partial = directory / f".{name}.{os.getpid()}.partial"
        try:
            with writing(directory / name):
                subword.save(partial)
                sync(partial)
                os.replace(partial, directory / name)
        except WriteError:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise


def save_weights(directory: Path, model: Seq2Seq) -> str:
    """Puts the weights of `model` in their place beside an existing config.json, in one step; returns their checksum."""
    return write_tensors(directory / WEIGHTS, weights(model), _identity(read_config(directory)))


def save_model(directory: Path, model: Seq2Seq, config: Mapping[str, Any], source: Subword, target: Subword) -> str:
    """Fills an existing directory with a complete model; returns the checksum of the weights.

    `config` has the tables model, vocabulary, languages, data, train; format, version and checksums are added.
    """
    write_config(directory, config, source, target)
    return save_weights(directory, model)


def load_model(path: Path, device: str | torch.device = "cpu") -> SavedModel:
    """The model that `path` (a run, a checkpoint, an average) means, on `device`.

    Raises NmtError that names the file which is missing, damaged, of another model, or newer than this program.
    """
    directory = resolve(path)
    config = read_config(directory)
    source, target = (_subword(directory / name, config) for name in (SOURCE, TARGET))
    count = count_tensors(directory / WEIGHTS)
    try:
        settings = Config.from_dict({"model": config["model"]})
        arguments = (settings.backend, settings.model, len(source), len(target), bool(config["vocabulary"]["shared"]))
        with torch.device("meta"), _Undrawn(2 * count):  # costs no memory, whatever sizes the configuration claims
            expected = weights(build(*arguments))
    except (UsageError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise NmtError(f"{directory / CONFIG}: {error}") from error
    tensors, _ = read_tensors(directory / WEIGHTS, _identity(config), expected)
    with _Undrawn():
        model = build(*arguments)
    assign(model, tensors)
    return SavedModel(model.to(device).eval(), config, source, target, directory)


def identity(path: Path) -> str:
    """What tells the model that `path` means from all others: the checksum that its weights are said to have."""
    return stored_checksum(resolve(path) / WEIGHTS)


class _Undrawn(TorchFunctionMode):
    """Initial weights are not drawn: others take their place. On `meta` torch loads its compiler for it, which takes a second.

    ValueError where more than `most` tensors are made: a network of a million layers takes memory even without weights.
    """

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self._left = most

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return named["tensor"] if "tensor" in named else args[0]
        if self._left is not None and func is torch.empty:
            if not self._left:
                raise ValueError(f"it asks for more layers than {WEIGHTS} holds")
            self._left -= 1
        return func(*args, **named)


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; what is tied stands once, under its first name."""
    seen: set[int] = set()
    unique = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            unique[name] = tensor.detach()
    return unique


@torch.no_grad()
def assign(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Gives `model` the values of `tensors`, which have the names and shapes of `weights(model)`."""
    for name, tensor in weights(model).items():
        tensor.copy_(tensors[name])


def save_checkpoint(
    run: Path,
    step: int,
    model: Seq2Seq,
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, Any],
    config: Mapping[str, Any],
    source: Subword,
    target: Subword,
) -> Path:
    """Writes RUN/checkpoints/step-N whole."""
    directory = run / CHECKPOINTS / f"step-{step}"
    with new_directory(directory, overwrite=False) as partial:
        checksum = save_model(partial, model, config, source, target)
        moments = write_tensors(partial / OPTIMIZER, _moments(model, optimizer), checksum)
        write_json(partial / STATE, sealed({**state, "checksums": {WEIGHTS: checksum, OPTIMIZER: moments}}, SEAL))
    return directory


def remove_old(run: Path, keep_last: int) -> None:
    """Leaves the `keep_last` newest checkpoints of a run; the best model stands in RUN itself.

    Those that are only there to be resumed from, step 0 and what a stop asked for, go with the first newer one.
    """
    found = checkpoints(run)
    passing = [old for old in found[:-1] if _step(old) == 0 or _is_of_stop(old)]
    kept = [each for each in found if each not in passing][-keep_last:]
    for old in found:
        if old not in kept:
            # Renamed first: a kill in the middle of the removal leaves no half checkpoint under its own name.
            doomed = old.with_name(f".{old.name}.removed")
            with writing(old):
                os.rename(old, doomed)
                shutil.rmtree(doomed)


def _is_of_stop(directory: Path) -> bool:
    """Whether an uninterrupted run would not have that checkpoint. Damaged ones are kept like any other."""
    try:
        return bool(read_state(directory).get("stop", False))
    except NmtError:
        return False


def rewrite_state(directory: Path, state: Mapping[str, Any]) -> None:
    """Replaces what `state` names of what a checkpoint knows beside its tensors, in one step."""
    write_json(directory / STATE, sealed({**read_state(directory), **state}, SEAL))


def read_state(directory: Path) -> dict[str, Any]:
    """What `save_checkpoint` was given as `state`, and the checksums of the tensor files."""
    return _unsealed(directory / STATE, _json(directory / STATE))


def _json(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path, MOST_STATE)
    except NmtError as error:
        raise NmtError(f"{error}; {HINT}") from error
    if not isinstance(value, dict):
        raise NmtError(f"{path}: is damaged: not what nmt writes; {HINT}")
    return value


def _unsealed(path: Path, value: dict[str, Any]) -> dict[str, Any]:
    try:
        return unsealed(path, value, SEAL)
    except NmtError as error:
        raise NmtError(f"{error}; {HINT}") from error


def load_checkpoint(directory: Path, model: Seq2Seq, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Puts weights and optimizer back as they were, and returns the state. NmtError for what is damaged or does not fit."""
    state = read_state(directory)
    tensors, checksum = read_tensors(directory / WEIGHTS, _identity(read_config(directory)), weights(model))
    moments, moments_checksum = read_tensors(directory / OPTIMIZER, checksum)
    if state["checksums"] != {WEIGHTS: checksum, OPTIMIZER: moments_checksum}:
        raise NmtError(f"{directory / STATE}: belongs to other tensors than those beside it; {HINT}")
    assign(model, tensors)
    device = next(model.parameters()).device
    parameters = dict(model.named_parameters())
    for key, value in moments.items():
        kind, name = key.split(":", 1)
        optimizer.state[parameters[name]][kind] = value.to(device)
    return state


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    folder = run / CHECKPOINTS
    found = [(step, child) for child in folder.iterdir() if (step := _step(child)) is not None] if folder.is_dir() else []
    return [child for _, child in sorted(found)]


def latest_checkpoint(run: Path, before: float = math.inf) -> Path | None:
    """The newest checkpoint, of those of a step below `before`."""
    return next((each for each in reversed(checkpoints(run)) if int(each.name.removeprefix("step-")) < before), None)


def stranger(run: Path) -> Path | None:
    """Something among the checkpoints of a run that is neither a checkpoint nor a leftover of one; None where all is ours."""
    ours = {CONFIG, SOURCE, TARGET, WEIGHTS, OPTIMIZER, STATE}
    folder = run / CHECKPOINTS
    for child in sorted(folder.iterdir()) if folder.is_dir() else ():
        if LEFTOVER.fullmatch(child.name):
            continue
        if _step(child) is None or child.is_symlink():
            return child
        for file in sorted(child.iterdir()):
            if file.is_dir() or not (file.name in ours or LEFTOVER.fullmatch(file.name)):
                return file
    return None


def remove_leftovers(run: Path) -> None:
    """Clears what a killed process left half written. Only for who holds the run's lock."""
    for folder in (run, run / CHECKPOINTS):
        for child in folder.glob(".*") if folder.is_dir() else ():
            if LEFTOVER.fullmatch(child.name):
                shutil.rmtree(child) if child.is_dir() else child.unlink()


def average(paths: Sequence[Path], output: Path, last: int | None = None, overwrite: bool = False) -> list[Path]:
    """Writes the mean of models as a model directory `output`; returns what was averaged.

    A run stands for its checkpoints, the `last` newest of them if given, and never for step 0, which is not trained. The mean is
    taken in float64. Raises NmtError where settings or vocabularies differ, or where `output` may not be written.
    """
    check_outside_runs(output)
    check_directory(output, overwrite, paths)
    members: list[Path] = []
    for path in paths:
        kept = [each for each in checkpoints(path) if _step(each) != 0]
        if kept and last is not None and last > len(kept):
            raise NmtError(f"{path}: has {len(kept)} checkpoints, not {last}; raise train.keep_last to keep more")
        members += kept[-last:] if kept and last else kept or [resolve(path)]
    if not members:
        raise UsageError("nothing to average")
    first = load_model(members[0])
    for member in members[1:]:
        config = read_config(resolve(member))
        for key, what in (("checksums", "vocabulary"), ("vocabulary", "vocabulary"), ("model", "settings")):
            if config[key] != first.config[key]:
                raise NmtError(f"{member}: its {what} differ{'s' if key != 'model' else ''} from {members[0]}: no mean of the two")
    assign(first.model, mean(members))
    with new_directory(output, overwrite) as partial:
        save_model(partial, first.model, first.config, first.source, first.target)
    return members


def mean(members: Sequence[Path]) -> dict[str, Tensor]:
    """The mean weights of model directories whose models are alike, taken in float64."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for member in members:
        tensors, _ = read_tensors(member / WEIGHTS, _identity(read_config(member)), total or None)
        for name, tensor in tensors.items():
            if name not in total:
                kinds[name] = tensor.dtype
                total[name] = tensor.double()
            else:
                total[name] += tensor.double()
    return {name: (tensor / len(members)).to(kinds[name]) for name, tensor in total.items()}


def _step(path: Path) -> int | None:
    match = re.fullmatch(r"step-(\d+)", path.name)
    return int(match[1]) if match and path.is_dir() else None


def _identity(config: Mapping[str, Any]) -> str:
    """What a file of weights has in common with its config.json: settings and vocabularies."""
    return hashlib.sha256(json.dumps([config["model"], config["checksums"]], sort_keys=True).encode()).hexdigest()


def check_vocabularies(directory: Path, config: Mapping[str, Any]) -> None:
    """NmtError where a subword model of a model is missing, damaged, or not the one that its configuration names."""
    for name in (SOURCE, TARGET):
        _check_subword(directory / name, config)


def _subword(path: Path, config: Mapping[str, Any]) -> Subword:
    _check_subword(path, config)
    return Subword.load(path)


def _check_subword(path: Path, config: Mapping[str, Any]) -> None:
    if Subword.fingerprint_of(path) != config["checksums"][path.name]:
        raise NmtError(f"{path}: is damaged or belongs to another model: its checksum is not the one in {path.with_name(CONFIG)}")


def _moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What the optimizer remembers of each parameter, by the parameter's name: numbers in a list would follow its order."""
    return {
        f"{key}:{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
