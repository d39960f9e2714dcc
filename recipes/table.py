"""The table of scores in README.md, written from the recipes and results/*.json; nothing in it is typed by hand."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import recipe as recipes
from recipe import Published, Recipe
from steps import write

BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
RUN = ("seeds", "parameters", "updates", "time", "device", "versions", "command")
COLUMNS = ("recipe", "test", "published", "ours, on tokens", "ours, sacreBLEU", *RUN)
VALID = "valid"
"""The validation set's name among the test sets: it is scored like them, since it is what settings are chosen by."""


def table(folder: Path) -> str:
    """The part of README.md between the two marks."""
    all_of_them = [recipes.read(path) for path in sorted(folder.glob("*.toml"))]
    found = {recipe.name: results(recipe, folder / "results" / f"{recipe.name}.json") for recipe in all_of_them}
    estimates = {recipe.name: estimate(recipe, folder / "results" / f"{recipe.name}.estimate.json") for recipe in all_of_them}
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(row)} |" for each in all_of_them for row in rows(each, found[each.name], estimates[each.name])]
    notes = [note for recipe in all_of_them for note in sources(recipe)]
    lines += ["", "Published:", "", *notes]
    lines += ["", "Ours:", "", *(note for recipe in all_of_them for note in details(recipe, found[recipe.name]))]
    return "\n".join([*lines, ""])


def results(recipe: Recipe, path: Path) -> dict[str, Any] | None:
    """The record of a recipe, where there is one of its settings and its text as they are now, and of its ensemble with theirs."""
    members = [(name, seed, recipes.read(recipe.path.with_name(f"{name}.toml")).settings) for name, seed in recipe.ensemble]

    def same(found: dict[str, Any]) -> bool:
        texts, data = recipe.texts, found["data"]
        known, sums, made = texts.sha256, data["sha256"], {key: data[key] for key in ("made", "valid_every") if key in data}
        files = set(sums) == set(texts.names(*recipe.languages)) and made == texts.made_of(*recipe.languages)
        contents = all(known.get(name, sums[name]) == sums[name] for name in sums)
        settings = found["tokens"] == asdict(texts.tokens) and found["settings"] == recipe.settings
        return files and contents and settings and all(_members(run) == members for run in found["runs"])

    return _read(path, same)


def _members(run: dict[str, Any]) -> list[tuple[str, int, dict[str, Any]]]:
    return [(each["recipe"], each["seed"], each["settings"]) for each in run.get("members", [])]


def estimate(recipe: Recipe, path: Path) -> dict[str, Any] | None:
    """The estimate of a recipe, where there is one of its settings as they are now."""

    def same(found: dict[str, Any]) -> bool:
        of_text = found["corpus"]["mean_length"] == recipe.texts.mean_length
        return of_text and bool(found["settings"] == recipe.table("preprocess", "model", "train"))

    return _read(path, same)


def _read(path: Path, same: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found if same(found) else None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SystemExit(f"recipe: error: {path}: is no record of a recipe; remove it, and the recipe writes it anew") from None


def rows(recipe: Recipe, found: dict[str, Any] | None, estimate: dict[str, Any] | None) -> Iterator[list[str]]:
    """One for each test set; what is the same for all stands in the first."""
    runs = [] if found is None else found["runs"]
    facts = [
        _each(map(_seed, runs)),
        _each(f"{run['parameters']:,}" for run in runs),
        _each(_updates(recipe, run) for run in runs),
        _each(f"{run['train_seconds'] / 60:.0f} min" for run in runs) if runs else _not_run(estimate),
        _each(map(_device, runs)),
        _each(map(_versions, runs)),
        "; ".join(_commands(recipe, runs)),
    ]
    name = f"[{recipe.title}]({recipe.path.name})"
    for test in recipe.texts.tests:
        told = [each for each in recipe.published if test.name in each.scores]
        others = " / ".join(f"{each.scores[test.name]:.2f}{_mark(each)}" for each in told)
        scores = [run["scores"][test.name] for run in runs if test.name in run["scores"]]
        ours = [_spread([each["tokens"]["score"] for each in scores]), _spread([_bleu(each) for each in scores])]
        yield [name, test.name, others, *ours, *facts]
        name, facts = "", [""] * len(facts)


def _not_run(estimate: dict[str, Any] | None) -> str:
    if estimate is None:
        return "not run here"
    speed = f"{estimate['tokens_per_second']['median']:,.0f} target tokens/s on {estimate['device']}"
    return f"not run here; {duration(estimate['hours'])} estimated ({speed})"


def duration(hours: float) -> str:
    return f"{hours:,.0f} h" if hours >= 10 else f"{max(1, round(hours * 60))} min"


def _mark(published: Published) -> str:
    marks = ["sacreBLEU"] * (published.way == "sacrebleu") + ["from memory"] * published.from_memory
    return f" ({', '.join(marks)})" if marks else ""


def _spread(scores: list[float]) -> str:
    """The mean, and with several the range."""
    if not scores:
        return ""
    mean = f"**{fmean(scores):.2f}**"
    return mean if len(scores) == 1 else f"{mean} ({min(scores):.2f} to {max(scores):.2f})"


def _bleu(scores: dict[str, Any]) -> float:
    """sacreBLEU's, whatever else it was asked for."""
    return next(float(each["score"]) for each in scores["sacrebleu"] if each["name"] == "BLEU")


def _each(words: Iterable[str]) -> str:
    """Each once."""
    return "; ".join(dict.fromkeys(words))


def _seed(run: dict[str, Any]) -> str:
    """Of an ensemble, those of its members."""
    return " + ".join(str(member["seed"]) for member in run["members"]) if "members" in run else str(run["seed"])


def _commands(recipe: Recipe, runs: list[dict[str, Any]]) -> list[str]:
    """One for each seed."""
    seeds = [""] if recipe.ensemble or not runs else ["" if run["seed"] == recipe.seed else f" SEED={run['seed']}" for run in runs]
    return [f"`make {recipe.name}{seed}`" for seed in seeds]


def _updates(recipe: Recipe, run: dict[str, Any]) -> str:
    """With what there were to be, where time or patience ended it earlier."""
    most = recipe.settings.get("train", {}).get("max_steps", run["updates"])
    return f"{run['updates']:,}" if run["updates"] == most else f"{run['updates']:,} of {most:,}"


def _device(run: dict[str, Any]) -> str:
    several = f", {run['processes']} processes" if run["processes"] > 1 else ""
    return f"{run['device']}{several}"


def _versions(run: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in run["versions"].items())


def sources(recipe: Recipe) -> Iterator[str]:
    ways = {"tokens": "on tokens", "sacrebleu": "sacreBLEU"}
    for each in recipe.published:
        scores = ", ".join(f"{test} {score:.2f}" for test, score in each.scores.items())
        memory = "; from memory" if each.from_memory else ""
        yield f"- `{recipe.name}`: {each.system}: {scores}, {ways[each.way]} ({each.source}{memory})"


def details(recipe: Recipe, found: dict[str, Any] | None) -> Iterator[str]:
    """What else there is to know of the scores: signatures, the other metrics, how tokens came about, the code's commit."""
    if found is None:
        return
    for run in found["runs"]:
        scores = run["scores"]
        name, first = next(iter(scores.items()))
        others = ", ".join(f"{each['name']} {each['score']:.2f}" for each in first["sacrebleu"] if each["name"] != "BLEU")
        how = f"references' tokens by {first['tokens_by']}{', lower-cased' if found['tokens']['lowercase'] else ''}"
        valid = f"valid {scores[VALID]['tokens']['score']:.2f} on tokens, {_bleu(scores[VALID]):.2f} sacreBLEU"
        signed = ", ".join(f"`{each['signature']}`" for each in [*first["sacrebleu"], first["tokens"]])
        yield (
            f"- `{recipe.name}`, seed {_seed(run)} (commit {run['commit']}): {name}: {others}; {valid}; "
            f"{run['target_tokens'] / 1e6:.1f} million target tokens; {how}; {signed}"
        )


def write_table(folder: Path) -> None:
    """Replace the table in `folder`/README.md; the rest of the file stays. SystemExit where there is none."""
    path = folder / "README.md"
    try:
        before, mark, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    except OSError as error:
        raise SystemExit(
            f"recipe: error: {path}: cannot be read ({(error.strerror or str(error)).lower()}); it is to hold the table of scores"
        ) from None
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"recipe: error: {path}: has no place for the table between {BEGIN.strip()} and {END.strip()}")
    write(path, f"{before}{BEGIN}{table(folder)}{END}{after}")
