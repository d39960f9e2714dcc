"""Reproduce a recipe: python recipes/run.py multi30k-en-de; data, preprocess, train, average, translate, score, table.

What is done is not redone; a changed setting redoes its step and those after it; a stopped training goes on. The score goes
to results/NAME.json beside the recipe, and the table in README.md there is written anew from all of these files.
"""

import argparse
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import recipe as recipes
from recipe import Recipe
from steps import Step, digest, near, output, run, say
from table import write_table

HERE = Path(__file__).parent
MADE = "made.json"
"""Where and by which code the model was trained, beside it."""
NOT_CODE = ("recipes/results", "recipes/README.md")
"""What this script writes itself: changes there do not make a result another."""


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
        trained.begin(resume)
        run(["nmt", "train", data.output, "-o", trained.output, "--resume" if resume else "--overwrite", *config])
        write_json(work / MADE, circumstances())
        trained.end()
    if not (work / MADE).is_file():
        write_json(work / MADE, circumstances())

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
    return result(recipe, trained.output, read_json(work / MADE), read_json(scored.output))


def circumstances() -> dict[str, Any]:
    """Of a training that ends now: kept beside it, for the score may be computed again elsewhere, or by later code."""
    versions = {"python": platform.python_version(), **{name: version(name) for name in ("nmt", "torch", "sacrebleu")}}
    return {"device": device(), "versions": versions, "commit": commit(HERE.parent)}


def result(recipe: Recipe, trained: Path, made: dict[str, Any], scores: Any) -> dict[str, Any]:
    """What results/NAME.json says: the score and all that a reader needs to get it again."""
    info = json.loads(output(["nmt", "info", trained, "--json"]))
    log = map(json.loads, (trained / "log.jsonl").read_text(encoding="utf-8").splitlines())
    seconds = [event["seconds"] for event in log if event["event"] == "train"]
    return {
        "recipe": recipe.name,
        "title": recipe.title,
        # Without the names of the files: where they lie is this machine's business.
        "scores": [{key: value for key, value in score.items() if key != "system"} for score in scores],
        "parameters": info["parameters"],
        "updates": info["last"]["step"],
        "epochs": info["last"]["epoch"],
        "train_seconds": seconds[-1],
        **made,
        "command": f"make {recipe.name}",
    }


def device() -> str:
    """The processor's name and how many of its cores this process may use; the GPU's name where there is one."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    about = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*: (.+)$", about.read_text(), re.MULTILINE) if about.is_file() else None
    return f"{cores} cores, {named[1] if named else platform.machine()}"


def commit(checkout: Path) -> str:
    """The commit of this checkout, marked where its files differ from it; empty outside a checkout, and without git."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=checkout, capture_output=True, check=True, encoding="utf-8").stdout.strip()

    try:
        changed = git(
            "--no-optional-locks",
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            ".",
            *(f":(exclude){path}" for path in NOT_CODE),
        )
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


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
    write_table(path.parent)  # as it was: what would be in its way is known now, and not after hours of training
    try:
        found = reproduce(recipe, options.output or Path("runs") / recipe.name)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    results = path.parent / "results"
    results.mkdir(exist_ok=True)
    write_json(results / f"{recipe.name}.json", found)
    write_table(path.parent)
    say(f"{near(results / f'{recipe.name}.json')}: written; the table in {near(path.parent / 'README.md')} too")


if __name__ == "__main__":
    main()
