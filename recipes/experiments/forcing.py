"""Teacher forcing: how often the decoder reads true tokens in training, and not those that it predicted itself."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from experiments import variants
from experiments.common import RNN, Figures, Work, bleu, lines_of, listed
from experiments.variants import ALIKE, Variant, ahead, chosen, gain

TITLE = "Teacher forcing"
CLAIM = (
    "A decoder that only ever read true tokens in training meets its own errors in translation for the first time; one that reads "
    "more and more of its own predictions as training goes on translates better (scheduled sampling: Bengio, Vinyals, Jaitly, "
    "Shazeer 2015, arXiv 1506.03099). Errors add up, so that long sentences should gain most."
)

ALWAYS = "1"
RATIOS = {
    ALWAYS: Variant("1 (always)", RNN, "#000000", "o-"),
    "0.9": Variant("0.9", RNN | {"train.teacher_forcing": 0.9}, "#0072b2", "s-"),
    "0.75": Variant("0.75", RNN | {"train.teacher_forcing": 0.75}, "#009e73", "^-"),
    "0.5": Variant("0.5", RNN | {"train.teacher_forcing": 0.5}, "#e69f00", "v-"),
    "decaying": Variant("from 1 down to 0.5", RNN | {"train.teacher_forcing_end": 0.5}, "#d55e00", "D--"),
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


def gain_of(figures: Figures, ratio: str, half: str) -> float:
    """Over teacher forcing at all times, in the short or the long sentences."""
    return float(figures[ratio]["halves"][half] - figures[ALWAYS]["halves"][half])


def sentence(figures: Figures) -> str:
    others = [ratio for ratio in RATIOS if ratio != ALWAYS]
    each = "; ".join(
        f"{RATIOS[ratio].name} {gain(figures, ratio, ALWAYS):+.2f} (p = {figures[ratio]['p_value']:.3f})" for ratio in others
    )
    said = [f"With true tokens at all times the test set has BLEU {figures[ALWAYS]['bleu']:.2f}; at other shares it is: {each}."]

    def helps(ratio: str) -> bool:
        return ahead(gain(figures, ratio, ALWAYS), figures[ratio]["p_value"])

    best = max(others, key=lambda ratio: float(figures[ratio]["bleu"]))
    if helps("decaying"):
        said.append("The share that decays helps, as claimed.")
    else:
        helping = [RATIOS[ratio].name for ratio in others if helps(ratio)]
        constant = f"but {listed(helping)} {'does' if len(helping) == 1 else 'do'}" if helping else "nor does any other"
        said.append(f"The share that decays does not help by more than {ALIKE:g} BLEU that are certain, {constant}.")
    short, long = gain_of(figures, best, "short"), gain_of(figures, best, "long")
    if abs(long - short) > ALIKE:
        verdict = f"long ones fare {'better' if long > short else 'worse'} than short ones"
    else:
        verdict = f"no difference of more than {ALIKE:g}"
    said.append(
        f"With the best of them, {RATIOS[best].name}, sentences of more than {figures[best]['halves']['words']:g} words change by "
        f"{long:+.2f}, the others by {short:+.2f}: {verdict}."
    )
    forced, sampled = chosen(figures[ALWAYS])["nll"], chosen(figures[best])["nll"]
    said.append(
        f"The validation nll, which true tokens precede, is {sampled:.3f} with it and {forced:.3f} without; "
        f"training runs at {figures[best]['tokens_per_second'] / figures[ALWAYS]['tokens_per_second']:.2f} times the speed."
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
