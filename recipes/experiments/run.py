"""Measure the experiments whose result is missing, and write their pictures and README.md: python recipes/experiments/run.py.

A result is measured again when the code that measures it, the base networks or the text changed. Words and pictures are made
anew each time, from its figures.
"""

import argparse
import ast
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the recipes' scripts lie, which import each other by name

import matplotlib
from matplotlib.figure import Figure
from record import circumstances
from steps import digest, near, say, write_json
from steps import write as write_text

from experiments import beams, cache, cells, common, context, forcing, length, order, sampling, scores
from experiments.common import Corpus, Figures, Work
from experiments.readme import page
from nmt.data.files import reason
from nmt.errors import NmtError
from nmt.pictures import STYLE, save

HERE = Path(__file__).parent


class Experiment(Protocol):
    """A module of this folder."""

    TITLE: str
    CLAIM: str
    """One sentence, and whose it is: author, year, number at arXiv."""

    def measure(self, work: Work) -> Figures:
        """All that costs time."""
        ...

    def sentence(self, figures: Figures) -> str:
        """What came out, whatever it is, in words that depend on the figures."""
        ...

    def table(self, figures: Figures) -> list[list[str]]:
        """The figures that a reader wants to see, the names of the columns first."""
        ...

    def draw(self, figures: Figures, figure: Figure) -> None:
        """The picture."""
        ...


EXPERIMENTS: dict[str, Experiment] = {
    "length": length,
    "scores": scores,
    "cells": cells,
    "context": context,
    "forcing": forcing,
    "order": order,
    "cache": cache,
    "beams": beams,
    "sampling": sampling,
}
"""In the order of README.md."""


def code(name: str, folder: Path = HERE) -> str:
    """A digest of `measure` in a module of this folder, and of all that it names here, in other modules too, and so on."""
    sources: dict[str, dict[str, str | tuple[str, str]]] = {}
    texts: dict[str, str] = {}
    waiting = [(name, "measure")]
    while waiting:
        module, word = waiting.pop()
        if module not in sources:
            sources[module] = _definitions((folder / f"{module}.py").read_text(encoding="utf-8"))
        found = sources[module].get(word)
        if isinstance(found, tuple):
            waiting += [found] if found[0] else []
        elif found is not None and f"{module}.{word}" not in texts:
            texts[f"{module}.{word}"] = found
            tree = list(ast.walk(ast.parse(found)))
            waiting += [(module, each.id) for each in tree if isinstance(each, ast.Name)]
            whole = [each for each in tree if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)]
            modules = [(sources[module].get(each.value.id), each.attr) for each in whole if isinstance(each.value, ast.Name)]
            waiting += [(place[1], attribute) for place, attribute in modules if isinstance(place, tuple) and not place[0]]
    return digest(texts)


def _definitions(source: str) -> dict[str, str | tuple[str, str]]:
    """What a module's names stand for: their source text, or (module here, name) that they are imported from.

    A whole module that is imported is ("", module).
    """
    found: dict[str, str | tuple[str, str]] = {}
    for node in ast.parse(source).body:
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "experiments":
            module = (node.module or "").partition(".")[2]
            found |= {each.asname or each.name: (module, each.name) for each in node.names}
        found |= dict.fromkeys(names, ast.get_source_segment(source, node) or "")
    return found


def cause(name: str, corpus: Corpus) -> dict[str, Any]:
    """What the figures depend on."""
    return {"code": code(name), "data": corpus.checksums()}


def read(path: Path) -> dict[str, Any]:
    """A result; nothing where there is none. SystemExit for a file that is something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise SystemExit(f"experiments: error: {path}: is no result of an experiment; remove it, and it is measured again")
    return found


def measured(name: str, experiment: Experiment, work: Work, found: dict[str, Any]) -> dict[str, Any]:
    """What results/NAME.json says but for words: `found`, where it has the same cause, else measured now."""
    because = cause(name, work.corpus)
    if found.items() >= because.items():
        say(f"{name}: there already")
        return found
    say(f"{name}: {experiment.TITLE}")
    began = time.monotonic()
    figures = experiment.measure(work)
    return {
        "experiment": name,
        "figures": figures,
        "seconds": time.monotonic() - began - work.waited,
        "models": work.models,
        **circumstances(),
        **because,
        "command": f"python recipes/experiments/run.py {name}",
    }


def write(experiment: Experiment, found: dict[str, Any], path: Path) -> None:
    """A result and its picture beside it; the figures first, which cost time, and which words could fail on."""
    write_json(path, found)
    figures = found["figures"]
    words = {
        "title": experiment.TITLE,
        "claim": experiment.CLAIM,
        "sentence": experiment.sentence(figures),
        "table": experiment.table(figures),
    }
    write_json(path, found | words)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.0), facecolor="white", layout="constrained")
        experiment.draw(figures, figure)
        save(figure, path.with_suffix(".svg"))


def write_page(folder: Path) -> None:
    """README.md in `folder`, of all results there; not of those which have no words yet or are of an older form."""
    results = [read(folder / "results" / f"{name}.json") for name in EXPERIMENTS]
    write_text(folder / "README.md", page([found for found in results if found.keys() >= {"sentence", "models"}]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure the claims of papers again; what is measured is not measured again.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments (all)")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--small", action="store_true", help="try the code in seconds, on tiny networks, in runs/experiments-small")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(f"{name:12}{experiment.TITLE}" for name, experiment in EXPERIMENTS.items()))
        return
    for name in options.names:
        if name not in EXPERIMENTS:
            parser.error(f"{name}: no such experiment; there are {', '.join(EXPERIMENTS)}")
    work = Path("runs") / ("experiments-small" if options.small else "experiments")
    folder = work if options.small else HERE
    try:
        corpus = common.texts()
        if options.small:
            corpus = corpus.beginning(work / "text", common.SMALL_LINES)
        # What would be in the way is known now, and not after hours of training.
        (folder / "results").mkdir(parents=True, exist_ok=True)
        write_page(folder)
        for name in options.names or EXPERIMENTS:
            path = folder / "results" / f"{name}.json"
            experiment = EXPERIMENTS[name]
            write(experiment, measured(name, experiment, Work(work, corpus, options.small), read(path)), path)
            write_page(folder)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except NmtError as error:
        raise SystemExit(f"experiments: error: {error}") from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise SystemExit(f"experiments: error: {where}{reason(error)}") from None
    say(f"{near((folder / 'README.md').resolve())}: written")


if __name__ == "__main__":
    main()
