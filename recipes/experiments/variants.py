"""Networks that differ in one setting, side by side: how they learn, and how well they translate."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from experiments.common import Figures, Settings, Trained, Work, duration, lines_of, translations
from nmt.pictures import plain
from nmt.score import compare
from nmt.search import Greedy

SIGNIFICANT = 0.05
ALIKE = 0.5
"""BLEU. Networks that are no further apart are said to be alike: each is trained once, and another seed may move it so far."""
CERTAINLY = f"by more than {ALIKE:g} BLEU with p < {SIGNIFICANT:g}"
"""What `ahead` asks for."""


class Variant(NamedTuple):
    """A network, how it is named and how it is drawn."""

    name: str
    settings: Settings
    color: str
    style: str


Variants = Mapping[str, Variant]


def measured(work: Work, variants: Variants) -> tuple[Figures, dict[str, list[str]]]:
    """Of each variant its training and its score, compared with that of the first; also its translations of the test set."""
    sources, references = map(lines_of, work.corpus.test)
    trained = {key: work.trained(variant.settings) for key, variant in variants.items()}
    texts = {key: greedy(each, sources) for key, each in trained.items()}
    scores = tested(texts, references)
    return {key: learned(each) | scores[key] for key, each in trained.items()}, texts


def greedy(trained: Trained, sources: Sequence[str]) -> list[str]:
    """Translations by greedy search, which is what validations are."""
    return [each.text for each in translations(trained.translator(), sources, Greedy())]


def learned(trained: Trained) -> dict[str, Any]:
    """A training: its validations, its time, and its speed without these."""
    return {
        "curve": [{name: event[name] for name in ("step", "nll", "ppl", "bleu")} for event in trained.events("valid")],
        "training_seconds": trained.seconds,
        "tokens_per_second": median(event["tokens_per_second"] for event in trained.events("train")),
        "made": trained.made,
    }


def tested(texts: Mapping[str, Sequence[str]], references: Sequence[str]) -> dict[str, dict[str, Any]]:
    """BLEU of each system, and the p-value of its difference to the first."""
    compared = compare(list(texts.values()), [references], ("bleu",))
    return {key: {"bleu": score.value, "p_value": score.p_value} for key, (score,) in zip(texts, compared, strict=True)}


def chosen(found: Figures) -> dict[str, float]:
    """The validation with the best BLEU: that of the model which translates."""
    best: dict[str, float] = max(found["curve"], key=lambda point: point["bleu"])
    return best


def gain(figures: Figures, better: str, worse: str) -> float:
    """In BLEU on the test set."""
    return float(figures[better]["bleu"] - figures[worse]["bleu"])


def speed(figures: Figures, one: str, other: str) -> float | None:
    """Of training, that of the other being 1; None unless both had the same processes, device, versions and commit all the time."""
    made, others = figures[one]["made"], figures[other]["made"]
    # What was stopped and went on elsewhere names both places: A; B.
    if not made or made != others or any("; " in each for each in (made["device"], made["commit"], *made["versions"].values())):
        return None
    return float(figures[one]["tokens_per_second"] / figures[other]["tokens_per_second"])


def ahead(gained: float, p_value: float) -> bool:
    """Whether a gain is more than what another seed may make, and more than what other sentences may."""
    return gained > ALIKE and p_value < SIGNIFICANT


def than(gained: float, p_value: float, name: str) -> str:
    """A gain over the network of that name, in words."""
    figures = f"{gained:+.2f} BLEU, p = {p_value:.3f}"
    if abs(gained) <= ALIKE:
        return f"about as good as {name} ({figures})"
    better = f"{'better' if gained > 0 else 'worse'} than {name}"
    return f"{better} ({figures})" if p_value < SIGNIFICANT else f"perhaps {better}, not certainly ({figures})"


def table(figures: Figures, variants: Variants) -> list[list[str]]:
    first = next(iter(variants))
    rows = [["network", "test BLEU", "p", "validation BLEU", "its perplexity", "target tokens a second", "training"]]
    for key, variant in variants.items():
        found = figures[key]
        p_value = "" if key == first else f"{found['p_value']:.3f}"
        best = chosen(found)
        scores = [f"{found['bleu']:.2f}", p_value, f"{best['bleu']:.2f}", f"{best['ppl']:.2f}"]
        rows.append([variant.name, *scores, f"{found['tokens_per_second']:,.0f}", duration(found["training_seconds"])])
    return rows


def draw(figures: Figures, variants: Variants, figure: Figure) -> None:
    """BLEU and perplexity on the validation set, over updates."""
    left, right = figure.subplots(1, 2)
    for key, variant in variants.items():
        curve = figures[key]["curve"]
        for axes, name in ((left, "bleu"), (right, "ppl")):
            heights = [point[name] for point in curve]
            axes.plot(
                [point["step"] for point in curve], heights, variant.style, color=variant.color, label=variant.name, markersize=4
            )
    right.set_yscale("log")
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for axes, name in ((left, "validation BLEU"), (right, "validation perplexity")):
        axes.set_xlabel("updates")
        axes.set_ylabel(name)
        plain(axes)
    left.legend(frameon=False, fontsize=8)
