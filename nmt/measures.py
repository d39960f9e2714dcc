"""What each metric counts in a sentence (its sufficient statistics), and how many sums of that become scores.

Text is prepared by sacreBLEU, metric by metric, and edits of TER are counted by it; n-grams are counted in `nmt.ngrams`.

N sentences · S systems · R references · O orders of n-grams · K numbers of a sentence
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from nmt import formulas
from nmt.arrays import Array, Arrays
from nmt.errors import NmtError, UsageError
from nmt.ngrams import Integers, Tokens, matches
from nmt.tokenizers import check_tokenizer, choose_tokenizer
from nmt.workers import spread

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric, Score

METRICS = ("bleu", "chrf", "chrf++", "ter")

Statistics = NDArray[Any]
"""(S, N, K): integers, of TER float64."""

BLOCK = 4096
"""Sentences, of hypotheses and references together, that are counted at once: their numbers stay in a core's cache."""

DEVICE_BLOCK = 1 << 16
"""As many on a GPU, which has more to do at once."""

FEW = 400
"""Sentences that are not worth another process."""


@dataclass(frozen=True)
class Lines:
    """Sentences of several systems and their references."""

    systems: Sequence[Sequence[str]]
    """S × N."""
    references: Sequence[Sequence[str | None]]
    """R × N; None where a line has fewer references than others, but at least one."""

    def part(self, begin: int, end: int) -> "Lines":
        """Consecutive lines."""
        return Lines([each[begin:end] for each in self.systems], [each[begin:end] for each in self.references])

    def present(self) -> NDArray[np.bool_]:
        """Which references there are (R, N)."""
        return np.array([[line is not None for line in reference] for reference in self.references])


@dataclass(frozen=True)
class Encoded:
    """`Lines` as ids: once, or once for each kind of token that a metric counts."""

    systems: list[list[Tokens]]
    """One list of S a kind."""
    references: list[list[Tokens]]
    """One list of R a kind; without tokens where there is no reference."""
    vocabularies: list[int]
    present: NDArray[np.bool_]
    """(R, N)."""


class Measure(ABC):
    """A metric: sacreBLEU's, and its counting and its formula on arrays."""

    def __init__(self, metric: "Metric") -> None:
        self.metric = metric

    @abstractmethod
    def encode(self, lines: Lines) -> Any:
        """All that takes Python's time: text to ids. For TER that is counting already."""

    @abstractmethod
    def count(self, encoded: Any, arrays: Arrays) -> Statistics:
        """The numbers of each sentence, as sacreBLEU has them."""

    @abstractmethod
    def scores(self, sums: Array, library: Any) -> Array:
        """The scores (...) of sums (..., K), in floating point."""

    def total(self, counts: Statistics, arrays: Arrays) -> "Score":
        """The score of a whole text, from the numbers of its sentences (N, K): by sacreBLEU itself."""
        score: Score = self.metric._aggregate_and_compute(counts.tolist())
        return score

    def _prepared(self, text: Iterable[str | None]) -> list[str]:
        """As the metric sees it; a line that is not there as one that is empty."""
        return ["" if line is None else self.metric._preprocess_segment(line) for line in text]


class Bleu(Measure):
    """Length of hypothesis and of the closest reference, matches and n-grams of each order."""

    def encode(self, lines: Lines) -> Encoded:
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        systems, references = (
            [_numbered((line.split() for line in self._prepared(text)), numbers) for text in texts]
            for texts in (lines.systems, lines.references)
        )
        return Encoded([systems], [references], [len(numbers)], lines.present())

    def count(self, encoded: Encoded, arrays: Arrays) -> Statistics:
        systems, references = encoded.systems[0], encoded.references[0]
        orders = range(1, formulas.ORDERS + 1)
        matched = matches(systems, references, encoded.vocabularies[0], formulas.ORDERS, arrays, together=True)
        theirs = np.stack([reference.lengths for reference in references])
        counts = []
        for i, system in enumerate(systems):
            # The closest length, of two the shorter; one that is not there is farthest.
            distance = np.where(encoded.present, np.abs(theirs - system.lengths), 1 << 31)
            closest = np.min((distance << 31) + theirs, 0) & (1 << 31) - 1
            counts.append(np.stack([system.lengths, closest, *matched[:, i, 0], *map(system.ngrams, orders)], -1))
        return np.stack(counts)

    def scores(self, sums: Array, library: Any) -> Array:
        return self._parts(sums, library).score

    def total(self, counts: Statistics, arrays: Arrays) -> "Score":
        """By sacreBLEU on a CPU, else where the arrays are."""
        if arrays.device is None:
            return super().total(counts, arrays)
        from sacrebleu.metrics.bleu import BLEUScore

        sums = arrays.put(counts).sum(0)
        parts = self._parts(arrays.library.asarray(sums, dtype=arrays.library.float64), arrays.library)
        length, target, *numbers = sums.tolist()
        matched, ngrams = numbers[: formulas.ORDERS], numbers[formulas.ORDERS :]
        return BLEUScore(parts.score.item(), matched, ngrams, parts.precisions.tolist(), parts.brevity.item(), length, target)

    def _parts(self, sums: Array, library: Any) -> formulas.Bleu:
        known = cast(Any, self.metric)
        return formulas.bleu(sums, library, known.smooth_method, known.smooth_value, known.effective_order)


class Chrf(Measure):
    """N-grams of hypothesis and reference and matches, of each order, with the reference that gives the best score."""

    def encode(self, lines: Lines) -> Encoded:
        systems, references = ([self._prepared(text) for text in texts] for texts in (lines.systems, lines.references))
        known = cast(Any, self.metric)
        kinds = [([_characters(text) for text in systems], [_characters(text) for text in references], 0x110000)]
        if known.word_order:
            numbers: defaultdict[str, int] = defaultdict(count().__next__)
            words = [
                [_numbered(map(known._remove_punctuation, text), numbers) for text in texts] for texts in (systems, references)
            ]
            kinds.append((words[0], words[1], len(numbers)))
        return Encoded([kind[0] for kind in kinds], [kind[1] for kind in kinds], [kind[2] for kind in kinds], lines.present())

    def count(self, encoded: Encoded, arrays: Arrays) -> Statistics:
        known = cast(Any, self.metric)
        columns: list[Integers] = []  # (S, R, N) each
        for i, orders in enumerate((known.char_order, known.word_order)[: len(encoded.systems)]):
            systems, references = encoded.systems[i], encoded.references[i]
            matched = matches(systems, references, encoded.vocabularies[i], orders, arrays, together=False)
            for order in range(1, orders + 1):
                theirs = np.stack([each.ngrams(order) for each in references])
                ours = np.stack([each.ngrams(order) for each in systems])[:, None] * (theirs > 0)
                columns += [ours, np.broadcast_to(theirs, ours.shape), matched[order - 1]]
        counts = np.stack(columns, -1)
        quality = np.where(encoded.present, formulas.chrf(counts.astype(np.float64), np), -1)
        best = quality.argmax(1)[:, None, :, None]
        return np.take_along_axis(counts, best, 1)[:, 0]

    def scores(self, sums: Array, library: Any) -> Array:
        return formulas.chrf(sums, library)


class Ter(Measure):
    """Edits and words of the reference."""

    def encode(self, lines: Lines) -> Statistics:
        known = cast(Any, self.metric)
        references = [
            known._extract_reference_info([line for line in parallel if line is not None])
            for parallel in zip(*lines.references, strict=True)
        ]
        counts = [
            [known._compute_segment_statistics(line, info) for line, info in zip(self._prepared(text), references, strict=True)]
            for text in lines.systems
        ]
        return np.array(counts, dtype=np.float64)

    def count(self, encoded: Statistics, arrays: Arrays) -> Statistics:
        return encoded

    def scores(self, sums: Array, library: Any) -> Array:
        return formulas.ter(sums, library)


def measure(
    name: str, tokenize: str | None = None, lowercase: bool = False, target_lang: str | None = None, effective_order: bool = False
) -> Measure:
    """The metric of that name. sacreBLEU's own warnings, which go to a log of its own, are off.

    `tokenize` is BLEU's (None: what suits `target_lang`), as is `effective_order`; `lowercase` is BLEU's and chrF's (TER always
    ignores case). Raises UsageError for a name or tokenizer that there is not, NmtError for a tokenizer that cannot be used here.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    check_tokenizer(tokenize)  # also where it has no part in the metric: a misspelt word is never meant
    match name:
        case "bleu":
            chosen = choose_tokenizer(tokenize, target_lang)
            try:
                return Bleu(BLEU(lowercase=lowercase, force=True, tokenize=chosen, effective_order=effective_order))
            except (OSError, ImportError, RuntimeError) as error:  # a dictionary is missing, or a model cannot be downloaded
                raise NmtError(f"BLEU's tokenizer {chosen} cannot be used here: {error}") from error
        case "chrf":
            return Chrf(CHRF(lowercase=lowercase))
        case "chrf++":
            return Chrf(CHRF(lowercase=lowercase, word_order=2))
        case "ter":
            return Ter(TER())
        case _:
            raise UsageError(f"unknown metric {name}: choose from {', '.join(METRICS)}")


def statistics(measures: Sequence[Measure], lines: Lines, arrays: Arrays, processes: int) -> list[Statistics]:
    """What each measure counts in each sentence, by so many processes; on a GPU they only prepare the text."""
    alone = arrays.device is None
    length = len(lines.systems[0])
    sentences = length * (len(lines.systems) + len(lines.references))
    rounds = -(-sentences // ((BLOCK if alone else DEVICE_BLOCK) * processes))
    size = length if sentences <= FEW else max(1, -(-length // (rounds * processes)))
    blocks = [lines.part(begin, begin + size) for begin in range(0, length, size)]

    def work(block: Lines) -> list[Any]:
        encoded = [measure.encode(block) for measure in measures]
        return _counted(measures, encoded, arrays) if alone else encoded

    found = spread(work, blocks, min(processes, len(blocks)))
    counted = found if alone else [_counted(measures, encoded, arrays) for encoded in found]
    for measure in measures:
        # What a signature says of them.
        numbers = {int(number) for number in lines.present().sum(0)}
        measure.metric.num_refs = numbers.pop() if len(numbers) == 1 else -1
    return [np.concatenate(parts, 1) for parts in zip(*counted, strict=True)]


def _counted(measures: Sequence[Measure], encoded: Sequence[Any], arrays: Arrays) -> list[Statistics]:
    return [measure.count(each, arrays) for measure, each in zip(measures, encoded, strict=True)]


def _numbered(lines: Iterable[Sequence[str]], numbers: defaultdict[str, int]) -> Tokens:
    """Words by their numbers; a new word has the next."""
    ids, lengths = list[int](), list[int]()
    for words in lines:
        ids += map(numbers.__getitem__, words)
        lengths.append(len(words))
    return Tokens(np.array(ids, dtype=np.int64), np.array(lengths, dtype=np.int64))


def _characters(lines: Iterable[str]) -> Tokens:
    """Characters, but for white space, by their code points."""
    dense = ["".join(line.split()) for line in lines]
    ids = np.frombuffer("".join(dense).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return Tokens(ids.astype(np.int64), np.array([len(line) for line in dense], dtype=np.int64))
