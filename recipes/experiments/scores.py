"""The four scores of an attention: what the decoder's state and an encoder's state make of each other."""

from matplotlib.figure import Figure

from experiments import variants
from experiments.common import RNN, Figures, Work, lines_of, listed
from experiments.variants import ALIKE, CERTAINLY, Variant, ahead, gain, speed, than

TITLE = "Four scores of attention"
CLAIM = (
    "A bilinear score or a plain dot product does better than an additive one (Luong, Pham, Manning 2015, arXiv 1508.04025); a dot "
    "product is faster, but where vectors are long it falls behind the additive score unless it is scaled (Vaswani et al. 2017, "
    "arXiv 1706.03762, section 3.2.1)."
)

ADDITIVE = "additive"
SCORES = {
    ADDITIVE: Variant("additive score", RNN, "#000000", "o-"),
    "dot": Variant("dot product", RNN | {"model.attention": "dot"}, "#d55e00", "s-"),
    "bilinear": Variant("bilinear score", RNN | {"model.attention": "bilinear"}, "#0072b2", "^-"),
    "scaled-dot": Variant("scaled dot product", RNN | {"model.attention": "scaled-dot"}, "#009e73", "v-"),
}
FASTER = 1.05
"""Speeds that differ by a smaller factor are said to be the same."""


def measure(work: Work) -> Figures:
    figures, texts = variants.measured(work, SCORES)
    scaling = variants.tested({score: texts[score] for score in ("dot", "scaled-dot")}, lines_of(work.corpus.test[1]))
    return figures | {"scaling": scaling["scaled-dot"]}


def sentence(figures: Figures) -> str:
    others = [score for score in SCORES if score != ADDITIVE]
    gains = {score: (gain(figures, score, ADDITIVE), figures[score]["p_value"]) for score in others}
    said = [f"With the additive score the test set has BLEU {figures[ADDITIVE]['bleu']:.2f}."]
    said += [f"The {SCORES[score].name} is {than(*gains[score], 'that')}." for score in others]
    luong = [SCORES[score].name for score in ("dot", "bilinear") if ahead(*gains[score])]
    said.append(f"Of the plain dot product and the bilinear score, better than the additive one {CERTAINLY}: {listed(luong)}.")
    gained, p_value = gains["dot"]
    if ahead(-gained, p_value):
        behind = "falls behind"
    elif gained < -ALIKE:
        behind = "may fall behind, which is not certain"
    else:
        behind = f"does not fall behind by more than {ALIKE:g}"
    scaled = than(gain(figures, "scaled-dot", "dot"), figures["scaling"]["p_value"], "plain")
    said.append(f"The plain dot product {behind}; scaled it is {scaled}.")
    speeds = {SCORES[score].name: factor for score in others if (factor := speed(figures, score, ADDITIVE)) is not None}
    if len(speeds) == len(others):
        each = ", ".join(f"{name} {factor:.2f}" for name, factor in speeds.items())
        faster = listed([name for name, factor in speeds.items() if factor > FASTER])
        said.append(f"Speed of training, with the additive score 1: {each}; faster by a factor of more than {FASTER:g}: {faster}.")
    else:
        said.append("Speeds are not compared: not all trainings are known to have had the same processes, device and code.")
    return " ".join(said)


def table(figures: Figures) -> list[list[str]]:
    return variants.table(figures, SCORES)


def draw(figures: Figures, figure: Figure) -> None:
    variants.draw(figures, SCORES, figure)
