"""The table of scores in README.md, written from the recipes and results/*.json; nothing in it is typed by hand."""

import json
from pathlib import Path
from typing import Any

import recipe as recipes

BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
COLUMNS = ("recipe", "BLEU", "chrF", "parameters", "updates", "training", "device", "versions")


def minutes(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds / 60:.0f} min"


def row(found: dict[str, Any]) -> list[str]:
    scores = {score["name"].lower(): score for score in found["scores"]}
    return [
        f"`{found['recipe']}` {found['title']}",
        f"**{scores['bleu']['score']:.2f}**",
        f"{scores['chrf2']['score']:.2f}",
        f"{found['parameters']:,}",
        f"{found['updates']:,}",
        minutes(found["train_seconds"]),
        found["device"],
        ", ".join(f"{name} {number}" for name, number in found["versions"].items()),
    ]


def table(folder: Path) -> str:
    """The part of README.md between the two marks."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / "results").glob("*.json"))]
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}", *(f"| {' | '.join(row(found))} |" for found in results)]
    lines += ["", *(f"- `{found['recipe']}` (commit {found['commit']}): {signatures(found)}" for found in results)]
    published = [
        f"- `{recipe.name}`: {other['system']}: {other['score']}, {other['how']} ({other['source']})"
        for recipe in map(recipes.read, sorted(folder.glob("*.toml")))
        for other in recipe.published
    ]
    return "\n".join([*lines, "", "Published:", "", *published, ""])


def signatures(found: dict[str, Any]) -> str:
    return "; ".join(f"`{score['signature']}`" for score in found["scores"])


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
