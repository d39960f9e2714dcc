"""What --trial runs: a recipe the whole way, from text to table, in a minute, so that no setting fails after days of training.

The text is made on the spot, the updates are few, and, unless in full size, the network is small; all else is the recipe's own.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

import demo_corpus
import pooch
from recipe import Recipe
from table import BEGIN, END
from toml_file import read_tables, text_of

PAIRS, HELD_OUT = 300, 8
UPDATES = 4
"""At least: averaging takes as many checkpoints as the recipe says, and each is after another update."""
VOCABULARY = 400
TOKENS = 800
"""Of an update, at most: of the text there are some 8,000 on each side."""
SMALL = {"layers": 1, "encoder_layers": 1, "decoder_layers": 1, "width": 32, "feed_forward": 64, "embedding": 24}


class Trial:
    """A changed copy of a recipe in a folder, with made-up text and a place for the table."""

    def __init__(self, recipe: Recipe, folder: Path, full_size: bool) -> None:
        self.recipe, self.full_size = recipe, full_size
        self.path, self.text = folder / recipe.path.name, folder / "text"
        members = [recipe.path.with_name(f"{name}.toml") for name, _ in recipe.ensemble]
        for path in {recipe.path, *members}:
            (folder / path.name).write_text(text_of(changed(read_tables(path), full_size)), encoding="utf-8")
        (folder / "README.md").write_text(f"{BEGIN}{END}", encoding="utf-8")
        (folder / "data").mkdir()
        (folder / "data" / recipe.texts.path.name).write_text(text_of(made_up(recipe, self.text)), encoding="utf-8")

    def report(self) -> list[str]:
        """What the trial has shown, and what it has not."""
        before, after = read_tables(self.recipe.path), read_tables(self.path)
        changes = [
            f"{table}.{key} {before.get(table, {}).get(key, 'by default')} -> {value}"
            for table, settings in after.items()
            for key, value in settings.items()
            if before.get(table, {}).get(key) != value
        ]
        size = "as it is" if self.full_size else "made small"
        return [
            f"{self.recipe.name}: every setting went through preprocess, train, average, translate, score; the network {size}",
            f"in this trial: {', '.join(changes)}",
            "not checked: the real text, its download and checksums; memory and hours of training; the scores, which say nothing",
        ]


def changed(tables: dict[str, Any], full_size: bool) -> dict[str, Any]:
    """A recipe's tables with a vocabulary for little text, few updates of few tokens, and a small network unless in full size."""
    found = deepcopy(tables)
    preprocess, model, train = (found.setdefault(name, {}) for name in ("preprocess", "model", "train"))
    preprocess["vocab_size"] = VOCABULARY
    updates = max(UPDATES, found.get("average", {}).get("last", 1))
    train |= {"max_steps": updates, "save_every": 1, "valid_every": updates // 2}
    train["batch_tokens"] = min(TOKENS, train.get("batch_tokens", TOKENS))
    if not full_size:
        kept = {"transformer": {"feed_forward"}, "rnn": {"embedding"}}[model.get("backend", "transformer")]
        model |= {key: value for key, value in SMALL.items() if key in model or key in {"layers", "width", *kept}}
    return found


def made_up(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Write text under the names of a recipe's languages; what a file of data/ says of it. It is English and German in truth."""
    source, target = recipe.languages
    pair = (source, target) if {source, target} == {"en", "de"} else ("en", "de")
    demo_corpus.write(folder, *pair, {"train": PAIRS, "valid": HELD_OUT, "test": HELD_OUT}, seed=1)
    for part in demo_corpus.PARTS:
        for made, language in zip(pair, (source, target), strict=True):
            (folder / f"{part}.{made}").rename(folder / f"{part}.{language}")

    def sides(part: str) -> dict[str, str]:
        return {language: f"{part}.{language}" for language in (source, target)}

    tokens = recipe.texts.tokens
    return {
        "title": "made up",
        "source": "demo_corpus.py",
        "train": sides("train"),
        "valid": sides("valid"),
        "test": {test.name: sides("test") for test in recipe.texts.tests},
        "tokens": {name: getattr(tokens, name) for name in ("split", "lowercase", "normalize", "compounds")},
        "place": [{"sha256": {path.name: pooch.file_hash(str(path)) for path in sorted(folder.iterdir())}}],
    }
