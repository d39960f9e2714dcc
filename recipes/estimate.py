"""What --estimate finds: how long a recipe's training would take here, by `nmt bench` of some of its updates.

Of the recipe come the network, the size of updates and the vocabulary; the text is made up, its sentences as long as the real
ones. Validation, translation and the text's preparation are not in it; one process computes.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from made_up import write_corpus
from recipe import Recipe
from record import circumstances
from steps import output, run, say

PAIRS = 200_000
"""Enough for the rarest words of the largest vocabulary to come."""
EXTENT: list[str | Path] = ["--seconds", "60", "--warmup", "1"]
"""An update of the largest network takes minutes on a small machine: two or three of them are all there is time for."""


def estimate(recipe: Recipe) -> dict[str, Any]:
    """The figures, ready for JSON. SystemExit with one line for a recipe that trains nothing, or whose text tells no length."""
    length = recipe.texts.mean_length
    if recipe.ensemble:
        raise SystemExit(f"recipe: error: {recipe.path}: trains no network of its own; estimate those of its ensemble")
    if length is None:
        raise SystemExit(f"recipe: error: {recipe.texts.path}: has no key mean_length, which --estimate makes up a corpus by")
    with TemporaryDirectory() as place:
        folder = Path(place)
        data = folder / "data"
        config: list[str | Path] = ["--config", recipe.path]
        sides = write_corpus(folder, PAIRS, recipe.settings["preprocess"].get("vocab_size", 8000), length)
        run(["nmt", "preprocess", *sides, "-o", data, "--tokenizer", "word", "--valid-size", "0", *config])
        # Words have no merges to skip.
        bench: list[str | Path] = ["nmt", "bench", data, *config, "--set", "data.bpe_dropout=0", *EXTENT, "--format", "json"]
        say(f"$ {' '.join(map(str, bench))}")
        found = json.loads(output(bench))
    updates = found["configuration"]["train"]["max_steps"]
    if updates is None:
        raise SystemExit(f"recipe: error: {recipe.path}: train.max_steps is none: nobody can say how long that takes")
    tokens = found["tokens"] / found["updates"]
    return {
        "recipe": recipe.name,
        "command": f"python recipes/run.py {recipe.name} --estimate",
        "hours": updates * tokens / found["tokens_per_second"]["median"] / 3600,
        "updates": updates,
        "tokens_an_update": tokens,
        "tokens_per_second": found["tokens_per_second"],
        "measured_updates": found["updates"],
        "parameters": found["parameters"],
        "precision": found["precision"],
        "settings": recipe.table("preprocess", "model", "train"),
        "corpus": {"pairs": PAIRS, "mean_length": length},
        **circumstances(),
    }
