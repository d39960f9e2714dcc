"""What must be true before the first update: settings that fit the data, the device, the model begun with, the run to resume."""

import hashlib
from pathlib import Path
from typing import Any

import torch

from nmt.board import check_installed
from nmt.checkpoint import CONFIG, WEIGHTS, assign, latest_checkpoint, load_model, read_config, read_state, weights
from nmt.config import Config
from nmt.data.batching import batches
from nmt.data.files import made_as, read_json
from nmt.data.shards import CONTENT, REPORT, Dataset
from nmt.errors import NewerError, NmtError, UsageError
from nmt.models import BACKENDS
from nmt.models.base import Seq2Seq
from nmt.tensors import HINT

MAY_CHANGE = (
    *("max_steps", "max_epochs", "max_minutes", "patience"),
    *("save_every", "log_every", "keep_last", "average_last", "tensorboard"),
)
"""Settings of `[train]` that a resumed run may have otherwise: when to stop, what to write. All others change the result."""


def check(
    dataset: Dataset, run: Path, config: Config, device: torch.device, resume: bool, init_from: Path | None, overwrite: bool
) -> torch.dtype:
    """The `arithmetic` of the run. UsageError or NmtError for what cannot be."""
    settings = config.train
    if resume and (overwrite or init_from is not None):
        raise UsageError("--resume goes with neither --init-from nor --overwrite")
    if overwrite and init_from is not None and init_from.resolve().is_relative_to(run.resolve()):
        raise UsageError(f"--overwrite would delete {init_from}, which --init-from is to read; choose another place for the run")
    if not len(dataset.train):
        raise NmtError(f"{dataset.path}: holds no training pairs")
    if settings.patience and not len(dataset.valid):
        raise UsageError(f"train.patience needs validation data, and {dataset.path} has none: preprocess with --valid-source")
    if config.backend != "rnn" and (settings.teacher_forcing < 1 or settings.teacher_forcing_end is not None):
        raise UsageError(f"train.teacher_forcing below 1 is for the rnn backend, not for {config.backend}: it decodes step by step")
    if config.data.bpe_dropout:
        for subword in (dataset.source, dataset.target):
            if subword.kind != "bpe":
                raise UsageError(f"data.bpe_dropout needs data made with --tokenizer bpe, not {subword.kind}")
    if settings.tensorboard:
        check_installed()
    return arithmetic(config, device)


def arithmetic(config: Config, device: torch.device) -> torch.dtype:
    """What `train.precision` means on this device. UsageError where it has none such."""
    settings = config.train
    if settings.precision == "auto":
        able = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if able else torch.float32
    if settings.precision == "float16" and device.type != "cuda":
        raise UsageError("train.precision float16 needs a GPU; here there are float32 and bfloat16")
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[settings.precision]


def compiled(config: Config, device: torch.device, wanted: bool | None) -> bool:
    """Whether the network is compiled: as `wanted`, or where nothing is said on a GPU, if its backend suits the compiler."""
    return device.type == "cuda" and BACKENDS[config.backend].compiles if wanted is None else wanted


def examined(dataset: Dataset, config: Config) -> tuple[str, Any]:
    """The fingerprint and the report of the data. NmtError where it is damaged, or holds a pair that is longer than an update."""
    found = fingerprint(dataset)
    batches(dataset.train.lengths, config.train.batch_tokens, seed=config.train.seed, epoch=0)  # refuses a pair above the budget
    dataset.checked(dataset.path / REPORT)
    return found, read_json(dataset.path / REPORT)


def settings_of(run: Path) -> Config | None:
    """What a run to be resumed is trained with: its config.json says it, and where that is lost its newest checkpoint does.

    None where there is neither. NmtError where `run` is data, or what it says is damaged and there is no checkpoint.
    """
    if made_as(run) == "data":
        raise NmtError(f"{run}: is data, not a run; choose another place")
    newest = latest_checkpoint(run)
    if newest is None and not (run / CONFIG).is_file():
        return None
    try:
        return Config.from_dict(read_config(run))
    except NewerError:
        raise
    except NmtError:
        if newest is None:
            raise
    return Config.from_dict(read_config(newest))


def begun_from(run: Path, newest: Path | None, config: Config, dataset: Dataset, data: str) -> Path | None:
    """The model whose weights a run to be resumed began with; it is needed where not even a first checkpoint (`newest`) was made.

    `data` is the fingerprint of `dataset`.

    UsageError for settings that a resumed run cannot change, NmtError where its data was other or its checkpoints are gone.
    """
    if newest is None and (run / WEIGHTS).exists():
        raise NmtError(f"{run}: has a model but no checkpoint to resume from; begin another run with --init-from {run}")
    place = newest or run
    if newest is None and not (run / CONFIG).is_file():
        return None  # it was stopped before it wrote anything
    if not (place / CONFIG).is_file():
        raise NmtError(f"{place / CONFIG}: no such file; {HINT}")
    described, wanted = read_config(place), config.to_dict()
    stored = Config.from_dict(described).to_dict()  # a setting that was not known yet had the value that is now its default
    conflicts = [
        f"{table}.{key} ({stored[table].get(key)}, not {wanted[table].get(key)})"
        for table in wanted
        for key in sorted(stored[table].keys() | wanted[table].keys())
        if stored[table].get(key) != wanted[table].get(key) and not _may_change(config, table, key)
    ]
    if conflicts:
        raise UsageError(
            f"--resume continues {run} as it was begun, so these settings cannot change: {', '.join(conflicts)}; "
            "to begin anew from its weights, give --init-from"
        )
    if newest is not None and read_state(newest)["data"] != data:
        raise NmtError(f"{dataset.path}: is not the data that {run} was trained on; to go on with other data, give --init-from")
    return Path(described["init_from"]) if described["init_from"] else None


def _may_change(config: Config, table: str, key: str) -> bool:
    settings = config.train
    scheduled = settings.schedule in ("linear", "cosine") or settings.teacher_forcing_end is not None
    return table == "train" and key in MAY_CHANGE and not (key == "max_steps" and scheduled)


def fingerprint(dataset: Dataset) -> str:
    """A checksum of the files that training reads. NmtError for one that is not as preprocess left it."""
    total = hashlib.sha256()
    for path in sorted(path for pattern in (*CONTENT, "*.model") for path in dataset.path.glob(pattern)):
        total.update(path.name.encode())
        total.update(bytes.fromhex(dataset.checked(path)))
    return total.hexdigest()


def vocabulary(dataset: Dataset) -> dict[str, Any]:
    """The tables of config.json that come from the data."""
    sizes = {"source": len(dataset.source), "target": len(dataset.target), "shared": dataset.shared}
    return {"vocabulary": sizes, "languages": list(dataset.languages)}


def updates_an_epoch(dataset: Dataset, config: Config) -> int:
    """Of the first one: with BPE-dropout, which makes sentences longer, about as many as of any other."""
    return len(batches(dataset.train.lengths, config.train.batch_tokens, seed=config.train.seed, epoch=0))


def describe(
    dataset: Dataset, config: Config, model: Seq2Seq, device: torch.device, precision: torch.dtype, updates: int, processes: int
) -> str:
    """What is about to be trained, on what, in one line; an epoch has so many `updates`."""
    number = sum(parameter.numel() for parameter in model.parameters())
    sizes = f"{len(dataset.source):,}" if dataset.shared else f"{len(dataset.source):,} and {len(dataset.target):,}"
    lengths = dataset.train.lengths
    number_of_threads = torch.get_num_threads()
    threads = f", {number_of_threads} thread{'s' if number_of_threads > 1 else ''}" if device.type == "cpu" else ""
    where = f"{processes} processes, each on {device.type}" if processes > 1 else f"{device}"
    return (
        f"{config.backend}: {number:,} parameters, {sizes} subwords; {len(lengths):,} pairs, {int(lengths[:, 1].sum()):,} target "
        f"tokens, {updates:,} updates an epoch; {where}, {str(precision).removeprefix('torch.')}{threads}"
    )


def initialise(model: Seq2Seq, config: Config, path: Path, dataset: Dataset) -> None:
    """Gives `model` the weights of the model at `path`. NmtError where vocabularies or settings differ."""
    saved = load_model(path)
    for side, here, there in (("source", dataset.source, saved.source), ("target", dataset.target, saved.target)):
        if here.fingerprint != there.fingerprint:
            raise NmtError(
                f"{path}: its {side} vocabulary of {len(there):,} subwords is not the one of {dataset.path}, of {len(here):,}; "
                f"preprocess the data with --vocab-from {path}"
            )
    found = weights(saved.model)
    if {name: tensor.shape for name, tensor in found.items()} != {name: tensor.shape for name, tensor in weights(model).items()}:
        wanted, had = config.to_dict()["model"], saved.config["model"]
        differ = [f"model.{key} ({had.get(key)}, not {wanted.get(key)})" for key in wanted | had if had.get(key) != wanted.get(key)]
        raise NmtError(f"{path}: its weights do not fit, since settings differ: {', '.join(differ)}")
    assign(model, found)
