"""Every typed setting of a run: its default, its one line of help, and how the layers of a configuration become one `Config`.

A layer wins over those before it: defaults, `size` where the file says it, the tables of `--config FILE`, `--size` on the command
line, then `--set table.key=value` and the flags.
The model's settings stand in the backends' files; here they are read, checked and listed like the rest.
"""

import dataclasses
import difflib
import math
import re
import sys
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from nmt.errors import NmtError, UsageError
from nmt.limits import MOST_BEAM, MOST_COUNTED, MOST_POSITIONS

if TYPE_CHECKING:  # torch comes with it, and the command line reads files through this module before it needs torch
    from nmt.models.base import Settings

TABLES = (
    "model",
    "data",
    "train",
    "preprocess",
    "translate",
    "score",
    "logprob",
    "average",
    "export",
    "info",
    "report",
    "bench",
    "recipe",
)
"""Tables that a configuration file may hold. `[recipe]` is for people: a recipe's sources and published numbers."""

DEFAULT_BACKEND = "transformer"


@dataclass(frozen=True)
class DataConfig:
    """`[data]`: how training data is read."""

    bpe_dropout: Annotated[float, "share of BPE merges skipped at random in training; needs a bpe tokenizer"] = 0.0

    def __post_init__(self) -> None:
        _check_range("data", self, "bpe_dropout", 0, 1, below=True)


@dataclass(frozen=True)
class TrainConfig:
    """`[train]`: optimizer, schedule, limits, validation."""

    optimizer: Annotated[
        Literal["adam", "adadelta"], "what makes steps of gradients; adadelta finds its own rates: schedule constant, warmup 0"
    ] = "adam"
    learning_rate: Annotated[
        float | None, "peak learning rate; none: (width * warmup)^-0.5, the Transformer paper's, or 1 with adadelta"
    ] = None
    schedule: Annotated[
        Literal["inverse-sqrt", "linear", "cosine", "constant"],
        "how the rate falls after warm-up; linear and cosine end at max_steps",
    ] = "inverse-sqrt"
    warmup: Annotated[int, "updates in which the rate rises from 0 to its peak"] = 4000
    adam_beta1: Annotated[float, "Adam's decay of the mean of gradients"] = 0.9
    adam_beta2: Annotated[float, "Adam's decay of the mean of squared gradients"] = 0.98
    adam_epsilon: Annotated[float, "Adam's term against division by zero"] = 1e-9
    adadelta_rho: Annotated[float, "Adadelta's decay of the means of squared gradients and of squared steps"] = 0.95
    adadelta_epsilon: Annotated[float, "Adadelta's term against division by zero, which the first steps grow from"] = 1e-6
    label_smoothing: Annotated[float, "share of probability given to all other tokens in the loss"] = 0.1
    r_drop: Annotated[
        float, "weight (alpha) of R-Drop: two passes with other dropout are to agree; 0: one pass, else twice the time and memory"
    ] = 0.0
    clip_norm: Annotated[float, "largest global norm of the gradient; 0: no clipping"] = 1.0
    teacher_forcing: Annotated[float, "probability that the decoder reads the true token and not its own prediction (rnn)"] = 1.0
    teacher_forcing_end: Annotated[float | None, "that probability at max_steps, reached in a straight line; none: constant"] = None
    batch_tokens: Annotated[int, "budget of one update: positions of each side of its pairs, padding counted"] = 4096
    accumulate: Annotated[int, "micro-batches an update is split into, to save memory; only dropout's random numbers change"] = 1
    max_steps: Annotated[int | None, "stop after this many updates; none: no such limit"] = 100_000
    max_epochs: Annotated[int | None, "stop after this many passes over the data; none: no such limit"] = None
    max_minutes: Annotated[float | None, "stop after this much time, over all resumes; none: no such limit"] = None
    valid_every: Annotated[int, "updates between two validations"] = 1000
    valid_beam: Annotated[int, "beam size of the validation translations; 1: greedy"] = 1
    save_every: Annotated[int, "updates between two checkpoints"] = 1000
    log_every: Annotated[int, "updates between two lines of the log"] = 100
    keep_last: Annotated[int, "newest checkpoints kept beside the best one"] = 5
    metric: Annotated[Literal["bleu", "chrf", "nll", "ppl", "accuracy"], "validation score that decides which model is best"] = (
        "bleu"
    )
    patience: Annotated[int, "stop after this many validations in a row without a better score; 0: never"] = 0
    average_last: Annotated[int, "at the end, average this many of the newest checkpoints into the final model; 0: do not"] = 0
    precision: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"], "arithmetic of the forward pass; auto: bfloat16 on a GPU that has it"
    ] = "float32"
    tensorboard: Annotated[bool, "write the numbers of the log for TensorBoard too; needs nmt[tensorboard]"] = False
    seed: Annotated[int, "seed of all randomness of training"] = 1

    def __post_init__(self) -> None:
        def check(name: str, least: float, most: float = math.inf, below: bool = False, above: bool = False) -> None:
            _check_range("train", self, name, least, most, below, above)

        check("learning_rate", 0)
        for name in ("adam_beta1", "adam_beta2", "adadelta_rho", "label_smoothing"):
            check(name, 0, 1, below=True)
        for name in ("teacher_forcing", "teacher_forcing_end"):
            check(name, 0, 1)
        for name in ("adam_epsilon", "adadelta_epsilon", "max_minutes"):
            check(name, 0, above=True)
        for name in ("clip_norm", "r_drop"):
            check(name, 0)
        for name in ("warmup", "patience", "average_last"):
            check(name, 0, MOST_COUNTED)
        for name in (
            "max_steps",
            "max_epochs",
            "valid_every",
            "save_every",
            "log_every",
            "keep_last",
        ):
            check(name, 1, MOST_COUNTED)
        check("batch_tokens", 1, MOST_POSITIONS)
        check("accumulate", 1, self.batch_tokens)
        check("valid_beam", 1, MOST_BEAM)
        check("seed", 0, MOST_COUNTED)
        if self.optimizer == "adadelta":
            if self.schedule != "constant" or self.warmup:
                raise UsageError("train.optimizer adadelta finds its own rates: set train.schedule constant and train.warmup 0")
        elif self.learning_rate is None and self.warmup == 0:
            raise UsageError("train.warmup is 0, so train.learning_rate must be given")
        if self.r_drop and (self.teacher_forcing < 1 or self.teacher_forcing_end is not None):
            raise UsageError("train.r_drop compares two passes over the same tokens, so train.teacher_forcing must stay 1")
        if self.max_steps is None:
            if self.schedule in ("linear", "cosine"):
                raise UsageError(f"train.schedule {self.schedule} ends at train.max_steps, which must be given")
            if self.teacher_forcing_end is not None:
                raise UsageError("train.teacher_forcing_end is reached at train.max_steps, which must be given")
        if self.average_last > self.keep_last:
            raise UsageError(
                f"train.average_last {self.average_last} needs train.keep_last of at least as many, not {self.keep_last}"
            )


@dataclass(frozen=True)
class Config:
    """All settings of a run, checked. `config.json` holds `to_dict()`."""

    backend: str
    model: "Settings"
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """{"model": {"backend": …, every setting}, "data": {…}, "train": {…}}, ready for JSON."""
        return {
            "model": {"backend": self.backend, **dataclasses.asdict(self.model)},
            "data": dataclasses.asdict(self.data),
            "train": dataclasses.asdict(self.train),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Config":
        """The inverse of `to_dict`; other keys of `value` are ignored. UsageError for settings this version does not know."""
        return resolve(layers=[Layer("config.json", {name: value.get(name, {}) for name in ("model", "data", "train")})])


@dataclass(frozen=True)
class Layer:
    """Settings from one place, by table and key."""

    origin: str
    """Where they come from, as an error names it: a file, or an option of the command line."""
    tables: Mapping[str, Mapping[str, object]]
    lines: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """The line of a key, where the origin is a file."""

    def where(self, table: str, key: str) -> str:
        line = self.lines.get((table, key))
        return self.origin if line is None else f"{self.origin}:{line}"


@dataclass(frozen=True)
class Key:
    """One setting as `Annotated[type, help]` describes it."""

    name: str
    type: Any
    default: object
    help: str


def keys(settings: type) -> dict[str, Key]:
    """The settings that a dataclass of `Annotated` fields declares, in order."""
    hints = typing.get_type_hints(settings, include_extras=True)
    found = {}
    for item in dataclasses.fields(settings):
        kind, text = typing.get_args(hints[item.name])[:2]
        found[item.name] = Key(item.name, kind, item.default, text)
    return found


def resolve(
    backend: str | None = None,
    size: str | None = None,
    layers: Sequence[Layer] = (),
    base: Config | None = None,
    below: Sequence[Layer] = (),
) -> Config:
    """One checked `Config`. `backend` and `size` are the options of that name; later layers win, and all win over `size`.

    All but those `below`, over which `size` wins: a file's, where `size` was typed.

    `base`, the settings of a run to go on with, takes the place of the defaults.

    Tables other than `[model]`, `[data]` and `[train]` are not looked at. UsageError that names the origin for an unknown
    key, a wrong type, an impossible value.
    """
    from nmt.models import BACKENDS

    chosen = backend or (base.backend if base else DEFAULT_BACKEND)
    if backend is None:
        for layer in (*below, *layers):
            value = layer.tables.get("model", {}).get("backend")
            if value is not None:
                chosen = convert(value, Literal[tuple(BACKENDS)], "model.backend", layer.where("model", "backend"))
    if chosen not in BACKENDS:
        raise UsageError(f"unknown backend {chosen!r}{did_you_mean(chosen, BACKENDS)}")
    entry = BACKENDS[chosen]
    if size is not None and size not in entry.sizes:
        raise UsageError(f"unknown size {size!r}{did_you_mean(size, entry.sizes)}")

    known: dict[str, dict[str, Key]] = {"model": keys(entry.settings), "data": keys(DataConfig), "train": keys(TrainConfig)}
    values: dict[str, dict[str, Any]] = {"model": {}, "data": {}, "train": {}}
    if base is not None:
        values = base.to_dict()
        if values["model"].pop("backend") != chosen:
            values["model"] = {}  # of another network; that the backend differs is for the caller to refuse
    sized = [Layer(f"--size {size}", {"model": dict(entry.sizes[size])})] if size else []
    others = {key: name for name, other in BACKENDS.items() for key in keys(other.settings) if key not in known["model"]}
    for layer in (*below, *sized, *layers):
        for table, found in known.items():
            for key, value in layer.tables.get(table, {}).items():
                if (table, key) == ("model", "backend"):
                    continue
                where = layer.where(table, key)
                if key in found:
                    values[table][key] = convert(value, found[key].type, f"{table}.{key}", where)
                elif table == "model" and key in others:
                    raise UsageError(f"{where}: model.{key} belongs to the backend {others[key]}, not to {chosen}")
                else:
                    raise UsageError(f"{where}: unknown key {table}.{key}{did_you_mean(key, found)}")
    try:
        model = entry.settings(**values["model"])
    except ValueError as error:
        raise UsageError(f"model: {error}") from error
    return Config(chosen, model, DataConfig(**values["data"]), TrainConfig(**values["train"]))


def read_toml(path: str) -> Layer:
    """The tables of a configuration file. NmtError if it cannot be read or is not TOML, UsageError for an unknown table."""
    from nmt.data.text import read_lines

    def refuse(line: int) -> None:
        raise NmtError(f"{path}, line {line}: is not valid UTF-8, which TOML must be; convert the file")

    text = "".join(f"{line}\n" for line in read_lines(path, "replace", refuse))
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise NmtError(f"{path}: not valid TOML: nested too deeply") from None
    except ValueError as error:  # also for an integer of thousands of digits
        raise NmtError(f"{path}: not valid TOML: {_lower(str(error))}") from error
    for name, table in tables.items():
        if name not in TABLES:
            tip = did_you_mean(name, TABLES) or f"; settings stand in tables: {', '.join(f'[{table}]' for table in TABLES)}"
            raise UsageError(f"{path}: unknown table or key {name!r}{tip}")
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {name} must be a table: [{name}]")
    return Layer(path, tables, _lines_of_keys(text))


def parse_assignment(text: str) -> Layer:
    """`table.key=value` of `--set`. The value is TOML; what is not TOML is a string, or a number as Python writes it (.5)."""
    origin = f"--set {text}"
    name, equals, value = text.partition("=")
    table, dot, key = (part.strip() for part in name.partition("."))
    if not (equals and dot and table and key):
        raise UsageError(f"{origin}: expected table.key=value, for example train.learning_rate=1e-4")
    if table not in ("model", "data", "train"):
        raise UsageError(
            f"{origin}: unknown table {table!r}{did_you_mean(table, ('model', 'data', 'train'))}; there are model, data and train"
        )
    return Layer(origin, {table: {key: _parse_value(value.strip())}})


def convert(value: object, kind: Any, name: str, where: str) -> Any:
    """`value` as the annotated type `kind`: bool, int, float (an int will do), str, Literal, a list, or one of these or None.

    None is also written "none". UsageError with `name` and `where` for anything else: 1 is no bool, "1" is no number.
    """
    options = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    for option in options:
        if option is type(None):
            if value is None or value == "none":
                return None
        elif typing.get_origin(option) is Literal:
            if any(value == choice and type(value) is type(choice) for choice in typing.get_args(option)):
                return value
        elif option is float:
            if type(value) in (int, float) and abs(typing.cast(float, value)) <= sys.float_info.max:
                return float(typing.cast(float, value))
        elif typing.get_origin(option) is list:
            if isinstance(value, list):
                return [convert(item, typing.get_args(option)[0], name, where) for item in value]
        elif type(value) is option:
            return value
    tip = did_you_mean(value, describe_choices(kind)) if isinstance(value, str) else ""
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    raise UsageError(f"{where}: {name} must be {describe(kind)}, not {shown}{tip}")


def describe(kind: Any) -> str:
    """A type in words: `an integer or none`, `bos or eos`."""
    words = {bool: "true or false", int: "an integer", float: "a number", str: "text", type(None): "none"}
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(describe(option) for option in typing.get_args(kind))
    if typing.get_origin(kind) is Literal:
        *rest, last = describe_choices(kind)
        return f"{', '.join(rest)} or {last}" if rest else last
    if typing.get_origin(kind) is list:
        return f"a list, each item {describe(typing.get_args(kind)[0])}"
    return words[kind]


def describe_choices(kind: Any) -> list[str]:
    """The words a value of type `kind` is chosen from; none for open types."""
    if typing.get_origin(kind) is Literal:
        return [str(choice) for choice in typing.get_args(kind)]
    return [choice for option in typing.get_args(kind) for choice in describe_choices(option)]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'dropout'?`, or nothing where no known word is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _check_range(
    table: str, settings: object, name: str, least: float, most: float, below: bool = False, above: bool = False
) -> None:
    """UsageError unless the value is None or in [least, most]; `below` and `above` exclude the bound itself."""
    value = getattr(settings, name)
    if value is None or ((least < value if above else least <= value) and (value < most if below else value <= most)):
        return
    bounds = [f"{'above' if above else 'at least'} {least}"]
    if most < MOST_COUNTED or value > most:
        bounds.append(f"{'below' if below else 'at most'} {most}")
    raise UsageError(f"{table}.{name} must be {' and '.join(bounds)}, not {value if isinstance(value, int) else f'{value:g}'}")


def _parse_value(text: str) -> object:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # also for an integer of thousands of digits
        parsed = {}
    if len(parsed) == 1:
        return parsed["value"]
    try:
        return float(text)
    except ValueError:
        return text


def _lines_of_keys(text: str) -> dict[tuple[str, str], int]:
    """Where each `key = value` of a table stands, for messages; exotic spellings of a key are simply not found."""
    found, table = {}, ""
    for number, line in enumerate(text.split("\n"), 1):
        if header := re.match(r"\s*\[\s*(\w+)\s*\]", line):
            table = header[1]
        elif key := re.match(r"\s*(\w+)\s*=", line):
            found[table, key[1]] = number
    return found


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
