"""Reproduce a recipe: python recipes/run.py multi30k-en-de; data, preprocess, train, average, translate, score, table.

What is done is not redone; a changed setting redoes its step and those after it; a stopped training goes on. The score goes
to results/NAME.json beside the recipe, and the table in README.md there is written anew from all of these files.
"""

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import recipe as recipes
from recipe import Recipe
from steps import Step, digest, output, run, say
from table import write_table

HERE = Path(__file__).parent


def reproduce(recipe: Recipe, work: Path) -> dict[str, Any]:
    """Do all steps under `work` that are not done, and return the result."""
    files = recipes.fetch(recipe)
    train, valid, test = ([files[name] for name in sides] for sides in (recipe.train, recipe.valid, recipe.test))
    config: list[str | Path] = ["--config", recipe.path]

    cause = digest([recipe.sha256, recipe.table("preprocess")])
    data = Step(work / "data", cause)
    if not data.done():
        data.begin()
        held_out: list[str | Path] = ["--valid-source", valid[0], "--valid-target", valid[1]]
        run(["nmt", "preprocess", *train, *held_out, "-o", data.output, "--overwrite", *config])
        data.end()

    cause = digest([cause, recipe.table("model", "data", "train")])
    trained = Step(work / "run", cause)
    if not trained.done():
        resume = trained.begun() and (trained.output / "checkpoints").is_dir()
        trained.begin()
        run(["nmt", "train", data.output, "-o", trained.output, "--resume" if resume else "--overwrite", *config])
        trained.end()

    cause = digest([cause, recipe.table("average")])
    model = Step(work / "averaged", cause)
    if not model.done():
        model.begin()
        run(["nmt", "average", trained.output, "-o", model.output, "--overwrite", *config])
        model.end()

    cause = digest([cause, recipe.table("translate")])
    translated = Step(work / "test.out", cause)
    if not translated.done():
        translated.begin()
        run(["nmt", "translate", model.output, test[0], "-o", translated.output, *config])
        translated.end()

    scored = Step(work / "score.json", digest([cause, recipe.table("score")]))
    if not scored.done():
        scored.begin()
        run(["nmt", "score", translated.output, "-r", test[1], "-o", scored.output, "--format", "json", *config])
        scored.end()
    return result(recipe, trained.output, json.loads(scored.output.read_text(encoding="utf-8")))


def result(recipe: Recipe, trained: Path, scores: Any) -> dict[str, Any]:
    """What results/NAME.json says: the score and all that a reader needs to get it again."""
    info = json.loads(output(["nmt", "info", trained, "--json"]))
    return {
        "recipe": recipe.name,
        "title": recipe.title,
        "scores": scores,
        "parameters": info["parameters"],
        "updates": info["last"]["step"],
        "epochs": info["last"]["epoch"],
        "train_seconds": info["last"].get("seconds"),
        "device": device(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("nmt", "torch", "sacrebleu")}},
        "commit": commit(),
        "command": f"make {recipe.name}",
    }


def device() -> str:
    """The processor's name and how many cores this process may use; the GPU's name where there is one."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {platform.machine()}"


def commit() -> str:
    """The commit of this checkout, marked where files differ from it; empty outside a checkout."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"], cwd=HERE, capture_output=True, encoding="utf-8"
    )
    return described.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Reproduce a recipe: data, preprocess, train, average, translate, score.")
    parser.add_argument("recipe", help="a name, such as multi30k-en-de, or the path of a .toml")
    parser.add_argument("-o", "--output", type=Path, help="folder for data and model (runs/NAME)")
    options = parser.parse_args(arguments)
    path = Path(options.recipe) if options.recipe.endswith(".toml") else HERE / f"{options.recipe}.toml"
    if not path.is_file():
        names = ", ".join(sorted(found.stem for found in HERE.glob("*-*.toml")))
        parser.error(f"{path}: no such recipe; there are {names}")
    recipe = recipes.read(path)
    found = reproduce(recipe, options.output or Path("runs") / recipe.name)
    results = path.parent / "results"
    results.mkdir(exist_ok=True)
    (results / f"{recipe.name}.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    write_table(path.parent)
    say(f"{results / f'{recipe.name}.json'}: written; the table in {path.parent / 'README.md'} too")


if __name__ == "__main__":
    main()
