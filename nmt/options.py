"""Options that several commands share, and `--config`: a file that gives the defaults of any of them."""

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nmt.completion import completion
from nmt.errors import UsageError
from nmt.limits import MOST_BEAM, MOST_THREADS

if TYPE_CHECKING:
    from nmt.config import Config

COMMON, OUTPUT, TEXT, MODEL, TRAINING, SEARCH = "Common", "Output", "Text", "Model", "Training", "Search"
"""Panels of a help page."""


NOT_IN_FILES = ("config", "debug", "list_options", "set")
"""Options that make no sense as a default."""

BORROWED = {"bench": ("train", "bench")}
"""The tables in which a command looks for its options, where they are not just its own; the last wins."""


def option(
    text: str,
    *names: str,
    panel: str | None = None,
    metavar: str | None = None,
    least: float | None = None,
    most: float | None = None,
    variable: str | None = None,
) -> Any:
    """One option, whose long name is the parameter's; a flag where `names` are given without `metavar`.

    Where it is not given, the environment's `variable` may say it.
    """
    complete = completion(metavar) if metavar else None
    return typer.Option(
        *names,
        help=text,
        rich_help_panel=panel,
        metavar=metavar or "",
        min=least,
        max=most,
        envvar=variable,
        autocompletion=complete,
    )


def argument(text: str, metavar: str) -> Any:
    """One positional argument. Paths are plain strings, checked where they are used: a missing file is exit 1, not 2."""
    return typer.Argument(help=text, metavar=metavar, show_default=False, autocompletion=completion(metavar))


def _defaults_from_file(context: typer.Context, path: str | None) -> str | None:
    """Make the command's table of the file its options' defaults, typed as strictly as the settings of a model.

    What is left of the file is in `context.obj` for `train` and `bench`, which find their settings there.
    """
    if path is None:
        return None
    from nmt.config import TrainConfig, convert, did_you_mean, keys, read_toml

    layer = read_toml(path)
    command, found = str(context.info_name), defaults(context)
    settings = keys(TrainConfig)
    values: dict[str, Any] = {}
    rest: dict[str, Mapping[str, object]] = {}
    for table in BORROWED.get(command, (command,)):
        theirs = found if table == command else defaults(_command(context, table))
        rest[table] = {key: value for key, value in layer.tables.get(table, {}).items() if table == "train" and key in settings}
        for key, value in layer.tables.get(table, {}).items():
            where = layer.where(table, key)
            if key in rest[table]:
                continue  # read with the other settings, where `--set` can still win over it
            if key not in theirs:
                raise UsageError(
                    f"{where}: unknown key {table}.{key}{did_you_mean(key, [*theirs, *(settings if table == 'train' else ())])}"
                )
            if key in found:
                converted = convert(value, found[key].type, f"{table}.{key}", where)
                found[key].check(converted, f"{where}: {table}.{key}")
                values[found[key].parameter] = not converted if found[key].opposite else converted
    context.obj, context.default_map = replace(layer, tables={**layer.tables, **rest}), values
    return path


def _command(context: typer.Context, name: str) -> typer.Context:
    """The context of another command, to read what its options are."""
    group: Any = context.parent
    return typer.Context(group.command.commands[name], info_name=name)


@dataclass(frozen=True)
class Default:
    """What a key of a command's table stands for."""

    parameter: str
    type: Any
    opposite: bool
    """The key says the opposite of the parameter: no_compile."""
    least: float | None
    most: float | None

    def check(self, value: Any, name: str) -> None:
        """UsageError where a value is out of bounds: the parser would not tell the file."""
        if value is not None and self.least is not None and value < self.least:
            raise UsageError(f"{name} must be at least {self.least}, not {value}")
        if value is not None and self.most is not None and value > self.most:
            raise UsageError(f"{name} must be at most {self.most}, not {value}")


def defaults(context: typer.Context) -> dict[str, Default]:
    """The keys of a command's table in a file: its long options, with `_` for `-`."""
    hints = typing.get_type_hints(context.command.callback, include_extras=True)
    found = {}
    for each in context.command.params:
        if each.param_type_name == "option" and each.name in hints and each.name not in NOT_IN_FILES:
            for spelling in (*each.opts, *each.secondary_opts):
                if spelling.startswith("--"):
                    kind, told = typing.get_args(hints[each.name])[:2]
                    opposite = spelling in each.secondary_opts
                    found[spelling[2:].replace("-", "_")] = Default(each.name, kind, opposite, told.min, told.max)
    return found


def given(context: typer.Context, *names: str) -> list[str]:
    """Those of the options that stand on the command line itself, as they are spelled there."""
    found = []
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            found.append(f"--{name.replace('_', '-')}")
    return found


def configuration(
    context: typer.Context, backend: str | None, size: str | None, assignments: Sequence[str], flags: Mapping[str, object]
) -> "Callable[[Config | None], Config]":
    """How a run is configured by `--config`, `--backend`, `--size`, `--set` and the options that are settings of `[train]`.

    It is called with the settings of a run to go on with, or None. Wrong usage raises UsageError here already.
    """
    from nmt.config import Layer, parse_assignment, resolve

    flags = {key: value for key, value in flags.items() if value is not None}
    parsed = [parse_assignment(each) for each in assignments]
    for assignment in parsed:
        for key in assignment.tables.get("train", {}):
            if key in flags:
                raise UsageError(f"{assignment.origin} and --{key.replace('_', '-')} are one setting: give it once")
        if backend is not None and "backend" in assignment.tables.get("model", {}):
            raise UsageError(f"{assignment.origin} and --backend are one setting: give it once")
    file: list[Layer] = [context.obj] if context.obj else []
    typed = bool(given(context, "size"))  # then it wins over the file, as the whole command line does
    below, above = (file, []) if typed else ([], file)
    layers = [*above, *parsed, Layer("the command line", {"train": flags})]

    def resolved(base: "Config | None") -> "Config":
        return resolve(backend, size, layers, base, below)

    resolved(None)
    return resolved


def list_settings(wanted: bool) -> None:
    """Print every setting of a run, one a line: its default, what the sizes make of it, its type and its meaning; then exit."""
    if not wanted:
        return
    from nmt.config import DataConfig, TrainConfig, describe, keys
    from nmt.models import BACKENDS

    blocks: list[tuple[str, str, type, dict[str, dict[str, object]]]] = [
        (f"[model] of --backend {name}", "model", backend.settings, backend.sizes) for name, backend in BACKENDS.items()
    ]
    blocks += [("[data]", "data", DataConfig, {}), ("[train]", "train", TrainConfig, {})]
    for title, table, settings, sizes in blocks:
        print(f"\n{title}" if title != blocks[0][0] else title)
        for key in keys(settings).values():
            kinds = ", ".join(
                [
                    describe(key.type),
                    *(f"{size}: {_toml(values[key.name])}" for size, values in sizes.items() if key.name in values),
                ]
            )
            print(f"  {f'{table}.{key.name}={_toml(key.default)}':38} {key.help} ({kinds})")
    raise typer.Exit


def _toml(value: object) -> str:
    """A value as `--set` takes it."""
    return {None: "none", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)


Quiet = Annotated[bool, option("Say nothing but errors.", "--quiet", "-q", panel=COMMON)]
Debug = Annotated[bool, option("Show the traceback of an error.", "--debug", panel=COMMON)]
ConfigFile = Annotated[
    str | None,
    typer.Option(
        help="Defaults for any option: TOML with a table named after the command.",
        rich_help_panel=COMMON,
        metavar="FILE",
        is_eager=True,
        callback=_defaults_from_file,
    ),
]
Device = Annotated[str, option("Where to compute; auto: a GPU if there is one.", panel=COMMON, metavar="auto|cpu|cuda|cuda:N")]
Threads = Annotated[int | None, option("CPU threads (default: one a core).", panel=COMMON, metavar="N", least=1, most=MOST_THREADS)]
Backend = Annotated[
    Literal["transformer", "rnn"] | None,
    option("Kind of network (default: transformer).", panel=MODEL, metavar="transformer|rnn"),
]
Size = Annotated[
    Literal["tiny", "small", "base", "big"] | None,
    option("Width, depth, heads and dropout together (default: base).", panel=MODEL, metavar="tiny|small|base|big"),
]
Set = Annotated[
    list[str] | None,
    option(
        "Any setting, as train.warmup=1000; train --list-options shows all.", "--set", "-s", panel=MODEL, metavar="TABLE.KEY=VALUE"
    ),
]
Accumulate = Annotated[
    int | None,
    option("Micro-batches of an update, to save memory; only dropout's random numbers change.", panel=TRAINING, metavar="N"),
]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"] | None,
    option("Arithmetic (default: float32).", panel=TRAINING, metavar="auto|float32|bfloat16|float16"),
]
Compile = Annotated[
    bool | None, option("Compile the network (default: a Transformer on a GPU).", "--compile/--no-compile", panel=TRAINING)
]
BeamSize = Annotated[
    int,
    option("Hypotheses kept at each step.", "--beam-size", "-b", panel=SEARCH, metavar="N", least=1, most=MOST_BEAM),
]
Overwrite = Annotated[bool, option("Replace what exists.", "--overwrite", panel=OUTPUT)]
Errors = Annotated[
    Literal["strict", "replace"],
    option("Invalid UTF-8: stop, or put U+FFFD and count.", panel=TEXT, metavar="strict|replace"),
]
