"""BLEU, chrF and TER of detokenised text, and the significance of differences: sacreBLEU's own (Post 2018, arXiv 1804.08771).

sacreBLEU is imported when something is scored, not before: nothing else here needs it.
"""

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from nmt.errors import NmtError, UsageError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

METRICS = ("bleu", "chrf", "chrf++", "ter")
TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none", "spm", "flores101", "flores200", "spBLEU-1K")

LANGUAGE_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
"""sacreBLEU's choice for a known target language; 13a for all others."""

PACKAGES = {"ja-mecab": ("MeCab", "sacrebleu[ja]"), "ko-mecab": ("mecab_ko", "sacrebleu[ko]")}
"""The module that a tokenizer needs, and what to install for it."""

SCRIPTS = {
    "Japanese": ("\u3040-\u30ff", ("ja-mecab", "char")),
    "Chinese": ("\u3400-\u9fff\U00020000-\U0003ffff", ("zh", "char")),
    "Korean": ("\u1100-\u11ff\uac00-\ud7af", ("ko-mecab", "char")),
    "Thai": ("\u0e00-\u0e7f", ("char", "flores200")),
    "Lao": ("\u0e80-\u0eff", ("char", "flores200")),
    "Burmese": ("\u1000-\u109f", ("char", "flores200")),
    "Khmer": ("\u1780-\u17ff", ("char", "flores200")),
}
"""Scripts whose words 13a does not find, by their characters, with the tokenizers that fit."""

MULTILINGUAL = ("char", "spm", "flores101", "flores200", "spBLEU-1K")
"""Tokenizers that fit any script."""


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


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = ("bleu", "chrf"),
    tokenize: str | None = None,
    lowercase: bool = False,
    target_lang: str | None = None,
    bootstrap: int = 0,
) -> list[Score]:
    """A score for each of `metrics`, in their order: number and signature are those of sacreBLEU's command, to the last digit.

    `references` holds one list of lines for each reference. `tokenize` is BLEU's (None: what suits `target_lang`),
    `lowercase` is BLEU's and chrF's (TER always ignores case). `bootstrap` resamples give mean and interval.
    Raises `NmtError` for unequal line counts or none, `UsageError` for names that sacreBLEU does not know.
    """
    system, refs = _lines(hypotheses, references)
    scores = []
    for name in metrics:
        metric = _metric(name, refs, tokenize, lowercase, target_lang)
        result = metric.corpus_score(system, None, n_bootstrap=max(1, bootstrap))
        scores.append(
            Score(
                result.name,
                result.score,
                metric.get_signature().format(),
                result._verbose,
                mean=result._mean if bootstrap > 1 else None,
                interval=result._ci if bootstrap > 1 else None,
            )
        )
    return scores


def compare(
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = ("bleu", "chrf"),
    tokenize: str | None = None,
    lowercase: bool = False,
    target_lang: str | None = None,
    bootstrap: int = 1000,
) -> list[list[Score]]:
    """Paired bootstrap resampling (Koehn 2004) of every system against the first, the baseline: the scores of each system.

    Parameters and errors as in `score`; seed and number of resamples stand in the signature.
    """
    from sacrebleu.significance import PairedTest, Result

    checked = [_lines(system, references) for system in systems]
    by_metric = {name: _metric(name, checked[0][1], tokenize, lowercase, target_lang) for name in metrics}
    named: list[tuple[str, Sequence[str]]] = [(str(number), hypotheses) for number, (hypotheses, _) in enumerate(checked)]
    signatures, results = PairedTest(named, by_metric, references=None, test_type="bs", n_samples=bootstrap)()

    def to_score(name: str, number: int) -> Score:
        # The table's first column, alone, holds names instead of results.
        result, baseline = cast(Result, results[name][number]), cast(Result, results[name][0])
        assert result.mean is not None and result.ci is not None
        # sacreBLEU counts resamples that differ by more than the systems do: none, where nothing differs, so that a system
        # would be significantly better than itself.
        p_value = 1.0 if number and result.score == baseline.score else result.p_value
        return Score(name, result.score, signatures[name].format(), "", float(result.mean), float(result.ci), p_value)

    return [[to_score(name, number) for name in signatures] for number in range(len(systems))]


def validation_scores(hypotheses: Sequence[str], reference: Sequence[str], target_lang: str | None) -> tuple[float, float]:
    """BLEU and chrF2 as `score` gives them: what training logs is what the command says of the same lines."""
    bleu, chrf = score(hypotheses, [reference], ("bleu", "chrf"), target_lang=target_lang)
    return bleu.value, chrf.value


def sentence_scores(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = ("bleu", "chrf"),
    tokenize: str | None = None,
    lowercase: bool = False,
    target_lang: str | None = None,
) -> list[list[Score]]:
    """The scores of each line by itself; BLEU with effective order, as `sacrebleu --sentence-level`."""
    system, parallel = _lines(hypotheses, references)
    known = [_metric(name, None, tokenize, lowercase, target_lang, effective_order=True) for name in metrics]
    rows = []
    for hypothesis, *refs in zip(system, *parallel, strict=True):
        results = [(metric, metric.sentence_score(hypothesis, refs)) for metric in known]
        rows.append([Score(each.name, each.score, metric.get_signature().format(), each._verbose) for metric, each in results])
    return rows


def check_counts(name: str, count: int, reference: str, reference_count: int) -> None:
    """NmtError that names both files where their line counts differ."""
    if count != reference_count:
        lines = "line" if count == 1 else "lines"
        raise NmtError(f"{name} has {count:,} {lines}, {reference} has {reference_count:,}: they must be parallel")


def check_tokenizer(tokenize: str | None) -> None:
    """UsageError where there is no such tokenizer."""
    if tokenize is not None and tokenize not in TOKENIZERS:
        raise UsageError(f"--tokenize must be one of {', '.join(TOKENIZERS)}, not {tokenize}")


def choose_tokenizer(tokenize: str | None, target_lang: str | None) -> str:
    """BLEU's tokenizer; NmtError where it needs a package that is not installed, UsageError where there is no such tokenizer."""
    check_tokenizer(tokenize)
    language = re.split("[-_]", target_lang.lower())[0] if target_lang else ""
    chosen = tokenize or LANGUAGE_TOKENIZERS.get(language, "13a")
    module, package = PACKAGES.get(chosen, ("sacrebleu", "sacrebleu"))
    if importlib.util.find_spec(module) is None:
        raise NmtError(
            f"BLEU's tokenizer {chosen} is not installed: pip install '{package}', or choose another, such as --tokenize char"
        )
    return chosen


def warnings(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = ("bleu", "chrf"),
    tokenize: str | None = None,
    lowercase: bool = False,
    target_lang: str | None = None,
) -> list[str]:
    """What makes a score less than it seems: text that looks tokenised or lower-cased, a tokenizer that does not fit."""
    told = []
    for what, lines in (("hypothesis", hypotheses), *(("reference", lines) for lines in references)):
        if looks_tokenised(lines):
            told.append(f"the {what} looks tokenised; score detokenised text, or the number cannot be compared")
    if not lowercase and not _has_capitals(hypotheses) and any(_has_capitals(lines) for lines in references):
        told.append("the hypothesis has no capital letter, the reference has; if that is meant, use --lowercase")
    if "bleu" in metrics:
        chosen = choose_tokenizer(tokenize, target_lang)
        for language in {each for lines in references if (each := language_by_script(lines)) is not None}:
            fitting = SCRIPTS[language][1]
            if chosen not in (*fitting, *MULTILINGUAL):
                told.append(f"the reference looks {language}: the tokenizer {chosen} does not fit, use --tokenize {fitting[0]}")
    return told


def looks_tokenised(lines: Sequence[str]) -> bool:
    """Whether full stops and commas stand apart from their words more often than not, or in 100 lines (sacreBLEU's sign)."""
    apart = sum(1 for line in lines if re.search(r"\s[.,](\s|$)", line))
    attached = sum(1 for line in lines if re.search(r"[^\s.,][.,](\s|$)", line))
    return apart > attached or sum(1 for line in lines if line.endswith(" .")) >= 100


def language_by_script(lines: Sequence[str]) -> str | None:
    """The language of `SCRIPTS` that most letters of `lines` belong to; None for all others, which put spaces between words."""
    text = "".join(lines)
    counts = {name: len(re.findall(f"[{characters}]", text)) for name, (characters, _) in SCRIPTS.items()}
    letters = sum(character.isalpha() for character in text)
    if 2 * sum(counts.values()) <= letters:
        return None
    # Japanese mixes kana with the Chinese characters; Chinese has no kana.
    if 10 * counts["Japanese"] > counts["Chinese"]:
        counts["Japanese"] += counts.pop("Chinese")
    return max(counts, key=counts.__getitem__)


def _has_capitals(lines: Sequence[str]) -> bool:
    return any(line != line.lower() for line in lines)


def _lines(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Checked copies, without white space at the ends of lines, as sacreBLEU's command reads its files."""
    if isinstance(hypotheses, str) or isinstance(references, str) or any(isinstance(lines, str) for lines in references):
        raise TypeError("hypotheses are a list of lines, references a list of such lists, one for each reference")
    if not references:
        raise UsageError("there is no reference to score against")
    if not hypotheses:
        raise NmtError("there is nothing to score: the hypothesis has no lines")
    for number, lines in enumerate(references, 1):
        check_counts("the hypothesis", len(hypotheses), f"reference {number}", len(lines))
    return [line.rstrip() for line in hypotheses], [[line.rstrip() for line in lines] for lines in references]


def _metric(
    name: str,
    references: Sequence[Sequence[str]] | None,
    tokenize: str | None,
    lowercase: bool,
    target_lang: str | None,
    effective_order: bool = False,
) -> "Metric":
    """sacreBLEU's metric. Its own warnings, which go to a log of its own, are off: `warnings` gives ours."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    check_tokenizer(tokenize)  # also where it has no part in the metric: a misspelt word is never meant
    match name:
        case "bleu":
            chosen = choose_tokenizer(tokenize, target_lang)
            try:
                return BLEU(
                    lowercase=lowercase, force=True, tokenize=chosen, effective_order=effective_order, references=references
                )
            except (OSError, ImportError, RuntimeError) as error:  # a dictionary is missing, or a model cannot be downloaded
                raise NmtError(f"BLEU's tokenizer {chosen} cannot be used here: {error}") from error
        case "chrf":
            return CHRF(lowercase=lowercase, references=references)
        case "chrf++":
            return CHRF(lowercase=lowercase, word_order=2, references=references)
        case "ter":
            return TER(references=references)
        case _:
            raise UsageError(f"unknown metric {name}: choose from {', '.join(METRICS)}")
