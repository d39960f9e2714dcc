"""Diversity of samples against their quality: temperature, top-k, top-p and min-p."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.common import TRANSFORMER, Figures, Work, bleu, lines_of, translations
from nmt.pictures import plain
from nmt.score import score
from nmt.search import Sampling
from nmt.translate import Translator

TITLE = "Sampling: diversity against quality"
CLAIM = (
    "To draw from the k most probable tokens gives varied and good text (top-k: Fan, Lewis, Dauphin 2018, arXiv 1805.04833); to "
    "draw from the most probable ones that make up p gives a better balance of diversity and quality than top-k or a temperature "
    "(top-p: Holtzman et al. 2019, arXiv 1904.09751). Both speak of stories, where many a continuation is right."
)

METHODS: dict[str, tuple[float, ...]] = {
    "temperature": (0.2, 0.4, 0.6, 0.8, 1.2),
    "top_k": (2, 5, 10, 20, 50),
    "top_p": (0.95, 0.9, 0.8, 0.7, 0.5),
    "min_p": (0.02, 0.05, 0.1, 0.2, 0.5),
}
NAMES = {"temperature": "temperature", "top_k": "top-k", "top_p": "top-p", "min_p": "min-p"}
STYLES = {"temperature": ("#000000", "o-"), "top_k": ("#d55e00", "s-"), "top_p": ("#0072b2", "^-"), "min_p": ("#009e73", "v-")}
SAMPLES = 5
"""A line."""
LEVELS = (0.25, 0.5, 0.75)
"""Where methods are compared: of the way in BLEU from pure sampling to greedy search, in which all methods end."""
ALIKE = 1.0
"""Diversities that are no further apart are said to be alike."""


def measure(work: Work) -> Figures:
    sources, references = map(lines_of, work.corpus.test)
    translator = work.trained(TRANSFORMER).translator()
    methods = {name: values[:2] for name, values in METHODS.items()} if work.small else METHODS
    return {
        "sentences": len(sources),
        "samples": SAMPLES,
        "greedy": drawn(translator, sources, references, Sampling(temperature=0, samples=SAMPLES)),
        "pure": drawn(translator, sources, references, Sampling(samples=SAMPLES)),
        "methods": {
            name: [{"value": value, **drawn(translator, sources, references, chosen(name, value))} for value in values]
            for name, values in methods.items()
        },
    }


def chosen(method: str, value: float) -> Sampling:
    """The search with one option of this value."""
    if method == "temperature":
        return Sampling(temperature=value, samples=SAMPLES)
    if method == "top_k":
        return Sampling(top_k=int(value), samples=SAMPLES)
    if method == "top_p":
        return Sampling(top_p=value, samples=SAMPLES)
    return Sampling(min_p=value, samples=SAMPLES)


def drawn(translator: Translator, sources: Sequence[str], references: Sequence[str], search: Sampling) -> dict[str, float]:
    """Quality and diversity of the samples of all lines."""
    found = translations(translator, sources, search, n_best=SAMPLES)
    # They come best first, so that the first of each line would be better than a sample is: all count alike.
    samples = list(zip(*([each.text for each in line.hypotheses] for line in found), strict=True))
    others = [[*samples[:number], *samples[number + 1 :]] for number in range(SAMPLES)]
    return {
        "bleu": bleu([text for sample in samples for text in sample], [*references] * SAMPLES),
        "self_bleu": fmean(score(sample, rest, ("bleu",))[0].value for sample, rest in zip(samples, others, strict=True)),
        "distinct_bigrams": distinct([[each.text for each in line.hypotheses] for line in found]),
    }


def distinct(lines: Sequence[Sequence[str]]) -> float:
    """Of the pairs of neighbouring words in the samples of a line, the share that is left when each counts once a line."""
    pairs = [[pair for text in samples for pair in pairwise(text.split())] for samples in lines]
    return sum(len(set(each)) for each in pairs) / max(1, sum(map(len, pairs)))


def diversity(point: dict[str, float]) -> float:
    """100 - self-BLEU (Zhu et al. 2018, arXiv 1802.01886): 0 where all samples of a line are the same."""
    return max(0.0, 100 - point["self_bleu"])  # BLEU of equal texts is 100 but for rounding


def curve(figures: Figures, method: str) -> list[dict[str, float]]:
    """The points of a method and its two ends, by BLEU."""
    return sorted([figures["pure"], *figures["methods"][method], figures["greedy"]], key=lambda point: point["bleu"])


def level(figures: Figures, share: float) -> float:
    """The BLEU so far on the way from pure sampling to greedy search."""
    low, high = figures["pure"]["bleu"], figures["greedy"]["bleu"]
    return float(low + share * (high - low))


def diversity_at(figures: Figures, method: str, quality: float) -> float:
    """Between the two nearest points of the method, on a straight line."""
    points = curve(figures, method)
    return float(np.interp(quality, [point["bleu"] for point in points], [diversity(point) for point in points]))


def sentence(figures: Figures) -> str:
    greedy, pure = figures["greedy"], figures["pure"]
    if greedy["bleu"] <= pure["bleu"]:
        return f"Greedy search (BLEU {greedy['bleu']:.1f}) is no better than pure samples ({pure['bleu']:.1f}): nothing to compare."
    said = [
        f"Greedy search has BLEU {greedy['bleu']:.1f}; pure samples have {pure['bleu']:.1f}, and a diversity (100 - self-BLEU) of "
        f"{diversity(pure):.1f}."
    ]
    ahead = 0
    for share in LEVELS:
        quality = level(figures, share)
        found = {method: diversity_at(figures, method, quality) for method in figures["methods"]}
        ranked = sorted(found, key=lambda method: -found[method])
        listing = ", ".join(f"{NAMES[method]} {found[method]:.1f}" for method in ranked)
        said.append(f"At BLEU {quality:.1f} the diversities are: {listing}.")
        ahead += found["top_p"] > max(found["top_k"], found["temperature"]) + ALIKE
    means = {method: fmean(diversity_at(figures, method, level(figures, each)) for each in LEVELS) for method in figures["methods"]}
    best, second = sorted(means, key=lambda method: -means[method])[:2]
    if means[best] > means[second] + ALIKE:
        said.append(f"On the whole {NAMES[best]} gives most diversity at a given BLEU.")
    else:
        said.append(f"On the whole no method gives most diversity: {NAMES[best]} and {NAMES[second]} are within {ALIKE:g}.")
    verdict = {0: "at none", len(LEVELS): "at each"}.get(ahead, f"at {ahead}")
    said.append(f"Top-p is ahead of both top-k and a temperature by more than {ALIKE:g} {verdict} of the {len(LEVELS)} points.")
    return " ".join(said)


def table(figures: Figures) -> list[list[str]]:
    def row(name: str, value: str, point: dict[str, Any]) -> list[str]:
        return [name, value, f"{point['bleu']:.2f}", f"{diversity(point):.2f}", f"{point['distinct_bigrams']:.3f}"]

    rows = [row(NAMES[name], f"{point['value']:g}", point) for name, points in figures["methods"].items() for point in points]
    ends = [row("greedy search", "", figures["greedy"]), row("pure sampling", "", figures["pure"])]
    return [["method", "value", "BLEU of samples", "100 - self-BLEU", "distinct bigrams"], *ends, *rows]


def draw(figures: Figures, figure: Figure) -> None:
    axes = figure.subplots()
    for method in figures["methods"]:
        points = curve(figures, method)
        color, style = STYLES[method]
        heights = [point["bleu"] for point in points]
        axes.plot([diversity(point) for point in points], heights, style, color=color, label=NAMES[method], markersize=4)
    axes.set_xlabel(f"diversity of {figures['samples']} samples, 100 - self-BLEU")
    axes.set_ylabel("BLEU of samples")
    plain(axes)
    axes.legend(frameon=False)
