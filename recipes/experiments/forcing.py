"""Teacher forcing: how often the decoder reads true tokens in training, and not those that it predicted itself."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from experiments import variants
from experiments.common import RNN, Figures, Work, bleu, lines_of, listed
from experiments.variants import ALIKE, CERTAINLY, Variant, ahead, chosen, gain, speed

TITLE = "Teacher forcing"
CLAIM = (
    "A decoder that only ever read true tokens in training meets its own errors in translation for the first time; one that reads "
    "more and more of its own predictions as training goes on translates better (scheduled sampling: Bengio, Vinyals, Jaitly, "
    "Shazeer 2015, arXiv 1506.03099). Errors add up, so that long sentences should gain most."
)

ALWAYS, DECAYING = "1", "decaying"
RATIOS = {
    ALWAYS: Variant("1 (always)", RNN, "#000000", "o-"),
    "0.9": Variant("0.9", RNN | {"train.teacher_forcing": 0.9}, "#0072b2", "s-"),
    "0.75": Variant("0.75", RNN | {"train.teacher_forcing": 0.75}, "#009e73", "^-"),
    "0.5": Variant("0.5", RNN | {"train.teacher_forcing": 0.5}, "#e69f00", "v-"),
    DECAYING: Variant("from 1 down to 0.5", RNN | {"train.teacher_forcing_end": 0.5}, "#d55e00", "D--"),
}


def measure(work: Work) -> Figures:
    figures, texts = variants.measured(work, RATIOS)
    references = lines_of(work.corpus.test[1])
    return {ratio: found | {"halves": halves(texts[ratio], references)} for ratio, found in figures.items()}


def halves(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU of the sentences up to the median length of the references, and of those above it."""
    lengths = [len(line.split()) for line in references]
    middle = median(lengths)

    def of(lines: list[int]) -> float:
        return bleu([hypotheses[line] for line in lines], [references[line] for line in lines])

    short = [line for line, length in enumerate(lengths) if length <= middle]
    return {"words": middle, "short": of(short), "long": of([line for line, length in enumerate(lengths) if length > middle])}


def sentence(figures: Figures) -> str:
    others = [ratio for ratio in RATIOS if ratio != ALWAYS]
    gains = {ratio: (gain(figures, ratio, ALWAYS), figures[ratio]["p_value"]) for ratio in others}
    each = "; ".join(f"{RATIOS[ratio].name} {gained:+.2f} (p = {p_value:.3f})" for ratio, (gained, p_value) in gains.items())
    said = [f"With true tokens at all times the test set has BLEU {figures[ALWAYS]['bleu']:.2f}; at other shares it is: {each}."]
    gained, p_value = gains[DECAYING]
    if ahead(gained, p_value):
        said.append("The share that decays helps, as claimed.")
    elif ahead(-gained, p_value):
        said.append("The share that decays harms: the claim does not show here.")
    elif abs(gained) <= ALIKE:
        said.append(f"The share that decays makes a difference of no more than {ALIKE:g}: the claim does not show here.")
    else:
        said.append(f"Whether the share that decays {'helps' if gained > 0 else 'harms'} is not certain.")
    # The claim does not say which of these is to help: with each more that is tried, one is more likely to do so by chance.
    constant = [ratio for ratio in others if ratio != DECAYING]
    helping = [RATIOS[ratio].name for ratio in constant if ahead(gains[ratio][0], gains[ratio][1] * len(constant))]
    said.append(f"Of the constant shares help {CERTAINLY}, p multiplied by their number: {listed(helping)}.")
    short, long = (figures[DECAYING]["halves"][half] - figures[ALWAYS]["halves"][half] for half in ("short", "long"))
    said.append(
        f"With the share that decays, sentences of more than {figures[ALWAYS]['halves']['words']:g} words change by {long:+.2f}, "
        f"the others by {short:+.2f}; how much of that is chance was not measured."
    )
    forced, sampled = (chosen(figures[ratio])["nll"] for ratio in (ALWAYS, DECAYING))
    factor = speed(figures, DECAYING, ALWAYS)
    said.append(
        f"The validation nll, which true tokens precede, is {sampled:.3f} with it and {forced:.3f} without"
        f"{'' if factor is None else f'; training runs at {factor:.2f} times the speed'}."
    )
    return " ".join(said)


def table(figures: Figures) -> list[list[str]]:
    header, *rows = variants.table(figures, RATIOS)
    found = [figures[ratio]["halves"] for ratio in RATIOS]
    words = f"{found[0]['words']:g}"
    columns = [f"BLEU, up to {words} words", f"BLEU, more than {words}"]
    return [
        [*header, *columns],
        *([*row, f"{each['short']:.2f}", f"{each['long']:.2f}"] for row, each in zip(rows, found, strict=True)),
    ]


def draw(figures: Figures, figure: Figure) -> None:
    variants.draw(figures, RATIOS, figure)
