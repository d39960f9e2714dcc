"""BLEU, chrF and TER of detokenised text, and the significance of differences: sacreBLEU's (Post 2018, arXiv 1804.08771).

On a CPU sacreBLEU itself scores a text. For several, for resamples and on a GPU sentences are counted here, which gives the same
numbers sooner. sacreBLEU is imported when something is scored, not before: nothing else here needs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nmt import significance
from nmt.arrays import Arrays
from nmt.data.text import check_counts
from nmt.errors import NmtError, UsageError
from nmt.measures import Lines, measure, statistics
from nmt.significance import SEED
from nmt.workers import cores

Reference = Sequence[str | None]
"""The lines of one reference; None where a line has fewer references than others."""


@dataclass(frozen=True)
class Score:
    """One metric of one system."""

    name: str
    """As sacreBLEU prints it: BLEU, chrF2, chrF2++, TER."""
    value: float
    """0 to 100; for TER less is better, and more than 100 is possible."""
    signature: str
    """What else must be equal for two numbers to be comparable."""
    details: str
    """Precisions, brevity penalty and lengths of BLEU; empty for the others."""
    mean: float | None = None
    """Of the bootstrap resamples, where asked for."""
    interval: float | None = None
    """Half the width of the 95 % confidence interval around `mean`."""
    p_value: float | None = None
    """Of the difference to the baseline, the first of several systems."""
    identical: bool = False
    """Every sentence counts as the baseline's does: `p_value` is 1."""


def score(
    hypotheses: Sequence[str],
    references: Sequence[Reference],
    metrics: Sequence[str] = ("bleu", "chrf"),
    tokenize: str | None = None,
    lowercase: bool = False,
    target_lang: str | None = None,
    bootstrap: int = 0,
    device: str = "cpu",
) -> list[Score]:
    """A score for each of `metrics`, in their order: number and signature are those of sacreBLEU's command, to the last digit.

    `references` holds one list of lines for each reference. `tokenize` is BLEU's (None: what suits `target_lang`),
    `lowercase` is BLEU's and chrF's (TER always ignores case). `bootstrap` resamples give mean and interval. BLEU and chrF are
    computed on `device`. Raises `NmtError` for unequal line counts or none, `UsageError` for names that sacreBLEU does not know.
    """
    if bootstrap or device != "cpu":
        how = (metrics, tokenize, lowercase, target_lang, bootstrap)
        return compare([hypotheses], references, *how, device=device)[0]
    lines = checked([hypotheses], references)
    scores = []
    for name in metrics:
        metric: Any = measure(name, tokenize, lowercase, target_lang).metric
        found = metric.corpus_score(lines.systems[0], lines.references)
        scores.append(Score(found.name, found.score, metric.get_signature().format(), found._verbose))
    return scores


def compare(
    systems: Sequence[Sequence[str]],
    references: Sequence[Reference],
    metrics: Sequence[str] = ("bleu", "chrf"),
    tokenize: str | None = None,
    lowercase: bool = False,
    target_lang: str | None = None,
    bootstrap: int = 1000,
    randomization: int = 0,
    seed: int = SEED,
    device: str = "cpu",
    processes: int | None = None,
) -> list[list[Score]]:
    """The scores of each system, with p-values of every system against the first, the baseline.

    They are those of paired `bootstrap` resamples, or of `randomization` trials where there are any; seed and numbers stand in the
    signature. `processes` (None: one a core) prepare text and count. Other parameters and errors as in `score`.
    """
    lines = checked(systems, references)
    arrays = Arrays.on(None if device == "cpu" else device)
    measures = [measure(name, tokenize, lowercase, target_lang) for name in metrics]
    counts = statistics(measures, lines, arrays, processes or cores())
    findings = None
    if randomization:
        findings = significance.randomization(measures, counts, randomization, bootstrap, seed, arrays)
    elif bootstrap:
        findings = significance.bootstrap(measures, counts, bootstrap, seed, arrays)
    scores: list[list[Score]] = [[] for _ in systems]
    for i, (each, of_systems) in enumerate(zip(measures, counts, strict=True)):
        signature = each.metric.get_signature()
        if bootstrap:
            signature.update("bs", bootstrap)
            signature.update("seed", str(seed))
        if randomization:
            signature.update("ar", randomization)
        for number, of_system in enumerate(of_systems):
            found = each.total(of_system, arrays)
            plain = (found.name, found.score, signature.format(), found._verbose)
            if findings is None:
                scores[number].append(Score(*plain))
            else:
                said = findings[i][number]
                scores[number].append(Score(*plain, said.mean, said.interval, said.p_value, said.identical))
    return scores


def validation_scores(hypotheses: Sequence[str], reference: Sequence[str], target_lang: str | None) -> tuple[float, float]:
    """BLEU and chrF2 as `score` gives them: what training logs is what the command says of the same lines."""
    bleu, chrf = score(hypotheses, [reference], ("bleu", "chrf"), target_lang=target_lang)
    return bleu.value, chrf.value


def sentence_scores(
    hypotheses: Sequence[str],
    references: Sequence[Reference],
    metrics: Sequence[str] = ("bleu", "chrf"),
    tokenize: str | None = None,
    lowercase: bool = False,
    target_lang: str | None = None,
    device: str = "cpu",
    processes: int | None = None,
) -> list[list[Score]]:
    """The scores of each line by itself; BLEU with effective order, as `sacrebleu --sentence-level`. Parameters as in `compare`."""
    lines = checked([hypotheses], references)
    arrays = Arrays.on(None if device == "cpu" else device)
    measures = [measure(name, tokenize, lowercase, target_lang, effective_order=True) for name in metrics]
    rows: list[list[Score]] = [[] for _ in hypotheses]
    for each, (counts,) in zip(measures, statistics(measures, lines, arrays, processes or cores()), strict=True):
        signature = each.metric.get_signature().format()
        for row, numbers in zip(rows, counts.tolist(), strict=True):
            found = each.metric._compute_score_from_stats(numbers)
            row.append(Score(found.name, found.score, signature, found._verbose))
    return rows


def without_empty(references: Sequence[Sequence[str]]) -> tuple[list[Reference], int]:
    """References with None for each empty line among others: texts say so that a line has fewer. Also how many lines have fewer.

    Of a line that is empty in all, the first stays.
    """
    if len(references) == 1:
        return [*references], 0
    rows = []
    for parallel in zip(*references, strict=True):
        kept = [line if line.strip() else None for line in parallel]
        rows.append(kept if any(kept) else ["", *kept[1:]])
    return [list(lines) for lines in zip(*rows, strict=True)], sum(None in row for row in rows)


def checked(systems: Sequence[Sequence[str]], references: Sequence[Reference]) -> Lines:
    """Copies without white space at the ends of lines, as sacreBLEU's command reads its files. Raises as `score` does."""
    if isinstance(references, str) or any(isinstance(lines, str) for lines in (*systems, *references)):
        raise TypeError("hypotheses are a list of lines, references a list of such lists, one for each reference")
    if not references:
        raise UsageError("there is no reference to score against")
    for hypotheses in systems:
        if not hypotheses:
            raise NmtError("there is nothing to score: the hypothesis has no lines")
        for number, lines in enumerate(references, 1):
            check_counts("the hypothesis", len(hypotheses), f"reference {number}", len(lines))
    for number, parallel in enumerate(zip(*references, strict=True), 1):
        if all(line is None for line in parallel):
            raise NmtError(f"line {number:,} has no reference to score against")
    return Lines(
        [[line.rstrip() for line in lines] for lines in systems],
        [[line if line is None else line.rstrip() for line in lines] for lines in references],
    )
