"""The cost of a decoding step against the length of the translation, with and without the decoder's cache."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from steps import output

from experiments.common import NETWORKS, RNN, TRANSFORMER, Figures, Work, assignments, listed
from nmt.pictures import plain

TITLE = "Decoding with and without a cache"
CLAIM = (
    "A decoder that keeps what it computed of earlier positions computes one position a step; one that keeps nothing computes the "
    "whole prefix again, so that the cost of its step grows with the length (Vaswani et al. 2017, arXiv 1706.03762, table 1: "
    "n² · d a layer of self-attention, n · d² a layer of a recurrent network)."
)

LENGTHS = (1, 32, 64, 96, 128, 160, 192, 224, 256)
FITTED_FROM = 32
"""Growth is fitted from here on: in shorter prefixes the fixed cost of a step hides it."""
FLAT = 0.2
"""The exponent below which a cost is said hardly to grow."""
IN_PROPORTION = 0.8
"""The exponent from which on it is said to grow in proportion to the length, or faster."""
WAYS = {"without_cache": ("without cache", "s--"), "with_cache": ("with cache", "o-")}


def measure(work: Work) -> Figures:
    curve = f"decoding={','.join(map(str, (1, 4, 8) if work.small else LENGTHS))}"
    length = ["--seconds", "0", "--warmup", "0", "--batch-tokens", "64"] if work.small else []
    command = ["nmt", "bench", "--curve", curve, "--format", "json", "--quiet", *length]
    return {
        settings["model.backend"]: json.loads(output([*command, *assignments(work.sized(settings), "model")]))
        for settings in (TRANSFORMER, RNN)
    }


def steps(found: dict[str, Any], way: str) -> list[float]:
    """Milliseconds of the step at each length."""
    return [point[way]["milliseconds"]["median"] for point in found["points"]]


def lengths(found: dict[str, Any]) -> list[int]:
    return [point["at"] for point in found["points"]]


def totals(found: dict[str, Any], way: str) -> list[float]:
    """Seconds of all steps up to each length: each step costs what a straight line from the length before says."""
    costs = list(zip(lengths(found), steps(found, way), strict=True))
    milliseconds = [costs[0][0] * costs[0][1]]
    for (begin, low), (end, high) in pairwise(costs):
        milliseconds.append(milliseconds[-1] + (end - begin) * (low + high) / 2)
    return [each / 1000 for each in milliseconds]


def growth(found: dict[str, Any], way: str) -> float:
    """The exponent p of cost ~ length^p, by least squares of the logarithms."""
    costs = zip(lengths(found), steps(found, way), strict=True)
    fitted = [(at, cost) for at, cost in costs if at >= min(FITTED_FROM, lengths(found)[-2])]
    at, cost = np.log(np.array(fitted)).T
    return float(np.polyfit(at, cost, 1)[0])


def in_words(exponent: float) -> str:
    if exponent < FLAT:
        return "hardly grows with the length"
    if exponent < IN_PROPORTION:
        return "grows with the length, but less than in proportion"
    return "grows in proportion to the length" if exponent <= 1.2 else "grows faster than in proportion to the length"


def holds(found: dict[str, Any]) -> bool:
    """A step grows at least in proportion without the cache, and less than that with it, as attention to the prefix still does."""
    return growth(found, "with_cache") < IN_PROPORTION <= growth(found, "without_cache")


def sentence(figures: Figures) -> str:
    said = []
    for name, found in figures.items():
        without, cached = growth(found, "without_cache"), growth(found, "with_cache")
        last = found["points"][-1]
        whole = totals(found, "without_cache")[-1] / totals(found, "with_cache")[-1]
        said.append(
            f"{NETWORKS[name].name}: without the cache a step {in_words(without)} (length^{without:.2f}), "
            f"with it it {in_words(cached)} (length^{cached:.2f}); at {last['at']} subwords a step without it takes "
            f"{last['times_as_long']:.1f} times as long, and the whole translation {whole:.1f} times."
        )
    holding = [NETWORKS[name].name for name, found in figures.items() if holds(found)]
    if len(holding) == len(figures):
        return " ".join([*said, "The claim holds here."])
    return " ".join([*said, f"The claim holds here for {listed(holding)} only." if holding else "The claim does not hold here."])


def table(figures: Figures) -> list[list[str]]:
    columns = [f"{NETWORKS[name].name} {said}, ms" for name in figures for said, _ in WAYS.values()]
    costs = [steps(found, way) for found in figures.values() for way in WAYS]
    at = lengths(next(iter(figures.values())))
    rows = [[f"{length}", *(f"{each[number]:.2f}" for each in costs)] for number, length in enumerate(at)]
    return [["target length", *columns], *rows]


def draw(figures: Figures, figure: Figure) -> None:
    left, right = figure.subplots(1, 2)
    for name, found in figures.items():
        network, color = NETWORKS[name]
        for way, (said, style) in WAYS.items():
            how: dict[str, Any] = {"color": color, "label": f"{network} {said}", "markersize": 4}
            left.plot(lengths(found), steps(found, way), style, **how)
            right.plot(lengths(found), totals(found, way), style, **how)
    left.set_ylabel("a step, milliseconds")
    right.set_ylabel("all steps up to it, seconds")
    for axes in (left, right):
        axes.set_xlabel("target length, subwords")
        axes.set_ylim(bottom=0)
        plain(axes)
    left.legend(frameon=False, fontsize=8)
