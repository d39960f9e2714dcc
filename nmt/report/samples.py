"""What the models of runs make of the validation text: line by line, and by the length of the line."""

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.console import Console
from nmt.data.files import read_json
from nmt.data.shards import Dataset
from nmt.data.text import read_lines
from nmt.doubts import language_by_script
from nmt.errors import NmtError
from nmt.report.gather import Run
from nmt.results import Translation
from nmt.run import REPORT
from nmt.score import score, sentence_scores
from nmt.search import Beam
from nmt.translate import Options, Translator

METRICS = {"bleu": "BLEU", "chrf": "chrF"}
"""As the page calls them."""

MOST_BINS, LEAST_LINES = 6, 10
"""Of lines put together by length: so many bins at most, and so many lines in each at least, or a BLEU would mean nothing."""


@dataclass(frozen=True)
class Samples:
    """The first lines of the validation text as one run's model translates them, searching as its validations did."""

    run: Run
    source: list[str]
    reference: list[str]
    translations: list[Translation]
    chrf: list[float]
    """Of each line by itself."""
    total: int
    """Lines that the validation text has."""
    metrics: tuple[str, ...]
    """Those of METRICS that can be computed here."""

    def scores(self, lines: Sequence[int]) -> dict[str, float]:
        """BLEU and chrF of these lines together, by name."""
        texts = [self.translations[line].text for line in lines]
        reference = [self.reference[line] for line in lines]
        found = score(texts, [reference], self.metrics, target_lang=self.run.config["languages"][1])
        return {METRICS[metric]: each.value for metric, each in zip(self.metrics, found, strict=True)}


def open_data(path: Path) -> Dataset:
    """The data at `path`, which has a validation text. NmtError where it is none, or has none."""
    dataset = Dataset.open(path)
    if not len(dataset.valid):
        raise NmtError(f"{dataset.path} has no validation set")
    return dataset


def translated(run: Run, data: Dataset | None, lines: int, device: str, threads: int | None, console: Console) -> Samples | None:
    """The first `lines` of them; None, and the reason among what is `missing` of the run, where that cannot be.

    The text is that of `data`, or where it is None of the directory that the run was trained on. `device` and `threads` are as
    `Translator.load` takes them, and the caller knows that they can be.
    """
    try:
        return _translated(run, data, lines, device, threads, console) if lines else None
    except NmtError as error:
        run.missing.append(f"There are no translations, nor scores by length: {error}.")
        return None


def _translated(run: Run, data: Dataset | None, lines: int, device: str, threads: int | None, console: Console) -> Samples:
    dataset = open_data(_place(run)) if data is None else data
    if run.report and read_json(dataset.path / REPORT) != run.report:
        run.missing.append(
            f"{dataset.path} is not the data that {run.path} was trained on; its validation text is used all the same."
        )
    for path in (dataset.valid_source, dataset.valid_target):
        dataset.checked(path)
    translator = Translator.load(run.path, device=device, threads=threads)
    source, reference = (list(read_lines(path, "replace")) for path in (dataset.valid_source, dataset.valid_target))
    chosen = source[:lines]
    search = Beam(run.config["train"]["valid_beam"])
    try:
        coming = translator.translate(chosen, Options(search, attention=True))
    except NmtError as error:
        run.missing.append(f"{str(error)[:1].upper()}{str(error)[1:]}.")
        coming = translator.translate(chosen, Options(search))
    translations = []
    with console.progress(f"translating with {run.name}", "lines", len(chosen)) as progress:
        for translation in coming:
            translations.append(translation)
            progress.advance()
    texts = [translation.text for translation in translations]
    scores = sentence_scores(texts, [reference[:lines]], ("chrf",), target_lang=run.config["languages"][1])
    chrf = [each.value for (each,) in scores]
    return Samples(run, chosen, reference[:lines], translations, chrf, len(source), _metrics(run))


def _metrics(run: Run) -> tuple[str, ...]:
    """All, or those that need no tokenizer where that of the language is not installed."""
    try:
        score([""], [[""]], ("bleu",), target_lang=run.config["languages"][1])
    except NmtError as error:
        run.missing.append(f"There is no BLEU of the translations: {error}.")
        return ("chrf",)
    return tuple(METRICS)


def _place(run: Run) -> Path:
    """Where the data of a run lies."""
    known = run.config.get("trained_on")
    if known is None:
        raise NmtError("where its data lies is not known, since an older nmt made the run; name it with --data")
    place = Path(os.path.normpath(os.path.join(os.path.realpath(run.path), known)))
    if not place.is_dir():
        raise NmtError(f"its data is no longer in {place}; name it with --data")
    return place


@dataclass(frozen=True)
class Bin:
    """Lines whose sources are `least` to `most` words (or characters) long."""

    least: int
    most: int
    lines: list[int]
    """Their numbers, from 0."""

    @property
    def label(self) -> str:
        return f"{self.least}" if self.least == self.most else f"{self.least}–{self.most}"


@dataclass(frozen=True)
class Group:
    """Runs that translated the same lines: they can be compared line by line."""

    members: list[Samples]

    @property
    def unit(self) -> str:
        """What the length of a source is counted in."""
        return "characters" if language_by_script(self.members[0].source) else "words"

    def bins(self) -> list[Bin]:
        """All lines by the length of their sources, about as many in each."""
        count: Callable[[str], int] = len if self.unit == "characters" else lambda line: len(line.split())
        lengths = [count(line) for line in self.members[0].source]
        ranked = sorted(lengths)
        wanted = min(MOST_BINS, max(1, len(ranked) // LEAST_LINES))
        ends = sorted({ranked[number * len(ranked) // wanted - 1] for number in range(1, wanted + 1)})
        starts = [ranked[0], *(end + 1 for end in ends[:-1])]
        return [
            Bin(least, most, [line for line, length in enumerate(lengths) if least <= length <= most])
            for least, most in zip(starts, ends, strict=True)
        ]

    def spread_out(self, count: int) -> list[int]:
        """Lines at even distances."""
        total = len(self.members[0].source)
        return sorted({number * total // count for number in range(count)})

    def worst(self, count: int) -> list[int]:
        """The lines with the lowest chrF, the mean over the runs, worst first; none of those that are empty on both sides."""
        first = self.members[0]
        filled = [line for line, pair in enumerate(zip(first.source, first.reference, strict=True)) if "".join(pair).strip()]
        return sorted(filled, key=lambda line: statistics.mean(self._chrf(line)))[:count]

    def most_different(self, count: int) -> list[int]:
        """The lines whose chrF differs most between the runs, of those where it does."""
        spread = {line: max(self._chrf(line)) - min(self._chrf(line)) for line in range(len(self.members[0].source))}
        return sorted((line for line in spread if spread[line]), key=lambda line: -spread[line])[:count]

    def _chrf(self, line: int) -> list[float]:
        return [member.chrf[line] for member in self.members]


def groups(found: Sequence[Samples]) -> list[Group]:
    """In the order of the runs."""
    together: dict[tuple[str, ...], list[Samples]] = {}
    for samples in found:
        together.setdefault((*samples.source, *samples.reference), []).append(samples)
    return [Group(members) for members in together.values()]
