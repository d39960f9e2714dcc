"""Quality against the size of the beam and the length penalty."""

import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from experiments.common import NETWORKS, RNN, TRANSFORMER, Figures, Settings, Work, bleu, lines_of, listed, translations
from experiments.variants import SIGNIFICANT
from nmt.pictures import plain
from nmt.score import compare
from nmt.search import Beam

TITLE = "Beam sizes and length penalties"
CLAIM = (
    "A beam of 2 gives most of what a beam can give (Sutskever, Vinyals, Le 2014, arXiv 1409.3215); with large beams quality falls "
    "again, for translations get too short (Koehn, Knowles 2017, arXiv 1706.03872); a length penalty helps (Wu et al. 2016, "
    "arXiv 1609.08144)."
)

SIZES = (1, 2, 4, 8, 16, 32, 64)
PENALTIES = (0.0, 0.6, 1.0, 1.5)
USUAL, USUAL_PENALTY = 4, 0.6
"""What others are compared with, or is compared itself: chosen beforehand, since the best of many is so by chance too."""
STYLES = {0.0: ("#d55e00", "o-"), 0.6: ("#e69f00", "s-"), 1.0: ("#009e73", "^-"), 1.5: ("#0072b2", "v-")}

Runs = list[dict[str, Any]]
"""One for each size and penalty; of size 1, which is greedy search and has nothing to rank, one only."""


def measure(work: Work) -> Figures:
    sources, references = map(lines_of, work.corpus.test)
    sizes = SIZES[:4] if work.small else SIZES
    return {
        "sentences": len(sources),
        "networks": {
            settings["model.backend"]: network(work, settings, sources, references, sizes) for settings in (TRANSFORMER, RNN)
        },
    }


def network(
    work: Work, settings: Settings, sources: Sequence[str], references: Sequence[str], sizes: Sequence[int]
) -> dict[str, Any]:
    """All runs of one network, and the differences that the claims speak of."""
    translator = work.trained(settings).translator()
    runs: Runs = []
    texts: dict[tuple[int, float], list[str]] = {}
    for size in sizes:
        for penalty in PENALTIES if size > 1 else PENALTIES[:1]:
            began = time.monotonic()
            found = translations(translator, sources, Beam(size, penalty))
            seconds = time.monotonic() - began
            texts[size, penalty] = [each.text for each in found]
            runs.append(
                {
                    "size": size,
                    "penalty": penalty,
                    "bleu": bleu(texts[size, penalty], references),
                    "length_ratio": length_ratio(texts[size, penalty], references),
                    "log_prob": fmean(each.hypotheses[0].log_prob for each in found),
                    "seconds": seconds,
                }
            )

    def difference(one: tuple[int, float], other: tuple[int, float]) -> dict[str, Any]:
        before, after = (scores[0] for scores in compare([texts[one], texts[other]], [references], ("bleu",)))
        return {"from": one, "to": other, "bleu": after.value - before.value, "p_value": after.p_value}

    return {
        "runs": runs,
        "beam_2": difference((1, 0.0), (2, 0.0)),
        "usual_beam": difference((1, 0.0), (USUAL, 0.0)),
        "largest_beam": difference((USUAL, 0.0), (sizes[-1], 0.0)),
        "penalty": difference((USUAL, 0.0), (USUAL, USUAL_PENALTY)),
    }


def length_ratio(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Words of the translations for each word of the references."""
    ours, theirs = (sum(len(line.split()) for line in lines) for lines in (hypotheses, references))
    return ours / theirs


def helps(difference: dict[str, Any]) -> bool:
    return bool(difference["bleu"] > 0 and difference["p_value"] < SIGNIFICANT)


def harms(difference: dict[str, Any]) -> bool:
    return bool(difference["bleu"] < 0 and difference["p_value"] < SIGNIFICANT)


def two_suffice(found: dict[str, Any]) -> bool:
    """Beam 2 gives something, and at least half of what the usual one gives."""
    return helps(found["beam_2"]) and found["beam_2"]["bleu"] >= found["usual_beam"]["bleu"] / 2


def told(difference: dict[str, Any]) -> str:
    return f"{difference['bleu']:+.2f} BLEU (p = {difference['p_value']:.3f})"


def of_network(name: str, found: dict[str, Any]) -> str:
    """What came out for one network."""
    ratios = {(run["size"], run["penalty"]): run["length_ratio"] for run in found["runs"]}
    largest = found["largest_beam"]["to"][0]
    return (
        f"{name}: over greedy search beam 2 gives {told(found['beam_2'])} and beam {USUAL} {told(found['usual_beam'])}; from there "
        f"to beam {largest} it is {told(found['largest_beam'])}, and the length ratio {ratios[largest, 0.0]:.3f} instead of "
        f"{ratios[USUAL, 0.0]:.3f}; at beam {USUAL} a penalty of {USUAL_PENALTY:g} gives {told(found['penalty'])}."
    )


CLAIMS: dict[str, Callable[[dict[str, Any]], bool]] = {
    f"beam 2 helps, and at least half as much as beam {USUAL}": two_suffice,
    f"the largest beam is worse than beam {USUAL}": lambda found: harms(found["largest_beam"]),
    "the length penalty helps": lambda found: helps(found["penalty"]),
}


def sentence(figures: Figures) -> str:
    networks = {NETWORKS[name].name: found for name, found in figures["networks"].items()}
    said = [of_network(name, found) for name, found in networks.items()]
    holding = "; ".join(
        f"{claim}: {listed([name for name, found in networks.items() if holds(found)])}" for claim, holds in CLAIMS.items()
    )
    return " ".join([*said, f"With p < {SIGNIFICANT:g}, where what is compared was chosen beforehand, {holding}."])


def table(figures: Figures) -> list[list[str]]:
    columns = [*(f"BLEU, penalty {penalty:g}" for penalty in PENALTIES), "length ratio", "log-probability", "seconds"]
    rows = []
    for name, found in figures["networks"].items():
        for size in sorted({run["size"] for run in found["runs"]}):
            of_size = [run for run in found["runs"] if run["size"] == size]
            plain_run = of_size[0]  # without a penalty
            scores = [f"{run['bleu']:.2f}" for run in of_size] + [""] * (len(PENALTIES) - len(of_size))
            others = [f"{plain_run['length_ratio']:.3f}", f"{plain_run['log_prob']:.2f}", f"{plain_run['seconds']:.1f}"]
            rows.append([NETWORKS[name].name, f"{size}", *scores, *others])
    return [["network", "beam", *columns], *rows]


def draw(figures: Figures, figure: Figure) -> None:
    networks = figures["networks"]
    figure.set_size_inches(6.4, 5.6)
    grid = figure.subplots(2, len(networks), sharex=True, sharey="row", squeeze=False)
    for column, (name, found) in zip(grid.T, networks.items(), strict=True):
        for penalty in PENALTIES:
            # Greedy search is where all penalties begin.
            runs = [run for run in found["runs"] if run["penalty"] == penalty or run["size"] == 1]
            color, style = STYLES[penalty]
            for axes, figure_name in zip(column, ("bleu", "length_ratio"), strict=True):
                heights = [run[figure_name] for run in runs]
                axes.plot([run["size"] for run in runs], heights, style, color=color, label=f"penalty {penalty:g}", markersize=4)
        for axes in column:
            axes.set_xscale("log", base=2)
            axes.set_xticks(sorted({run["size"] for run in found["runs"]}))
            plain(axes)
        column[0].set_title(NETWORKS[name].name, fontsize=10)
        column[1].set_xlabel("beam")
    grid[0, 0].set_ylabel("BLEU")
    grid[1, 0].set_ylabel("words, references = 1")
    grid[1, 0].legend(frameon=False, fontsize=8)
