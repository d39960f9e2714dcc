"""Quality against the length of the source, with and without attention."""

from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from experiments.common import RNN, Corpus, Figures, Work, bleu, lines_of
from experiments.joined import evenly, mixture
from experiments.variants import ALIKE, Variant, greedy, learned
from nmt.pictures import plain

TITLE = "Length of the source, with and without attention"
CLAIM = (
    "A network that keeps the whole source in one vector gets worse as sentences get longer; one with attention does not "
    "(Bahdanau, Cho, Bengio 2014, arXiv 1409.0473, figure 2). Multi30k's sentences are short, so here 1 to 4 pairs are one line in "
    "training, and the same test pairs are translated one, two or more to a line: only the length differs."
)

MOST = 4
"""Pairs in a line of the training text."""
PAIRS = (1, 2, 3, 4, 6, 8)
"""In a line of the test text."""
NETWORKS = {
    "attention": Variant("with attention", RNN, "#0072b2", "o-"),
    "none": Variant("without attention", RNN | {"model.attention": "none"}, "#d55e00", "s--"),
}


def measure(work: Work) -> Figures:
    text = work.folder / "joined"
    corpus = Corpus(mixture(work.corpus.train, MOST, text), mixture(work.corpus.valid, MOST, text), work.corpus.test)
    sources, references = map(lines_of, work.corpus.test)
    figures: Figures = {}
    for name, network in NETWORKS.items():
        trained = work.trained(network.settings, corpus)
        points: list[dict[str, Any]] = []
        for pairs in PAIRS:
            lines = evenly(sources, pairs)
            score = bleu(greedy(trained, lines), evenly(references, pairs))
            points.append({"pairs": pairs, "words": fmean(len(line.split()) for line in lines), "bleu": score})
        figures[name] = {"points": points, **learned(trained)}
    return figures


def point(figures: Figures, name: str, pairs: int) -> dict[str, float]:
    """What a network makes of so many pairs in a line."""
    found: dict[str, float] = next(each for each in figures[name]["points"] if each["pairs"] == pairs)
    return found


def change(figures: Figures, name: str, pairs: int) -> float:
    """Of BLEU, from one pair in a line to so many."""
    return point(figures, name, pairs)["bleu"] - point(figures, name, 1)["bleu"]


def sentence(figures: Figures) -> str:
    begin, end, beyond = (point(figures, "attention", pairs)["words"] for pairs in (1, MOST, PAIRS[-1]))
    said = [
        f"A line of the test set has {begin:.0f} words on average, one of {MOST} pairs, as many as a line of training has at most, "
        f"{end:.0f}, one of {PAIRS[-1]} pairs {beyond:.0f}."
    ]
    for name, network in NETWORKS.items():
        scores = [point(figures, name, pairs)["bleu"] for pairs in (1, MOST, PAIRS[-1])]
        said.append(
            f"{network.name.capitalize()} BLEU goes from {scores[0]:.1f} with one pair a line to {scores[1]:.1f} with {MOST} "
            f"({change(figures, name, MOST):+.1f}); with {PAIRS[-1]} it is {scores[2]:.1f}."
        )
    with_attention, without = (change(figures, name, MOST) for name in NETWORKS)
    if without >= -ALIKE:
        verdict = "not without attention: the claim does not show here"
    elif without >= with_attention - ALIKE:
        verdict = f"without attention, but the change with it is within {ALIKE:g} of that or worse: the claim does not show here"
    elif with_attention < -ALIKE:
        verdict = f"without attention and with it, but with it by more than {ALIKE:g} less: the claim shows in part"
    else:
        verdict = "without attention and not with it: the claim holds here"
    return " ".join([*said, f"From 1 to {MOST} pairs BLEU falls by more than {ALIKE:g} {verdict}."])


def table(figures: Figures) -> list[list[str]]:
    header = ["pairs a line", "source words a line", *(f"BLEU {network.name}" for network in NETWORKS.values())]
    rows = []
    for pairs in PAIRS:
        found = [point(figures, name, pairs) for name in NETWORKS]
        rows.append([f"{pairs}", f"{found[0]['words']:.1f}", *(f"{each['bleu']:.2f}" for each in found)])
    return [header, *rows]


def draw(figures: Figures, figure: Figure) -> None:
    axes = figure.subplots()
    for name, network in NETWORKS.items():
        points = figures[name]["points"]
        words = [each["words"] for each in points]
        axes.plot(words, [each["bleu"] for each in points], network.style, color=network.color, label=network.name, markersize=5)
    axes.axvline(
        point(figures, "attention", MOST)["words"], color="#555555", linestyle=":", label=f"{MOST} pairs, the most in training"
    )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("source words a line, mean")
    axes.set_ylabel("BLEU of the test set")
    plain(axes)
    axes.legend(frameon=False, fontsize=8)
