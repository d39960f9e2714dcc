"""A recipe: one TOML file that is also the `--config` of every nmt command; its `[recipe]` table says where the data comes from."""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pooch

Sides = list[str]
"""Two file names: source and target."""


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
    """The recipe in a TOML file. KeyError for what is missing, TypeError for what is too much in `[recipe]`."""
    with path.open("rb") as file:
        tables = tomllib.load(file)
    about = tables.pop("recipe")
    return Recipe(path=path, settings=tables, **about)


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
