"""Where a translation fails: scores by kind of sentence, the worst and best sentences, and those on which two systems differ most.

N sentences · S systems
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmt.arrays import Arrays
from nmt.doubts import language_by_script
from nmt.measures import measure, statistics
from nmt.score import Reference, checked
from nmt.workers import cores

SHOWN = 5
"""Sentences of a list."""

LENGTHS = (0, 1, 11, 21, 31, 51)
SEEN = (0, 1, 10, 100, 1000)
"""Where ranges begin; the last has no end."""

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
) -> dict[str, Any]:
    """What `--breakdown` prints as JSON. Sentences are ranked by chrF where it is among `metrics`, else by the first of them.

    Parameters and errors as in `score.compare`; `source` is parallel to the systems.
    """
    lines = checked(systems, references)
    arrays = Arrays.on(None if device == "cpu" else device)
    shown = [measure(name, tokenize, lowercase, target_lang) for name in metrics]
    lengths = measure("bleu", tokenize, lowercase, target_lang)
    *counts, words = statistics([*shown, lengths], lines, arrays, processes or cores())

    def group(name: str, system: int, members: Sequence[int]) -> dict[str, Any]:
        ours, theirs = words[system, members, :2].sum(0).tolist()
        totals = [each.total(counted[system, members], arrays) for each, counted in zip(shown, counts, strict=True)]
        return {
            "group": name,
            "lines": len(members),
            "scores": {total.name: total.score for total in totals},
            "length_ratio": ours / theirs if theirs else None,
        }

    def groups(title: str, system: int, labels: Sequence[str | None], order: Sequence[str]) -> dict[str, Any]:
        members = {name: [number for number, label in enumerate(labels) if label == name] for name in order}
        return {"by": title, "groups": [group(name, system, found) for name, found in members.items() if found]}

    spaced = language_by_script(source) is None
    sizes = [len(line.split()) if spaced else len("".join(line.split())) for line in source]
    partitions = [(f"source {'words' if spaced else 'characters'}", [_range(size, LENGTHS) for size in sizes], _ranges(LENGTHS))]
    if known is not None:
        seen = [None if count is None else _range(count, SEEN) for count in known.counts]
        partitions.append((f"times the rarest source {known.unit} was in training", seen, _ranges(SEEN)))

    best_by = metrics.index("chrf") if "chrf" in metrics else 0
    ranking = measure(metrics[best_by], tokenize, lowercase, target_lang, effective_order=True)
    numbers = counts[best_by]
    scores = ranking.scores(numbers.astype(np.float64), np)
    quality = -scores if metrics[best_by] == "ter" else scores

    def sentence(number: int, which: Sequence[int]) -> dict[str, Any]:
        return {
            "line": number,
            "source": source[number],
            "references": [each[number] for each in lines.references if each[number] is not None],
            "outputs": [{"system": names[i], "text": lines.systems[i][number], "score": float(scores[i, number])} for i in which],
        }

    def ranked(system: int, sign: int) -> list[dict[str, Any]]:
        # Of equal ones the longest: it says most.
        order = np.lexsort((-np.array(sizes), sign * quality[system]))
        return [sentence(int(number), [system]) for number in order if sizes[number] or lines.systems[system][number]][:SHOWN]

    found: dict[str, Any] = {"ranked_by": ranking.metric._compute_score_from_stats(numbers[0, 0].tolist()).name, "systems": []}
    for system, name in enumerate(names):
        kinds = [_fault(*each) for each in zip(lines.systems[system], source, zip(*lines.references, strict=True), strict=True)]
        found["systems"].append(
            {
                "system": name,
                "partitions": [
                    *(groups(title, system, labels, order) for title, labels, order in partitions),
                    groups("output", system, kinds, FAULTS),
                ],
                "worst": ranked(system, 1),
                "best": ranked(system, -1),
            }
        )
    found["signatures"] = {
        each.metric._compute_score_from_stats(counted[0, 0].tolist()).name: each.metric.get_signature().format()
        for each, counted in zip(shown, counts, strict=True)
    }
    found["differences"] = [
        {
            "systems": [names[0], name],
            "sentences": [
                sentence(int(number), [0, system])
                for number in np.argsort(-np.abs(quality[system] - quality[0]), kind="stable")[:SHOWN]
                if quality[system, number] != quality[0, number]
            ],
        }
        for system, name in list(enumerate(names))[1:]
    ]
    return found


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
    """Whether some words follow themselves, or one word does so twice, or characters do so three times: punctuation and emoji, or

    two and more of any kind but digits, without a space.
    """
    words = line.split()
    for size in range(1, min(len(words) // 2, PERIOD) + 1):
        run = 0
        for here, there in zip(words, words[size:], strict=False):
            run = run + 1 if here == there else 0
            if run >= max(size, 2):
                return True
    return re.search(r"([^\w\s]|[^\d\s]{2,20}?)\1{3}", line) is not None


def _range(number: int, begins: Sequence[int]) -> str | None:
    """The name of the range that a number is in; None below the first."""
    place = sum(begin <= number for begin in begins)
    return _ranges(begins)[place - 1] if place else None


def _ranges(begins: Sequence[int]) -> list[str]:
    ends = [begin - 1 for begin in begins[1:]]
    names = [str(begin) if begin == end else f"{begin:,}–{end:,}" for begin, end in zip(begins, ends, strict=False)]
    return [*names, f"{begins[-1]:,} or more"]
