"""What experiments share: the text, two base networks, trainings that are kept, translation and its score."""

import gzip
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import texts as corpora
import training
from record import begun_in
from steps import Step, digest, run, write_json

from nmt.data.text import read_lines
from nmt.results import Translation
from nmt.score import score
from nmt.search.base import Search
from nmt.translate import Options, Translator

TEXTS = Path(__file__).parents[1] / "data" / "multi30k.toml"

Figures = dict[str, Any]
"""All that an experiment measured, ready for JSON."""

Settings = dict[str, Any]
"""Of a training, by the names that `nmt train --set` takes: another network is `RNN | {"model.attention": "none"}`."""

Sides = tuple[Path, Path]
"""Source and target, line by line."""

MICRO_BATCHES = 2
"""Of an update: so many processes may share a training."""
TRAIN: Settings = {
    "train.batch_tokens": 2048,
    "train.schedule": "linear",
    "train.label_smoothing": 0.1,
    "train.keep_last": 1,
}
RNN: Settings = {
    "model.backend": "rnn",
    "model.layers": 1,
    "model.width": 256,
    "model.embedding": 256,
    "model.dropout": 0.3,
    **TRAIN,
    "train.learning_rate": 2e-3,
    "train.warmup": 200,
    "train.max_steps": 1200,
    "train.valid_every": 200,
    "train.save_every": 200,
}
"""The base RNN: a GRU with additive attention, some five epochs of Multi30k."""
TRANSFORMER: Settings = {
    "model.backend": "transformer",
    "model.layers": 4,
    "model.width": 128,
    "model.feed_forward": 256,
    "model.heads": 4,
    "model.dropout": 0.3,
    **TRAIN,
    "train.learning_rate": 4e-3,
    "train.warmup": 500,
    "train.max_steps": 2500,
    "train.valid_every": 500,
    "train.save_every": 500,
}
"""The base Transformer, some ten epochs."""
VOCABULARY = 5000


class Look(NamedTuple):
    """How a network is named and drawn."""

    name: str
    color: str


NETWORKS = {"transformer": Look("Transformer", "#0072b2"), "rnn": Look("RNN", "#d55e00")}
"""By backend."""

SMALL: Settings = {
    "model.layers": 1,
    "model.width": 16,
    "model.embedding": 16,
    "model.feed_forward": 32,
    "model.heads": 2,
    "train.batch_tokens": 500,
    "train.warmup": 2,
    "train.max_steps": 4,
    "train.valid_every": 2,
    "train.save_every": 4,
}
"""What those of these keys that a training sets become in a trial."""
SMALL_VOCABULARY = 300
SMALL_LINES = {"train": 300, "valid": 12, "test": 12}


@dataclass(frozen=True)
class Corpus:
    """Parallel text."""

    train: Sides
    valid: Sides
    test: Sides

    def checksums(self) -> dict[str, str]:
        """The SHA-256 of each file, by its name."""
        files = (*self.train, *self.valid, *self.test)
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def beginning(self, folder: Path, lines: dict[str, int]) -> "Corpus":
        """So many first lines of each part, written to files of the same names in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)

        def begun(part: str) -> Sides:
            source, target = (_begin(path, folder / path.name, lines[part]) for path in getattr(self, part))
            return source, target

        return Corpus(begun("train"), begun("valid"), begun("test"))


def _begin(path: Path, place: Path, lines: int) -> Path:
    text = "".join(f"{line}\n" for line in islice(read_lines(str(path)), lines))
    place.write_bytes(gzip.compress(text.encode(), mtime=0))
    return place


def texts() -> Corpus:
    """English and German Multi30k, as recipes get it."""
    found = corpora.read(TEXTS)
    files = corpora.fetch(found, "en", "de")
    sides = [(files[part["en"]], files[part["de"]]) for part in (found.train, found.valid, found.tests[0].sides)]
    return Corpus(*sides)


def lines_of(path: Path) -> list[str]:
    """The lines of a text, compressed or not."""
    return list(read_lines(str(path)))


@dataclass(frozen=True)
class Trained:
    """A run of `nmt train`."""

    path: Path

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What it logged: `train` or `valid`, in order."""
        events = map(json.loads, (self.path / "log.jsonl").read_text(encoding="utf-8").splitlines())
        return [event for event in events if event["event"] == kind]

    @property
    def seconds(self) -> float:
        """That it took, validation included."""
        seconds: float = self.events("train")[-1]["seconds"]
        return seconds

    @property
    def record(self) -> Path:
        """Where `made` stands: beside the run, in which `nmt train` wants no other files."""
        return self.path.with_name(f"{self.path.name}.made.json")

    @property
    def made(self) -> dict[str, Any]:
        """How it came about: `processes`, `device`, `versions` and `commit`; nothing where that was not recorded."""
        found: dict[str, Any] = json.loads(self.record.read_text(encoding="utf-8")) if self.record.is_file() else {}
        return found

    def translator(self) -> Translator:
        """Of its best model."""
        return Translator.load(self.path)


@dataclass
class Work:
    """Where an experiment works and on what, and what it has trained."""

    folder: Path
    """For all that is made on the way, shared by all experiments."""
    corpus: Corpus
    small: bool = False
    """A trial of the code, in seconds: its figures mean nothing."""
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Each that was asked for, by the name of its folder: the seconds of its training, now or earlier, and how it was made."""
    waited: float = 0.0
    """Seconds that passed here for trainings: with those that are there already, few."""

    def trained(self, settings: Settings, corpus: Corpus | None = None) -> Trained:
        """A network of these settings, trained by `nmt train` on `corpus` (None: the common one).

        There is one training for each settings and text, whoever asks for it: what is there is taken, what was stopped goes on.
        """
        began = time.monotonic()
        data = self._data(corpus or self.corpus)
        settings = self.sized(settings)
        cause = digest([data.cause, settings])
        model = Step(self.folder / "models" / f"{settings['model.backend']}-{cause}", cause)
        trained = Trained(model.output)
        if not model.done():
            resume = model.begun() and training.begun(model.output)
            model.begin(resume)
            how = ["--resume" if resume else "--overwrite", *assignments(settings)]
            processes = 1 if self.small else training.processes(MICRO_BATCHES, model.output if resume else None)
            # What began unrecorded stays so: of its beginning nothing is known.
            if trained.record.is_file() or not resume:
                write_json(trained.record, {"processes": processes, **begun_in(trained.record if resume else None)})
            training.train(data.output, model.output, how, MICRO_BATCHES, processes)
            model.end()
        self.models[model.output.name] = {"seconds": trained.seconds, **trained.made}
        self.waited += time.monotonic() - began
        return trained

    def sized(self, settings: Settings) -> Settings:
        """The settings themselves; in a trial, those of a network that is trained in no time."""
        return {key: SMALL.get(key, value) for key, value in settings.items()} if self.small else settings

    def _data(self, corpus: Corpus) -> Step:
        size = SMALL_VOCABULARY if self.small else VOCABULARY
        cause = digest([corpus.checksums(), size])
        data = Step(self.folder / "data" / cause, cause)
        if not data.done():
            data.begin()
            held_out: list[str | Path] = ["--valid-source", corpus.valid[0], "--valid-target", corpus.valid[1]]
            languages = ["--source-lang", "en", "--target-lang", "de", "--vocab-size", str(size)]
            run(["nmt", "preprocess", *corpus.train, *held_out, *languages, "-o", data.output, "--overwrite"])
            data.end()
        return data


def assignments(settings: Settings, *tables: str) -> list[str]:
    """Those of these tables (none: all) as options of an nmt command."""
    chosen = {key: value for key, value in settings.items() if not tables or key.partition(".")[0] in tables}
    return [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]


def translations(translator: Translator, lines: Sequence[str], search: Search, n_best: int = 1) -> list[Translation]:
    """One a line."""
    return list(translator.translate(lines, Options(search, n_best=n_best)))


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """sacreBLEU's, cased, tokenised as 13a."""
    return score(hypotheses, [references], ("bleu",))[0].value


def duration(seconds: float) -> str:
    """In words, as `3 min`."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def listed(names: Sequence[str]) -> str:
    """`A, B and C`; `none` where there is none."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names or ["none"])
