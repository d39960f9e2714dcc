"""A recipe: one TOML file that is also the `--config` of every nmt command; its `[recipe]` table says what it reproduces."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import texts as corpora
from texts import Texts
from toml_file import check, read_tables, refuse


@dataclass(frozen=True)
class Published:
    """Scores that others reported."""

    system: str
    source: str
    way: str
    """How they were scored: `tokens`, or `sacrebleu` of the text itself."""
    scores: dict[str, float]
    """By test set."""
    from_memory: bool = False
    """Nobody has looked them up for this recipe."""


@dataclass(frozen=True)
class Recipe:
    """What `[recipe]` says, and the settings of the commands."""

    path: Path
    title: str
    texts: Texts
    published: tuple[Published, ...]
    ensemble: tuple[tuple[str, int], ...]
    """The recipes and seeds whose models translate together; empty where the recipe trains its own."""
    settings: dict[str, Any]
    """The tables of the commands."""

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        about = self.settings["preprocess"]
        return about["source_lang"], about["target_lang"]

    @property
    def seed(self) -> int:
        seed: int = self.settings.get("train", {}).get("seed", 1)
        return seed

    def table(self, *names: str) -> dict[str, Any]:
        return {name: self.settings.get(name, {}) for name in names}


def read(path: Path) -> Recipe:
    """The recipe in a TOML file. SystemExit with one line for a file that cannot be read, and for one that is none."""
    tables = read_tables(path)
    about = tables.pop("recipe", None)
    if not isinstance(about, dict):
        refuse(path, "has no table [recipe], so it is no recipe")
    check(path, "recipe", about, {"title": str, "data": str}, {"published": list, "ensemble": list})
    for name, table in tables.items():
        if not isinstance(table, dict):
            refuse(path, f"{name} must be a table: [{name}]")
    languages = {key: tables.get("preprocess", {}).get(key) for key in ("source_lang", "target_lang")}
    check(path, "preprocess", languages, dict.fromkeys(languages, str))
    metrics = tables.get("score", {}).get("metric", "bleu")
    if "bleu" not in ([metrics] if isinstance(metrics, str) else metrics):
        refuse(path, "score.metric must have bleu among its metrics: the table is of it")
    texts = corpora.read(path.parent / "data" / f"{about['data']}.toml")
    for key, language in languages.items():
        if not all(language in sides for sides in (texts.train, texts.valid, *(test.sides for test in texts.tests))):
            refuse(path, f"preprocess.{key}: {texts.path.name} has no text in {language}")
    published = []
    for told in about.get("published", []):
        check(path, "recipe.published", told, {"system": str, "source": str, "way": str, "scores": dict}, {"from_memory": bool})
        if told["way"] not in ("tokens", "sacrebleu"):
            refuse(path, f"recipe.published.way must be tokens or sacrebleu, not {told['way']}")
        for test, score in told["scores"].items():
            if test not in {each.name for each in texts.tests} or not isinstance(score, int | float):
                refuse(path, f"recipe.published.scores: {test} = {score} is no score of a test set of {texts.path.name}")
        published.append(Published(**told))
    return Recipe(
        path=path,
        title=about["title"],
        texts=texts,
        published=tuple(published),
        ensemble=tuple(dict.fromkeys(_member(path, word) for word in about.get("ensemble", []))),
        settings=tables,
    )


def _member(path: Path, word: object) -> tuple[str, int]:
    """`NAME:SEED`."""
    name, colon, seed = str(word).rpartition(":")
    if not (colon and name and seed.isdecimal()):
        refuse(path, f"recipe.ensemble must hold NAME:SEED, not {word!r}")
    return name, int(seed)
