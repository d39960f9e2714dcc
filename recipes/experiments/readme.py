"""README.md of the experiments, a function of the results and of nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.common import duration, listed

INTRODUCTION = """\
# Experiments

Claims of the papers that this toolkit stands on, measured again on one small corpus (Multi30k, English to German) with small
networks. Each has the claim, a picture, and what came out, whatever it is; the words are computed from the figures, which stand in
`results/`. A claim that does not show here may well hold for larger networks, other languages or longer training: what was
trained, and for how long, is below each. `make experiments` measures what is missing, and writes this page from `results/`; where a
result is to be measured again, remove it first. Trainings stay in `runs/experiments`; what is no longer there is trained again.
"""


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """The text of README.md."""
    return "\n".join([INTRODUCTION, *map(_section, results)])


def _section(found: Mapping[str, Any]) -> str:
    name = found["experiment"]
    header, *rows = found["table"]
    table = [_row(header), _row(["---"] * len(header)), *map(_row, rows)]
    parts = [
        f"## {found['title']}",
        f"*The claim*: {found['claim']}",
        f"![{found['title']}](results/{name}.svg)",
        f"*What came out*: {found['sentence']}",
        "\n".join(table),
        f"Measured in {duration(found['seconds'])} {_where(found)}{_after(list(found['models'].values()))}. "
        f"Again: `rm recipes/experiments/results/{name}.json; make experiments`",
    ]
    return "".join(f"{part}\n\n" for part in parts).removesuffix("\n")


def _where(found: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{library} {version}" for library, version in found["versions"].items())
    return f"on {found['device']} ({versions}; commit {found['commit']})"


def _after(models: Sequence[Mapping[str, Any]]) -> str:
    """How long they were trained, and where: not all at once perhaps."""
    if not models:
        return ""
    each = dict.fromkeys(map(_how, models))
    return f", after trainings of {duration(sum(made['seconds'] for made in models))}, {listed(list(each))}"


def _how(made: Mapping[str, Any]) -> str:
    if "processes" not in made:
        return "in circumstances that were not recorded"
    return f"in {made['processes']} process{'es' if made['processes'] > 1 else ''} {_where(made)}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
