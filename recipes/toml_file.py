"""TOML files of recipes, read and checked, and written."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

WORDS = {str: "text", bool: "true or false", int: "an integer", list: "a list", dict: "a table"}


def read_tables(path: Path) -> dict[str, Any]:
    """The tables of a file. SystemExit with one line where it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        refuse(path, f"cannot be read ({(error.strerror or str(error)).lower()})")
    except ValueError as error:
        refuse(path, f"not valid TOML: {error}")


def text_of(tables: Mapping[str, Any]) -> str:
    """The TOML text of a file's tables."""
    return "".join(f"{json.dumps(key)} = {_value(value)}\n" for key, value in tables.items())


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_value(each)}' for key, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def check(
    path: Path, table: str, told: Mapping[str, Any], needed: Mapping[str, type], optional: Mapping[str, type] | None = None
) -> None:
    """SystemExit with one line unless a table has the keys it needs, and no others but the optional ones, of these types."""
    known = {**needed, **(optional or {})}
    where = f"[{table}]" if table else "the file"
    for name in needed:
        if name not in told:
            refuse(path, f"{where} has no key {name}; it needs {', '.join(needed)}")
    for name, value in told.items():
        if name not in known:
            refuse(path, f"{where} has an unknown key {name}; there are {', '.join(known)}")
        if type(value) is not known[name]:
            refuse(path, f"{f'{table}.{name}' if table else name} must be {WORDS[known[name]]}")


def refuse(path: Path, fault: str) -> NoReturn:
    raise SystemExit(f"recipe: error: {path}: {fault}")
