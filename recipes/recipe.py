"""A recipe: one TOML file that is also the `--config` of every nmt command; its `[recipe]` table says where the data comes from."""

import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pooch

Sides = list[str]
"""Two file names: source and target."""

PUBLISHED = {"system", "score", "how", "source"}
"""What is told of a published score."""


@dataclass(frozen=True)
class Recipe:
    """What `[recipe]` says, and the settings of the commands."""

    path: Path
    title: str
    url: str
    """Where the files lie, ending in a slash."""
    sha256: dict[str, str]
    """Checksum of each file."""
    train: Sides
    valid: Sides
    test: Sides
    published: list[dict[str, Any]]
    """Scores of papers on the test set: `system`, `score`, `how` it was scored, `source`."""
    settings: dict[str, Any]
    """The tables of the commands."""

    @property
    def name(self) -> str:
        return self.path.stem

    def table(self, *names: str) -> dict[str, Any]:
        return {name: self.settings.get(name, {}) for name in names}


def read(path: Path) -> Recipe:
    """The recipe in a TOML file. SystemExit with one line for a file that cannot be read, and for one that is none."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SystemExit(f"recipe: error: {path}: cannot be read ({(error.strerror or str(error)).lower()})") from None
    except ValueError as error:
        raise SystemExit(f"recipe: error: {path}: not valid TOML: {error}") from None
    about = tables.pop("recipe", None)
    fault = "has no table [recipe], so it is no recipe" if not isinstance(about, dict) else _fault(about)
    if fault is None:
        fault = next((f"{name} must be a table: [{name}]" for name, table in tables.items() if not isinstance(table, dict)), None)
    if fault is not None:
        raise SystemExit(f"recipe: error: {path}: {fault}")
    return Recipe(path=path, settings=tables, **about)


def _fault(about: dict[str, Any]) -> str | None:
    """What is wrong with a `[recipe]` table, if anything is."""
    known = [field.name for field in fields(Recipe) if field.name not in ("path", "settings")]
    for name in known:
        if name not in about:
            return f"[recipe] has no key {name}; it needs {', '.join(known)}"
    for name in about:
        if name not in known:
            return f"[recipe] has an unknown key {name}; it needs {', '.join(known)}"
    for name in ("title", "url"):
        if not isinstance(about[name], str):
            return f"recipe.{name} must be text"
    if not isinstance(about["sha256"], dict) or not all(isinstance(checksum, str) for checksum in about["sha256"].values()):
        return "recipe.sha256 must be a table of the checksum of each file"
    for name in ("train", "valid", "test"):
        sides = about[name]
        if not (isinstance(sides, list) and len(sides) == 2 and all(isinstance(side, str) for side in sides)):
            return f"recipe.{name} must be two file names, source and target"
        for side in sides:
            if side not in about["sha256"]:
                return f"recipe.sha256 has no checksum of {side}"
    published = about["published"]
    if not (isinstance(published, list) and all(isinstance(each, dict) and each.keys() >= PUBLISHED for each in published)):
        return f"recipe.published must be a list of tables, each with {', '.join(sorted(PUBLISHED))}"
    return None


def fetch(recipe: Recipe) -> dict[str, Path]:
    """The recipe's files by name, checksums checked: from the folder NMT_DATA where that is set, else downloaded and kept."""
    folder = os.environ.get("NMT_DATA")
    if not folder:
        registry = {name: f"sha256:{checksum}" for name, checksum in recipe.sha256.items()}
        store = pooch.create(pooch.os_cache("nmt"), recipe.url, registry=registry)
        try:
            return {name: Path(store.fetch(name)) for name in recipe.sha256}
        except (OSError, ValueError) as error:
            raise SystemExit(f"recipe: error: {recipe.url}: {error}; NMT_DATA=DIR takes the files from a folder") from None
    found = {name: Path(folder).expanduser() / name for name in recipe.sha256}
    for name, path in found.items():
        if not path.is_file():
            raise SystemExit(f"recipe: error: {path}: no such file; NMT_DATA must hold {', '.join(recipe.sha256)}")
        if pooch.file_hash(str(path)) != recipe.sha256[name]:
            raise SystemExit(f"recipe: error: {path}: not the file that {recipe.path.name} names: its sha256 differs")
    return found
