"""README.md of the experiments, a function of the results and of nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.common import duration

INTRODUCTION = """\
# Experiments

Claims of the papers that this toolkit stands on, measured again on one small corpus (Multi30k, English to German) with small
networks. Each has the claim, a picture, and what came out, whatever it is; the words are computed from the figures, which stand in
`results/`. A claim that does not show here may well hold for larger networks, other languages or longer training: what was
trained, and for how long, is below each. `make experiments` measures what is missing, and writes this page from `results/`.
"""


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """The text of README.md."""
    return "\n".join([INTRODUCTION, *map(_section, results)])


def _section(found: Mapping[str, Any]) -> str:
    name = found["experiment"]
    header, *rows = found["table"]
    table = [_row(header), _row(["---"] * len(header)), *map(_row, rows)]
    versions = ", ".join(f"{library} {version}" for library, version in found["versions"].items())
    trainings = f", after trainings of {duration(sum(found['trainings'].values()))}" if found["trainings"] else ""
    parts = [
        f"## {found['title']}",
        f"*The claim*: {found['claim']}",
        f"![{found['title']}](results/{name}.svg)",
        f"*What came out*: {found['sentence']}",
        "\n".join(table),
        f"Measured in {duration(found['seconds'])}{trainings}, on {found['device']} ({versions}; commit {found['commit']}). "
        f"Again: `{found['command']}`",
    ]
    return "".join(f"{part}\n\n" for part in parts).removesuffix("\n")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
