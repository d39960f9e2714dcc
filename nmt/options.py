"""Options that several commands share, and `--config`: a file that gives the defaults of any of them."""

import typing
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import typer

from nmt.errors import UsageError
from nmt.limits import MOST_THREADS

COMMON, OUTPUT, TEXT = "Common", "Output", "Text"
"""Panels of a help page."""


NOT_IN_FILES = ("config", "debug", "list_options", "set")
"""Options that make no sense as a default."""


def option(
    text: str,
    *names: str,
    panel: str | None = None,
    metavar: str | None = None,
    least: float | None = None,
    most: float | None = None,
) -> Any:
    """One option, whose long name is the parameter's; a flag where `names` are given without `metavar`."""
    return typer.Option(*names, help=text, rich_help_panel=panel, metavar="" if metavar is None else metavar, min=least, max=most)


def argument(text: str, metavar: str) -> Any:
    """One positional argument. Paths are plain strings, checked where they are used: a missing file is exit 1, not 2."""
    return typer.Argument(help=text, metavar=metavar, show_default=False)


def _defaults_from_file(context: typer.Context, path: str | None) -> str | None:
    """Make the command's table of the file its options' defaults, typed as strictly as the settings of a model.

    What is left of the file is in `context.obj` for `train`, which finds its settings there.
    """
    if path is None:
        return None
    from nmt.config import TrainConfig, convert, did_you_mean, keys, read_toml

    layer = read_toml(path)
    table, found = str(context.info_name), defaults(context)
    settings = keys(TrainConfig) if table == "train" else {}
    values: dict[str, Any] = {}
    for key, value in layer.tables.get(table, {}).items():
        where = layer.where(table, key)
        if key in settings:
            continue  # read with the other settings, where `--set` can still win over it
        if key not in found:
            raise UsageError(f"{where}: unknown key {table}.{key}{did_you_mean(key, [*found, *settings])}")
        converted = convert(value, found[key].type, f"{table}.{key}", where)
        values[found[key].parameter] = not converted if found[key].opposite else converted
    rest = {key: value for key, value in layer.tables.get(table, {}).items() if key in settings}
    context.obj, context.default_map = replace(layer, tables={**layer.tables, table: rest}), values
    return path


@dataclass(frozen=True)
class Default:
    """What a key of a command's table stands for."""

    parameter: str
    type: Any
    opposite: bool
    """The key says the opposite of the parameter: no_compile."""


def defaults(context: typer.Context) -> dict[str, Default]:
    """The keys of a command's table in a file: its long options, with `_` for `-`."""
    hints = typing.get_type_hints(context.command.callback, include_extras=True)
    found = {}
    for each in context.command.params:
        if each.param_type_name == "option" and each.name in hints and each.name not in NOT_IN_FILES:
            for spelling in (*each.opts, *each.secondary_opts):
                if spelling.startswith("--"):
                    kind = typing.get_args(hints[each.name])[0]
                    found[spelling[2:].replace("-", "_")] = Default(each.name, kind, spelling in each.secondary_opts)
    return found


def given(context: typer.Context, *names: str) -> list[str]:
    """Those of the options that stand on the command line itself, as they are spelled there."""
    found = []
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            found.append(f"--{name.replace('_', '-')}")
    return found


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
Overwrite = Annotated[bool, option("Replace what exists.", "--overwrite", panel=OUTPUT)]
Errors = Annotated[
    Literal["strict", "replace"],
    option("Invalid UTF-8: stop, or put U+FFFD and count.", panel=TEXT, metavar="strict|replace"),
]
