"""The four scores of an attention: what the decoder's state and an encoder's state make of each other."""

from matplotlib.figure import Figure

from experiments import variants
from experiments.common import RNN, Figures, Work, listed
from experiments.variants import ALIKE, Variant, ahead, gain, than

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
    figures, _ = variants.measured(work, SCORES)
    return figures


def better(figures: Figures, score: str) -> bool:
    """Than the additive one."""
    return ahead(gain(figures, score, ADDITIVE), figures[score]["p_value"])


def speed(figures: Figures, score: str) -> float:
    """Of training, that with the additive score is 1."""
    return float(figures[score]["tokens_per_second"] / figures[ADDITIVE]["tokens_per_second"])


def sentence(figures: Figures) -> str:
    said = [f"With the additive score the test set has BLEU {figures[ADDITIVE]['bleu']:.2f}."]
    for score, variant in SCORES.items():
        if score != ADDITIVE:
            about = f"{than(gain(figures, score, ADDITIVE), 'that')}, p = {figures[score]['p_value']:.3f}"
            said.append(f"The {variant.name} is {about}, at {speed(figures, score):.2f} times the speed of training.")
    luong = [SCORES[score].name for score in ("dot", "bilinear") if better(figures, score)]
    said.append(
        f"Better than the additive score {'is' if len(luong) < 2 else 'are'}: {' and '.join(luong) or 'neither of the two'}."
    )
    scaling = gain(figures, "scaled-dot", "dot")
    if ahead(-gain(figures, "dot", ADDITIVE), figures["dot"]["p_value"]):
        helped = "and scaling helps" if scaling > ALIKE else "but scaling does not help"
        said.append(f"The plain dot product falls behind, {helped} ({scaling:+.2f}).")
    else:
        said.append(f"The plain dot product does not fall behind; scaling changes it by {scaling:+.2f}.")
    faster = [SCORES[score].name for score in SCORES if score != ADDITIVE and speed(figures, score) > FASTER]
    said.append(f"Faster than the additive score here {'is' if len(faster) < 2 else 'are'}: {listed(faster)}.")
    return " ".join(said)


def table(figures: Figures) -> list[list[str]]:
    return variants.table(figures, SCORES)


def draw(figures: Figures, figure: Figure) -> None:
    variants.draw(figures, SCORES, figure)
