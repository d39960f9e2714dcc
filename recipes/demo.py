"""What `make demo` runs: a corpus made on the spot, both backends trained on it, their translations side by side.

python recipes/demo.py --pair en-de; everything lands in runs/demo/en-de. Each command is printed as a person would type it.
"""

import argparse
import json
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.expressions import LOCALES
from rich.console import Console
from rich.table import Table
from steps import output, run

HERE = Path(__file__).parent
BACKENDS = ("transformer", "rnn")
SHOWN = 6
"""Unseen sentences to show."""

Arguments = list[str | Path]


@dataclass(frozen=True)
class Outcome:
    """What a backend made of the test set."""

    backend: str
    translations: list[str]
    scores: dict[str, float]
    parameters: int
    updates: int
    seconds: float
    """Of training, validation included."""
    picture: Path


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def prepare(source: str, target: str, folder: Path, size: int, held_out: int) -> None:
    """The corpus and its binarised form."""
    text = folder / "text"
    sizes: Arguments = ["--size", str(size), "--held-out", str(held_out)]
    run([HERE / "demo_corpus.py", "--pair", f"{source}-{target}", *sizes, "-o", text])
    train, valid = ([text / f"{part}.{language}" for language in (source, target)] for part in ("train", "valid"))
    validation: Arguments = ["--valid-source", valid[0], "--valid-target", valid[1]]
    languages: Arguments = ["--source-lang", source, "--target-lang", target]
    run(["nmt", "preprocess", *train, *validation, *languages, "--vocab-size", "2000", "-o", folder / "data", "--overwrite"])
    (folder / "shown").write_text("".join(f"{line}\n" for line in read(text / f"test.{source}")[:SHOWN]), encoding="utf-8")


def train_and_score(backend: str, source: str, target: str, folder: Path, limit: Arguments) -> Outcome:
    """One backend's way from the data to its score and its pictures."""
    model, translation, scores = folder / backend, folder / f"{backend}.{target}", folder / f"{backend}.json"
    config: Arguments = ["--config", HERE / "demo" / f"{backend}.toml"]
    began = time.monotonic()
    run(["nmt", "train", folder / "data", "-o", model, "--overwrite", *config, *limit])
    seconds = time.monotonic() - began
    run(["nmt", "translate", model, folder / "text" / f"test.{source}", "-o", translation, *config])
    reference = folder / "text" / f"test.{target}"
    run(["nmt", "score", translation, "-r", reference, "--target-lang", target, "--format", "json", "-o", scores])
    pictures = folder / f"{backend}-attention"
    drawn: Arguments = ["-o", folder / f"{backend}-shown.{target}", "--attention", pictures]
    run(["nmt", "translate", model, folder / "shown", *drawn, *config])
    info: dict[str, Any] = json.loads(output(["nmt", "info", model, "--json"]))
    return Outcome(
        backend,
        read(translation),
        {score["name"]: score["score"] for score in json.loads(scores.read_text(encoding="utf-8"))},
        info["parameters"],
        info["last"]["step"],
        seconds,
        pictures / "line-000001.svg",
    )


def show(source: str, target: str, folder: Path, outcomes: list[Outcome]) -> None:
    """Unseen sentences beside their translations, then the scores."""
    console = Console(highlight=False)
    sources, references = (read(folder / "text" / f"test.{language}") for language in (source, target))
    title = "None of these sentences was in the training text, nor its dates, prices and numbers in this form"
    sentences = Table("", "unseen sentences", title=title, title_justify="left")
    for index in range(min(SHOWN, len(sources))):
        sentences.add_row(source, sources[index])
        sentences.add_row("reference", references[index])
        for outcome in outcomes:
            same = outcome.translations[index] == references[index]
            sentences.add_row(
                outcome.backend, "the same" if same else outcome.translations[index], end_section=outcome is outcomes[-1]
            )
    console.print(sentences)
    scores = Table(
        *("backend", "parameters", "updates", "training", "BLEU", "chrF", "exact match"),
        title=f"{len(references)} unseen sentences",
        title_justify="left",
    )
    for outcome in outcomes:
        exact = sum(map(str.__eq__, outcome.translations, references)) / len(references)
        bleu, chrf = (f"{outcome.scores[name]:.1f}" for name in ("BLEU", "chrF2"))
        scores.add_row(
            outcome.backend,
            f"{outcome.parameters:,}",
            f"{outcome.updates:,}",
            f"{outcome.seconds:.0f} s",
            bleu,
            chrf,
            f"{exact:.1%}",
        )
    console.print(scores)
    for outcome in outcomes:
        console.print(f"attention of the {outcome.backend}: {outcome.picture}", soft_wrap=True)
    model = folder / outcomes[0].backend
    console.print(f"your own sentence: echo {shlex.quote(sources[0])} | .venv/bin/nmt translate {model}", soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train and compare both backends on a corpus made on the spot.")
    parser.add_argument("--pair", default="en-de", help=f"two different languages of {' '.join(LOCALES)} (en-de)")
    parser.add_argument("--size", type=int, default=30_000, help="pairs to train on (30000)")
    parser.add_argument("--held-out", type=int, default=500, help="unseen pairs to validate on, and to test on (500 each)")
    parser.add_argument("--max-steps", help="updates of each training (as in demo/*.toml)")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/demo"), help="folder for all that is made (runs/demo)")
    options = parser.parse_args()
    source, _, target = options.pair.partition("-")
    folder = options.output / options.pair
    prepare(source, target, folder, options.size, options.held_out)
    limit: Arguments = ["--max-steps", options.max_steps] if options.max_steps else []
    show(source, target, folder, [train_and_score(backend, source, target, folder, limit) for backend in BACKENDS])


if __name__ == "__main__":
    main()
