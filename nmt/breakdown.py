"""Where a translation fails: scores by kind of sentence, the worst and best sentences, and those on which two systems differ most.

N sentences · S systems · K numbers of a sentence
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypedDict

import numpy as np

from nmt.arrays import Arrays
from nmt.doubts import language_by_script
from nmt.measures import Measure, Statistics, measure, statistics
from nmt.score import Reference, checked
from nmt.workers import cores

SHOWN = 5
"""Sentences of a list."""

LENGTHS = (0, 1, 11, 21, 31, 51)
SEEN = (0, 1, 10, 100, 1000)
"""Where ranges begin; the last has no end."""

OURS, THEIRS = 0, 1
"""Places among the numbers of a sentence for BLEU: its words, and those of the closest reference."""

PERIOD = 50
"""Words that may lie between a word and its repetition: loops are shorter."""


@dataclass(frozen=True)
class Rarest:
    """How often training saw what it saw least of each source line: a word, or a subword where no space parts words."""

    unit: str
    counts: Sequence[int | None]
    """(N,); None for a line without any."""


def rarest(
    lines: Sequence[str],
    training: Iterable[Sequence[int]],
    encode: Callable[[str], Sequence[int]],
    decode: Callable[[Sequence[int]], str],
    unknown: int,
) -> Rarest:
    """Counts what is in `lines` in the ids of `training`. Words are of normalised text: what `decode` makes of ids.

    A line with the id `unknown` has something that was never seen.
    """
    spaced = language_by_script(lines) is None

    def units(ids: Sequence[int]) -> Sequence[str | int]:
        return re.findall(r"\w+", decode(ids)) if spaced else ids

    encoded = [encode(line) for line in lines]
    parted = [units(ids) for ids in encoded]
    seen: dict[str | int, int] = dict.fromkeys((unit for line in parted for unit in line), 0)
    for ids in training:
        for unit in units(ids):
            if unit in seen:
                seen[unit] += 1
    counts = [
        0 if unknown in ids else min((seen[unit] for unit in line), default=None) for ids, line in zip(encoded, parted, strict=True)
    ]
    return Rarest("word" if spaced else "subword", counts)


class Group(TypedDict):
    """The score of some sentences as a text of their own."""

    group: str
    lines: int
    scores: dict[str, float]
    """By sacreBLEU's names of the metrics."""
    length_ratio: float | None
    """Words by words of the references, as BLEU counts them; None where those have none."""


class Partition(TypedDict):
    """Groups that no sentence is in twice; those without sentences are left out."""

    by: str
    groups: list[Group]


class Output(TypedDict):
    """What a system made of a sentence."""

    system: str
    text: str
    score: float


class Sentence(TypedDict):
    """One line of the text, the first is 0, with what some systems made of it."""

    line: int
    source: str
    references: list[str]
    outputs: list[Output]


class System(TypedDict):
    """All about one system."""

    system: str
    partitions: list[Partition]
    worst: list[Sentence]
    best: list[Sentence]


class Difference(TypedDict):
    """Where the first system and another differ most."""

    systems: list[str]
    sentences: list[Sentence]


class Breakdown(TypedDict):
    """What `--breakdown` prints as JSON."""

    ranked_by: str
    systems: list[System]
    differences: list[Difference]
    signatures: dict[str, str]
    """By the names of the metrics, those of the groups."""


def breakdown(
    names: Sequence[str],
    systems: Sequence[Sequence[str]],
    references: Sequence[Reference],
    source: Sequence[str],
    metrics: Sequence[str],
    tokenize: str | None = None,
    lowercase: bool = False,
    target_lang: str | None = None,
    known: Rarest | None = None,
    device: str = "cpu",
    processes: int | None = None,
) -> Breakdown:
    """Where each system fails. Sentences are ranked by chrF where it is among `metrics`, else by the first of them.

    Parameters and errors as in `score.compare`; `source` is parallel to the systems.
    """
    lines = checked(systems, references)
    arrays = Arrays.on(None if device == "cpu" else device)
    measures = [measure(name, tokenize, lowercase, target_lang) for name in metrics]
    lengths = measure("bleu", tokenize, lowercase, target_lang)
    *counts, words = statistics([*measures, lengths], lines, arrays, processes or cores())
    titles = [_title(*each) for each in zip(measures, counts, strict=True)]

    best_by = metrics.index("chrf") if "chrf" in metrics else 0
    ranking = measure(metrics[best_by], tokenize, lowercase, target_lang, effective_order=True)
    scores = ranking.scores(counts[best_by].astype(np.float64), np)
    quality = -scores if metrics[best_by] == "ter" else scores

    spaced = language_by_script(source) is None
    sizes = [len(line.split()) if spaced else len("".join(line.split())) for line in source]
    divisions = [Division(f"source {'words' if spaced else 'characters'}", _ranges(LENGTHS), _places(sizes, LENGTHS))]
    if known is not None:
        title = f"times the rarest source {known.unit} was in training"
        divisions.append(Division(title, _ranges(SEEN), _places(known.counts, SEEN)))

    def sentences(numbers: Iterable[int], which: Sequence[int]) -> list[Sentence]:
        return [
            {
                "line": number,
                "source": source[number],
                "references": [text for each in lines.references if (text := each[number]) is not None],
                "outputs": [
                    {"system": names[i], "text": lines.systems[i][number], "score": float(scores[i, number])} for i in which
                ],
            }
            for number in islice(numbers, SHOWN)
        ]

    def about(system: int) -> System:
        of_system = [each[system] for each in counts]
        faults = [_fault(*each) for each in zip(lines.systems[system], source, zip(*lines.references, strict=True), strict=True)]
        by_fault = Division("output", FAULTS, [FAULTS.index(fault) for fault in faults])
        # Of equal ones the longest: it says most.
        worst, best = (np.lexsort((-np.array(sizes), sign * quality[system])).tolist() for sign in (1, -1))
        telling = [bool(size or output) for size, output in zip(sizes, lines.systems[system], strict=True)]
        partitions: list[Partition] = []
        for division in (*divisions, by_fault):
            groups = [_group(*each, measures, of_system, words[system], arrays) for each in division.members()]
            partitions.append({"by": division.title, "groups": groups})
        return {
            "system": names[system],
            "partitions": partitions,
            "worst": sentences(filter(telling.__getitem__, worst), [system]),
            "best": sentences(filter(telling.__getitem__, best), [system]),
        }

    def difference(system: int) -> Difference:
        differences = np.abs(quality[system] - quality[0])
        order = np.argsort(-differences, kind="stable")
        return {"systems": [names[0], names[system]], "sentences": sentences(order[differences[order] > 0].tolist(), [0, system])}

    return {
        "ranked_by": titles[best_by],
        "systems": [about(system) for system in range(len(names))],
        "differences": [difference(system) for system in range(1, len(names))],
        "signatures": {title: each.metric.get_signature().format() for title, each in zip(titles, measures, strict=True)},
    }


@dataclass(frozen=True)
class Division:
    """Which of some groups each sentence is in."""

    title: str
    names: Sequence[str]
    """Of the groups."""
    places: Sequence[int | None]
    """(N,), among `names`; None for a sentence in none."""

    def members(self) -> Iterator[tuple[str, list[int]]]:
        """The groups with sentences, and the numbers of these."""
        found: list[list[int]] = [[] for _ in self.names]
        for number, place in enumerate(self.places):
            if place is not None:
                found[place].append(number)
        return ((name, numbers) for name, numbers in zip(self.names, found, strict=True) if numbers)


def _title(measure: Measure, counts: Statistics) -> str:
    """sacreBLEU's name for a metric: its scores know it."""
    title: str = measure.metric._compute_score_from_stats(counts[0, 0].tolist()).name
    return title


def _group(
    name: str, members: Sequence[int], measures: Sequence[Measure], counts: Sequence[Statistics], words: Statistics, arrays: Arrays
) -> Group:
    """The sentences `members` of one system, from what each measure counts in its sentences (N, K), and BLEU in its `words`."""
    sums = words[members].sum(0).tolist()
    totals = [each.total(counted[members], arrays) for each, counted in zip(measures, counts, strict=True)]
    return {
        "group": name,
        "lines": len(members),
        "scores": {total.name: total.score for total in totals},
        "length_ratio": sums[OURS] / sums[THEIRS] if sums[THEIRS] else None,
    }


FAULTS = ("empty", "copied", "repeated", "other")
"""Kinds of output: nothing for something; mostly words of the source that no reference has; something that follows itself where no
reference does so; none of these."""


def _fault(output: str, source: str, references: Sequence[str | None]) -> str:
    given = [line for line in references if line is not None]
    if not output.strip() and source.strip():
        return "empty"
    words = re.findall(r"[^\W\d_]{2,}", output)
    known = set(re.findall(r"[^\W\d_]{2,}", source)).difference(*(re.findall(r"[^\W\d_]{2,}", line) for line in given))
    if 2 * sum(word in known for word in words) > len(words):
        return "copied"
    if _repeats(output) and not any(map(_repeats, given)):
        return "repeated"
    return "other"


def _repeats(line: str) -> bool:
    """Whether some words follow themselves, or one word does so twice, or some characters without a space do so three times.

    A letter alone may (brrrr), and digits (1000000).
    """
    words = line.split()
    for size in range(1, min(len(words) // 2, PERIOD) + 1):
        run = 0
        for here, there in zip(words, words[size:], strict=False):
            run = run + 1 if here == there else 0
            if run >= max(size, 2):
                return True
    return re.search(r"([^\w\s]|[^\d\s]{2,20}?)\1{3}", line) is not None


def _places(numbers: Sequence[int | None], begins: Sequence[int]) -> list[int | None]:
    """Which of the ranges that begin there each number is in; the first begins with the least number there is."""
    return [None if number is None else bisect_right(begins, number) - 1 for number in numbers]


def _ranges(begins: Sequence[int]) -> list[str]:
    """Their names."""
    ends = [begin - 1 for begin in begins[1:]]
    names = [str(begin) if begin == end else f"{begin:,}–{end:,}" for begin, end in zip(begins, ends, strict=False)]
    return [*names, f"{begins[-1]:,} or more"]
