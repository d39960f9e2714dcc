"""Without attention: the source given to the decoder once, or at every step."""

from matplotlib.figure import Figure

from experiments import variants
from experiments.common import RNN, Figures, Work
from experiments.variants import ALIKE, Variant, ahead, chosen, gain

TITLE = "The source seen once or at every step"
CLAIM = (
    "Without attention the source is one vector: the decoder's first state is made of it, and it is not seen again (Sutskever, "
    "Vinyals, Le 2014, arXiv 1409.3215), or it is an input of every step (Cho et al. 2014, arXiv 1406.1078), so that no state has "
    "to carry it and translations should be better. Neither paper compares the two."
)

PLAIN = RNN | {"model.attention": "none"}
CONTEXTS = {
    "initial": Variant("first state only", PLAIN | {"model.context": "initial"}, "#d55e00", "s-"),
    "every-step": Variant("every step", PLAIN, "#0072b2", "o-"),
}


def measure(work: Work) -> Figures:
    figures, _ = variants.measured(work, CONTEXTS)
    return figures


def sentence(figures: Figures) -> str:
    once, always = figures["initial"], figures["every-step"]
    gained = gain(figures, "every-step", "initial")
    said = (
        f"Seen at every step, the source gives BLEU {always['bleu']:.2f} on the test set, seen once {once['bleu']:.2f} "
        f"({gained:+.2f}, p = {always['p_value']:.3f}); the perplexities on the validation set are {chosen(always)['ppl']:.2f} "
        f"and {chosen(once)['ppl']:.2f}."
    )
    if ahead(gained, always["p_value"]):
        return f"{said} To see the source at every step helps."
    if ahead(-gained, always["p_value"]):
        return f"{said} To see the source at every step harms."
    if abs(gained) <= ALIKE:
        return f"{said} A difference of no more than {ALIKE:g}: it matters little which."
    return f"{said} A difference of more than {ALIKE:g}, but not a certain one: which is better is not known."


def table(figures: Figures) -> list[list[str]]:
    return variants.table(figures, CONTEXTS)


def draw(figures: Figures, figure: Figure) -> None:
    variants.draw(figures, CONTEXTS, figure)
