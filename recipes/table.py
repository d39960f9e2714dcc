"""The table of scores in README.md, written from the recipes and results/*.json; nothing in it is typed by hand."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import recipe as recipes
from recipe import Published, Recipe

BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
RUN = ("seeds", "parameters", "updates", "time", "device", "versions", "command")
COLUMNS = ("recipe", "test", "published", "ours, on tokens", "ours, sacreBLEU", *RUN)
VALID = "valid"


def table(folder: Path) -> str:
    """The part of README.md between the two marks."""
    all_of_them = [recipes.read(path) for path in sorted(folder.glob("*.toml"))]
    found = {recipe.name: results(folder / "results" / f"{recipe.name}.json") for recipe in all_of_them}
    estimates = {recipe.name: results(folder / "results" / f"{recipe.name}.estimate.json") for recipe in all_of_them}
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(row)} |" for each in all_of_them for row in rows(each, found[each.name], estimates[each.name])]
    notes = [note for recipe in all_of_them for note in sources(recipe)]
    lines += ["", "Published:", "", *notes]
    lines += ["", "Ours:", "", *(note for recipe in all_of_them for note in details(recipe, found[recipe.name]))]
    return "\n".join([*lines, ""])


def results(path: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return found


def rows(recipe: Recipe, found: dict[str, Any] | None, estimate: dict[str, Any] | None) -> Iterator[list[str]]:
    """One for each test set; what is the same for all stands in the first."""
    runs = [] if found is None else found["runs"]
    facts = [
        _each(str(run["seed"]) for run in runs),
        _each(f"{run['parameters']:,}" for run in runs),
        _each(f"{run['updates']:,}" for run in runs),
        _each(f"{run['train_seconds'] / 60:.0f} min" for run in runs) if runs else _not_run(estimate),
        _each(map(_device, runs)),
        _each(map(_versions, runs)),
        f"`make {recipe.name}`",
    ]
    name = f"[{recipe.title}]({recipe.path.name})"
    for test in recipe.texts.tests:
        told = [each for each in recipe.published if test.name in each.scores]
        others = " / ".join(f"{each.scores[test.name]:.2f}{_mark(each)}" for each in told)
        scores = [run["scores"][test.name] for run in runs]
        ours = [_spread([each["tokens"]["score"] for each in scores]), _spread([each["sacrebleu"][0]["score"] for each in scores])]
        yield [name, test.name, others, *ours, *facts]
        name, facts = "", [""] * len(facts)


def _not_run(estimate: dict[str, Any] | None) -> str:
    if estimate is None:
        return "not run here"
    speed = f"{estimate['tokens_per_second']['median']:,.0f} target tokens/s on {estimate['device']}"
    return f"not run here; {estimate['hours']:,.0f} h estimated ({speed})"


def _mark(published: Published) -> str:
    marks = ["sacreBLEU"] * (published.way == "sacrebleu") + ["from memory"] * published.from_memory
    return f" ({', '.join(marks)})" if marks else ""


def _spread(scores: list[float]) -> str:
    """The mean, and with several the range."""
    if not scores:
        return ""
    mean = f"**{fmean(scores):.2f}**"
    return mean if len(scores) == 1 else f"{mean} ({min(scores):.2f} to {max(scores):.2f})"


def _each(words: Iterable[str]) -> str:
    """Each once."""
    return "; ".join(dict.fromkeys(words))


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
    for run in found["runs"] if found is not None else []:
        scores = run["scores"]
        others = [f"{each['name']} {each['score']:.2f}" for each in next(iter(scores.values()))["sacrebleu"][1:]]
        first = next(iter(scores))
        signatures = [each["signature"] for each in scores[first]["sacrebleu"]]
        made = scores[first]["made_tokens"]
        how = f"references' tokens by {made['by']}{', lower-cased' if made['lowercase'] else ''}"
        valid = f"valid {scores[VALID]['tokens']['score']:.2f} on tokens, {scores[VALID]['sacrebleu'][0]['score']:.2f} sacreBLEU"
        signed = ", ".join(f"`{each}`" for each in [*signatures, scores[first]["tokens"]["signature"]])
        yield (
            f"- `{recipe.name}`, seed {run['seed']} (commit {run['commit']}): {first}: {', '.join(others)}; {valid}; "
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
    path.write_text(f"{before}{BEGIN}{table(folder)}{END}{after}", encoding="utf-8")
