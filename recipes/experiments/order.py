"""A Transformer without positions: what it knows of the order of words."""

from collections.abc import Sequence
from random import Random
from typing import Any

from matplotlib.figure import Figure

from experiments.common import TRANSFORMER, Figures, Work, lines_of
from experiments.variants import CERTAINLY, Variant, ahead, greedy, learned, tested
from nmt.pictures import plain
from nmt.score import score

TITLE = "Word order without positions"
CLAIM = (
    "Attention does not see the order of what it looks at: without recurrence or convolution something must tell the network the "
    "positions (Vaswani et al. 2017, arXiv 1706.03762, section 3.5)."
)

NETWORKS = {
    "sinusoidal": Variant("sinusoidal positions", TRANSFORMER, "#0072b2", "o-"),
    "none": Variant("no positions", TRANSFORMER | {"model.positions": "none"}, "#d55e00", "s-"),
}
ORDERS = 4
SAME = 0.95
"""Of the translations: where more are the same, the order of the source was not seen. Sums in another order may round otherwise."""
LOST = 0.1
"""Of what is right: shares left that differ by less are said to be the same."""
TEXTS = {"test": "source as it is", "shuffled": "source words shuffled", "bag": "output words shuffled"}
STYLES = {"test": "-", "shuffled": "--", "bag": ":"}


def measure(work: Work) -> Figures:
    sources, references = map(lines_of, work.corpus.test)
    disordered = shuffled(sources)
    figures: Figures = {}
    translated: dict[str, list[str]] = {}
    for name, network in NETWORKS.items():
        trained = work.trained(network.settings)
        texts = {"test": greedy(trained, sources), "shuffled": greedy(trained, disordered)}
        translated[name] = texts["test"]
        texts["bag"] = shuffled(texts["test"])
        same = sum(one == other for one, other in zip(texts["test"], texts["shuffled"], strict=True))
        scores = {text: scored(lines, references) for text, lines in texts.items()}
        figures[name] = {"texts": scores, "same": same / len(sources), **learned(trained)}
    figures["none"]["p_value"] = tested(translated, references)["none"]["p_value"]
    return figures


def shuffled(lines: Sequence[str]) -> list[str]:
    """The words of each line in an order that is left to chance, the same each time."""
    chance = Random(1)
    return [" ".join(chance.sample(words, len(words))) for words in map(str.split, lines)]


def scored(lines: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU, and the precisions of n-grams that it is made of, in per cent."""
    (found,) = score(lines, [references], ("bleu",))
    return {"bleu": found.value, "precisions": [float(each) for each in found.details.split()[0].split("/")]}


def of(figures: Figures, name: str, text: str) -> dict[str, Any]:
    found: dict[str, Any] = figures[name]["texts"][text]
    return found


def sentence(figures: Figures) -> str:
    said = []
    for name, network in NETWORKS.items():
        found = of(figures, name, "test")
        precisions = found["precisions"]
        said.append(
            f"{network.name.capitalize()}: BLEU {found['bleu']:.2f}, {precisions[0]:.1f} % of the words and "
            f"{precisions[-1]:.1f} % of the {ORDERS}-grams are right; with the source's words shuffled BLEU "
            f"{of(figures, name, 'shuffled')['bleu']:.2f}, and {figures[name]['same']:.0%} of the translations are the same."
        )
    ordered, orderless = (of(figures, name, "test")["precisions"] for name in NETWORKS)
    kept = [each / full if full else 0.0 for full, each in zip(ordered, orderless, strict=True)]
    said.append(
        f"Without positions {kept[0]:.0%} as many words are right as with them, and {kept[-1]:.0%} as many {ORDERS}-grams: "
        f"{'order suffers more than words do' if kept[-1] < kept[0] - LOST else 'order does not suffer more than words do'}."
    )
    gained = of(figures, "sinusoidal", "test")["bleu"] - of(figures, "none", "test")["bleu"]
    p_value = figures["none"]["p_value"]
    unseen, needed = figures["none"]["same"] > SAME, ahead(gained, p_value)
    said.append(
        f"The order of the source {'does not reach' if unseen else 'reaches'} the network without positions "
        f"({'more' if unseen else 'no more'} than {SAME:.0%} of its translations are the same), and positions "
        f"{'help' if needed else 'do not help'} {CERTAINLY} ({gained:+.2f} BLEU, p = {p_value:.3f}): the claim "
        f"{'holds' if unseen and needed else 'does not show'} here."
    )
    bag = of(figures, "none", "bag")["precisions"][-1]
    grams = f"({orderless[-1]:.1f} % of {ORDERS}-grams right; {bag:.1f} % when its words are shuffled)"
    if orderless[-1] >= 2 * bag:
        said.append(
            f"Its own output is in some order all the same {grams}: a decoder that sees only the words before knows which these "
            "are, and from them what may follow."
        )
    else:
        said.append(f"Its own output is not twice as good as it would be with its words shuffled {grams}.")
    return " ".join(said)


def table(figures: Figures) -> list[list[str]]:
    columns = [f"{order}-grams, %" for order in range(1, ORDERS + 1)]
    rows = []
    for name, network in NETWORKS.items():
        for text, what in TEXTS.items():
            found = of(figures, name, text)
            rows.append([network.name, what, f"{found['bleu']:.2f}", *(f"{each:.1f}" for each in found["precisions"])])
    return [["network", "text", "BLEU", *columns], *rows]


def draw(figures: Figures, figure: Figure) -> None:
    axes = figure.subplots()
    orders = range(1, ORDERS + 1)
    for name, network in NETWORKS.items():
        for text, what in TEXTS.items():
            heights = of(figures, name, text)["precisions"]
            label = f"{network.name}, {what}"
            axes.plot(orders, heights, STYLES[text], color=network.color, marker=network.style[0], label=label, markersize=4)
    axes.set_xticks(orders)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("words in a row (n)")
    axes.set_ylabel("right n-grams, per cent")
    plain(axes)
    axes.legend(frameon=False, fontsize=8)
