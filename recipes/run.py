"""Reproduce a recipe: python recipes/run.py multi30k-en-de; data, preprocess, train, average, translate, score, table.

What is done is not redone; a changed setting redoes its step and those after it; a stopped training goes on. The scores go
to results/NAME.json beside the recipe, and the table in README.md there is written anew from all of these files.

--trial goes the whole way with made-up text and few updates (see `trial`); --estimate says what the real thing would cost here
(see `estimate`).
"""

import argparse
import gzip
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import recipe as recipes
import texts as corpora
import training
from estimate import estimate
from recipe import Recipe
from record import begun_in, circumstances, together
from steps import Step, digest, held, near, output, run, say, write_json
from table import VALID, duration, results, write_table
from texts import Test
from toml_file import refuse
from trial import Trial

HERE = Path(__file__).parent
MAY_CHANGE = ("max_minutes", "patience", "log_every", "tensorboard")
"""Settings of `[train]` that may change while a training goes on: they say when it ends and what is told, not what is learned."""


@dataclass(frozen=True)
class Model:
    """A translator that a recipe made."""

    directories: tuple[Path, ...]
    """Several translate together."""
    cause: str
    """Digest of what they depend on."""
    facts: dict[str, Any]
    """For the record: parameters, updates, time, and where and by what the model was trained."""


class Reproduction:
    """The steps of a recipe with one seed. What lies under `work` already is not made again."""

    def __init__(self, recipe: Recipe, seed: int, work: Path, text: Path | None = None) -> None:
        """With `text`, the folder that the recipe's text lies in, in place of wherever it would come from."""
        self.recipe, self.seed, self.work, self.text = recipe, seed, work, text
        self.files = corpora.fetch(recipe.texts, *recipe.languages, folder=text)
        self.sha256 = corpora.sha256(recipe.texts, self.files)
        self.config: list[str | Path] = ["--config", recipe.path]

    def sides(self, sides: corpora.Sides) -> list[Path]:
        """The files of source and target."""
        return [self.files[sides[language]] for language in self.recipe.languages]

    def run(self) -> dict[str, Any]:
        """Everything, and what the record says of it."""
        model = self.ensemble() if self.recipe.ensemble else self.trained()
        self.work.mkdir(parents=True, exist_ok=True)
        with held(self.work):
            tests = [*self.recipe.texts.tests, Test(VALID, self.recipe.texts.valid, {})]
            scores = {test.name: self.scores(model, test) for test in tests}
            known = [read_json(path) for test in tests if (path := self.scored_in(test)).is_file()]
            scored = {"scored": together(known)} if known else {}
            return {"seed": self.seed, "scores": scores, **model.facts, **scored}

    def trained(self) -> Model:
        """Preprocess, train, average; nobody else does so meanwhile."""
        self.work.mkdir(parents=True, exist_ok=True)
        with held(self.work):
            return self._trained()

    def _trained(self) -> Model:
        recipe = self.recipe
        texts, place = recipe.texts, self.work / f"seed-{self.seed}"
        parts = [self.sha256[side[language]] for side in (texts.train, texts.valid) for language in recipe.languages]
        cause = digest([parts, recipe.table("preprocess")])
        data = Step(self.work / "data", cause)
        if not data.done():
            data.begin()
            source, target = self.sides(texts.valid)
            held_out: list[str | Path] = ["--valid-source", source, "--valid-target", target]
            run(["nmt", "preprocess", *self.sides(texts.train), *held_out, "-o", data.output, "--overwrite", *self.config])
            data.end()

        settings = recipe.table("model", "data", "train")
        lasting = settings | {"train": {key: value for key, value in settings["train"].items() if key not in MAY_CHANGE}}
        before, cause = cause, digest([cause, settings, self.seed])
        trained, made = Step(place / "run", cause, digest([before, lasting, self.seed])), place / "made.json"
        if not trained.done():
            resume = trained.begun() and training.begun(trained.output)
            trained.begin(resume)
            processes = training.processes(self.micro_batches, trained.output if resume else None)
            write_json(made, {"processes": processes, **begun_in(made if resume else None)})
            how = ["--resume" if resume else "--overwrite", *self.config, "--set", f"train.seed={self.seed}"]
            training.train(data.output, trained.output, how, self.micro_batches, processes)
            trained.end()

        cause = digest([cause, recipe.table("average")])
        model = Step(place / "averaged", cause)
        if not model.done():
            model.begin()
            run(["nmt", "average", trained.output, "-o", model.output, "--overwrite", *self.config])
            model.end()
        return Model((model.output,), cause, {**facts(trained.output), **read_json(made)})

    @property
    def micro_batches(self) -> int:
        """Of an update."""
        count: int = self.recipe.settings.get("train", {}).get("accumulate", 1)
        return count

    def ensemble(self) -> Model:
        """The models of other recipes together."""
        about = self.recipe.table("preprocess"), self.recipe.texts
        members = [(recipes.read(self.recipe.path.with_name(f"{name}.toml")), seed) for name, seed in self.recipe.ensemble]
        for recipe, _ in members:
            if recipe.ensemble or (recipe.table("preprocess"), recipe.texts) != about:
                refuse(self.recipe.path, f"recipe.ensemble: {recipe.name} is no single model of the same text and [preprocess]")
        models = [Reproduction(recipe, seed, self.work.with_name(recipe.name), self.text).trained() for recipe, seed in members]
        known = [model.facts for model in models]
        sums = {key: sum(each[key] for each in known) for key in ("parameters", "updates", "target_tokens", "train_seconds")}
        about_members = [
            {"recipe": recipe.name, "seed": seed, "settings": recipe.settings, **each}
            for (recipe, seed), each in zip(members, known, strict=True)
        ]
        rest = {"processes": max(each["processes"] for each in known), "members": about_members}
        directories = tuple(directory for model in models for directory in model.directories)
        return Model(directories, digest([model.cause for model in models]), {**sums, **together(known), **rest})

    def scored_in(self, test: Test) -> Path:
        """The circumstances in which a test set was translated and scored, which may be later and others than the training's."""
        return self.work / f"seed-{self.seed}" / f"{test.name}.made.json"

    def scores(self, model: Model, test: Test) -> dict[str, Any]:
        """Translate a test set, and score it both ways: `sacrebleu`, of the text, and `tokens`, as papers do."""
        recipe = self.recipe
        source, reference = self.sides(test.sides)
        language, place = recipe.languages[1], self.work / f"seed-{self.seed}"
        first, *others = model.directories
        cause = digest([model.cause, recipe.table("translate"), self.sha256[test.sides[recipe.languages[0]]]])
        translated = Step(place / f"{test.name}.{language}", cause)
        if not translated.done():
            translated.begin()
            write_json(self.scored_in(test), circumstances())
            ensemble = [word for other in others for word in ("--ensemble", other)]
            run(["nmt", "translate", first, source, "-o", translated.output, *ensemble, *self.config])
            translated.end()

        cause = digest([cause, recipe.table("score"), self.sha256[test.sides[language]]])
        scored = Step(place / f"{test.name}.score.json", cause)
        if not scored.done():
            scored.begin()
            write_json(self.scored_in(test), begun_in(self.scored_in(test)))
            run(["nmt", "score", translated.output, "-r", reference, "-o", scored.output, "--format", "json", *self.config])
            scored.end()

        authors = test.tokens.get(language)
        tokens, how = recipe.texts.tokens, ["--language", language, *recipe.texts.tokens.options()]
        cause = digest([cause, asdict(tokens), self.sha256[authors] if authors else ""])
        on_tokens = Step(place / f"{test.name}.tokens.score.json", cause)
        if not on_tokens.done():
            on_tokens.begin()
            write_json(self.scored_in(test), begun_in(self.scored_in(test)))
            made, true = (place / f"{test.name}.tokens.{name}" for name in ("out", "ref"))
            for text, path in ((translated.output, made), (reference, true)):
                if path == true and authors:
                    copy(self.files[authors], true)
                elif not tokens.split:
                    copy(text, path)
                else:
                    run([HERE / "moses.py", text, "-o", path, *how])
            ways = ["-m", "bleu", "--tokenize", "none", "--format", "json", "--quiet"]  # that these are tokens is known
            run(["nmt", "score", made, "-r", true, "-o", on_tokens.output, *ways])
            on_tokens.end()
        found = {"sacrebleu": told(read_json(scored.output)), "tokens": told(read_json(on_tokens.output))[0]}
        by = "the authors" if authors or not tokens.split else "moses.py"
        return {**found, "tokens_by": by}


def told(scores: Any) -> Any:
    """Without the names of the files: where they lie is this machine's business."""
    return [{key: value for key, value in score.items() if key != "system"} for score in scores]


def facts(trained: Path) -> dict[str, Any]:
    """What a run's own log says."""
    info = json.loads(output(["nmt", "info", trained, "--json"]))
    log = map(json.loads, (trained / "log.jsonl").read_text(encoding="utf-8").splitlines())
    lines = [event for event in log if event["event"] == "train"]
    return {
        "parameters": info["parameters"],
        "updates": info["last"]["step"],
        "epochs": info["last"]["epoch"],
        "target_tokens": sum(line["tokens"] for line in lines),
        "train_seconds": lines[-1]["seconds"],
    }


def copy(path: Path, to: Path) -> None:
    """A file, unpacked."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as source, to.open("wb") as target:
        shutil.copyfileobj(source, target)


def record(recipe: Recipe, found: dict[str, Any], sha256: dict[str, str], path: Path) -> None:
    """Write what was found into results/NAME.json; runs of the same recipe and text with other seeds stay there."""
    about = {
        "recipe": recipe.name,
        "title": recipe.title,
        "command": f"make {recipe.name}",
        "data": {"title": recipe.texts.title, "sha256": sha256, **recipe.texts.made_of(*recipe.languages)},
        "tokens": asdict(recipe.texts.tokens),
        "settings": recipe.settings,
    }
    runs = [found]
    before = results(recipe, path)
    if before is not None and before["data"]["sha256"] == sha256 and not recipe.ensemble:
        runs += [run for run in before["runs"] if run["seed"] != found["seed"]]
    write_json(path, {**about, "runs": sorted(runs, key=lambda run: run["seed"])})


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def reproduce(recipe: Recipe, seed: int, work: Path, text: Path | None = None) -> None:
    """From text to table; the text is in a folder of its own, or where it is at home."""
    folder = recipe.path.parent
    # What would be in the way is known now, and not after hours of training.
    write_table(folder)
    (folder / "results").mkdir(exist_ok=True)
    if recipe.texts.tokens.split and find_spec("sacremoses") is None:
        raise SystemExit("recipe: error: sacremoses is not installed, which makes the tokens that papers score: make install")
    reproduction = Reproduction(recipe, seed, work, text)
    found = reproduction.run()
    record(recipe, found, reproduction.sha256, folder / "results" / f"{recipe.name}.json")
    write_table(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Reproduce a recipe: data, preprocess, train, average, translate, score.")
    parser.add_argument("recipe", help="a name, such as multi30k-en-de, or the path of a .toml")
    parser.add_argument("--seed", type=int, help="another one than the recipe's; the table tells of all")
    parser.add_argument("-o", "--output", type=Path, help="folder for data and model (runs/NAME)")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--trial", action="store_true", help="the whole way in small, on made-up text; nothing of it is kept")
    instead.add_argument("--estimate", action="store_true", help="measure what training would cost here, on made-up text")
    parser.add_argument("--full-size", action="store_true", help="with --trial: the network of the recipe, not a small one")
    options = parser.parse_args(arguments)
    if options.full_size and not options.trial:
        parser.error("--full-size is of --trial")
    if options.output is not None and (options.trial or options.estimate):
        parser.error("--output is of a recipe's own run: --trial and --estimate keep nothing there")
    if options.seed is not None and options.estimate:
        parser.error("--estimate has no use for --seed")
    path = Path(options.recipe) if options.recipe.endswith(".toml") else HERE / f"{options.recipe}.toml"
    if not path.is_file():
        names = ", ".join(sorted(found.stem for found in HERE.glob("*-*.toml")))
        parser.error(f"{path}: no such recipe; there are {names}")
    recipe = recipes.read(path)
    if recipe.ensemble and options.seed is not None:
        parser.error(f"{recipe.name} is an ensemble, whose members' seeds stand in the recipe")
    seed = recipe.seed if options.seed is None else options.seed
    try:
        if options.trial:
            with TemporaryDirectory() as place:
                trial = Trial(recipe, Path(place), options.full_size)
                reproduce(recipes.read(trial.path), seed, Path(place) / "work", trial.text)
                say("\n".join(trial.report()))
            return
        if options.estimate:
            found = estimate(recipe)
            written = path.parent / "results" / f"{recipe.name}.estimate.json"
            written.parent.mkdir(exist_ok=True)
            write_json(written, found)
            write_table(path.parent)
            say(f"{recipe.name}: {duration(found['hours'])} of training on {found['device']}, as it seems")
        else:
            reproduce(recipe, seed, options.output or Path("runs") / recipe.name)
            written = path.parent / "results" / f"{recipe.name}.json"
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise SystemExit(f"recipe: error: {where}{(error.strerror or str(error)).lower()}") from None
    say(f"{near(written)} and {near(path.parent / 'README.md')}: written")


if __name__ == "__main__":
    main()
