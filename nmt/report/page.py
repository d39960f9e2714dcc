"""The page: what was gathered, put into the template beside this file, which escapes all text."""

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nmt
from nmt.config import resolve
from nmt.console import duration, rate
from nmt.report.charts import COLORS, Chart, by_length, curves
from nmt.report.gather import Run
from nmt.report.samples import Group, Samples, groups
from nmt.results import Translation
from nmt.vocab import EOS, SYMBOLS

SHOWN, WORST = 8, 8
"""Sentences of each kind."""

MOST_WEIGHTS = 40_000
"""Of the attention of a sentence; a larger matrix is left out of the page."""

NAMES = {"bleu": "BLEU", "chrf": "chrF", "nll": "nll", "ppl": "perplexity", "accuracy": "accuracy"}


@dataclass(frozen=True)
class Figure:
    """A headline: what, how much, and a remark, for each run."""

    what: str
    values: list[tuple[str, str]]


@dataclass(frozen=True)
class Setting:
    """A key of the configuration and its value in each run."""

    key: str
    values: list[str]
    differs: bool
    """Between the runs or, where there is one, from the default."""


@dataclass(frozen=True)
class Pieces:
    """A line as a network reads or writes it."""

    run: int
    """The number of the run that it is shown for."""
    pieces: list[str]
    text: str
    weights: list[list[int]] | None = None
    """Of a translation: the attention to each piece of the source, in hundredths; a row for each of `pieces`."""
    source: int = 0
    """Which of the sentence's sources that attention is to."""
    chrf: float = 0.0


@dataclass(frozen=True)
class Sentence:
    """One line of the validation text, with all translations of it."""

    line: int
    sources: list[Pieces]
    """One, or one for each way in which the runs' subword models cut the line."""
    reference: str
    translations: list[Pieces]


@dataclass(frozen=True)
class Part:
    """The page's part on one group of runs."""

    names: list[str]
    lines: int
    total: int
    languages: list[str | None]
    charts: list[Chart]
    kinds: list[tuple[str, list[Sentence]]]
    """Sentences, each kind under its title."""
    scores: list[tuple[str, dict[str, float]]]
    """Of all lines, by metric, for each run."""


def page(runs: Sequence[Run], samples: Sequence[Samples]) -> str:
    """The whole page, that needs nothing beside it. `samples` are of some or all of the runs."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "allow_nan": False}  # a browser reads no NaN
    template = environment.get_template("page.html")
    return template.render(
        runs=runs,
        colors=COLORS,
        figures=_figures(runs),
        curves=curves(runs),
        parts=[_part(group, runs, number) for number, group in enumerate(groups(samples))],
        settings=_settings(runs),
        versions=_versions(runs),
    )


def visible(text: str) -> str:
    """Without control characters, which no page can show and some cannot hold."""
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text)


def _figures(runs: Sequence[Run]) -> list[Figure]:
    metrics = list(dict.fromkeys([*(run.config["train"]["metric"] for run in runs), "bleu", "chrf", "nll"]))
    rows = [_scored(run, metrics) | _trained(run) for run in runs]
    names = dict.fromkeys(name for row in rows for name in row)
    return [Figure(name, [row.get(name, ("–", "")) for row in rows]) for name in names]


def _scored(run: Run, metrics: Sequence[str]) -> dict[str, tuple[str, str]]:
    best = run.best
    if best is None:
        return {}
    details = {metric: "" for metric in metrics}
    details["nll"] = f"perplexity {best['ppl']:,.4g}" if best["ppl"] is not None else ""
    details[run.config["train"]["metric"]] = f"best, update {best['step']:,}"
    return {f"validation {NAMES[metric]}": (_number(best[metric]), details[metric]) for metric in metrics}


def _trained(run: Run) -> dict[str, tuple[str, str]]:
    trained = run.of("train")
    found = {}
    if trained:
        last = trained[-1]
        limit = run.config["train"]["max_steps"]
        found["updates"] = (f"{last['step']:,}", f"epoch {last['epoch']:,}{f', of {limit:,} at most' if limit else ''}")
        found["training time"] = (duration(last["seconds"]), run.status)
        found["target tokens a second"] = (rate(run.tokens_per_second or 0), "median")
        if last["skipped"]:
            found["updates skipped"] = (f"{last['skipped']:,}", "no finite loss or gradient")
    if run.parameters is not None:
        found["parameters"] = (f"{run.parameters:,}", run.config["model"]["backend"])
    if run.report:
        vocabulary = run.config["vocabulary"]
        sizes = f"{vocabulary['source']:,}" if vocabulary["shared"] else f"{vocabulary['source']:,} and {vocabulary['target']:,}"
        found["training pairs"] = (f"{run.report['pairs']['train']:,}", f"{sizes} subwords")
    return found


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value >= 10 else f"{value:.3f}"


def _settings(runs: Sequence[Run]) -> list[Setting]:
    """All settings; of one run, those that differ are those that are not as its backend has them by itself."""
    configs = [run.config for run in runs]
    if len(runs) == 1:
        configs.append(resolve(configs[0]["model"]["backend"]).to_dict())
    tables = ("model", "data", "train")
    found = [{f"{table}.{key}": value for table in tables for key, value in config[table].items()} for config in configs]
    settings = []
    for key in dict.fromkeys(key for each in found[: len(runs)] for key in each):
        values = [_value(each, key) for each in found]
        settings.append(Setting(key, values[: len(runs)], len(set(values)) > 1))
    return settings


def _value(settings: Mapping[str, Any], key: str) -> str:
    """As `--set` takes it; a dash where the run has no such setting."""
    value = settings.get(key, "–")
    return {None: "none", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)


def _versions(runs: Sequence[Run]) -> list[tuple[str, str]]:
    import matplotlib
    import torch

    made = [(f"{run.name}, begun by" if len(runs) > 1 else "the run, begun by", f"nmt {run.config['version']}") for run in runs]
    data = [
        (
            f"data of {run.name}" if len(runs) > 1 else "its data, made by",
            ", ".join(f"{name} {version}" for name, version in run.report["versions"].items()),
        )
        for run in runs
        if run.report
    ]
    here = (
        f"nmt {nmt.__version__}, torch {torch.__version__}, matplotlib {matplotlib.__version__}, Python {platform.python_version()}"
    )
    return [*made, *data, ("this page, made by", here)]


def _part(group: Group, runs: Sequence[Run], number: int) -> Part:
    numbers = [next(n for n, run in enumerate(runs) if run is samples.run) for samples in group.members]
    first = group.members[0]
    kinds = [("Sample translations", group.spread_out(SHOWN)), ("Worst sentences", group.worst(WORST))]
    if len(group.members) > 1:
        kinds.append(("Sentences that differ most", group.most_different(WORST)))
    return Part(
        names=[samples.run.name for samples in group.members],
        lines=len(first.source),
        total=first.total,
        languages=first.run.config["languages"],
        charts=by_length(group, numbers, f"length{number}"),
        kinds=[(title, [_sentence(group, numbers, line) for line in lines]) for title, lines in kinds],
        scores=[(samples.run.name, samples.scores(range(len(first.source)))) for samples in group.members],
    )


def _sentence(group: Group, numbers: Sequence[int], line: int) -> Sentence:
    sources: list[Pieces] = []
    translations = []
    first = group.members[0]
    for number, samples in zip(numbers, group.members, strict=True):
        translation = samples.translations[line]
        pieces = list(translation.source)
        place = next((place for place, each in enumerate(sources) if each.pieces == pieces), None)
        if place is None:
            place = len(sources)
            sources.append(Pieces(number, pieces, first.source[line]))
        translations.append(_pieces(number, translation, place, samples.chrf[line]))
    return Sentence(line + 1, sources, first.reference[line], translations)


def _pieces(number: int, translation: Translation, source: int, chrf: float) -> Pieces:
    best = translation.hypotheses[0]
    pieces = [*best.tokens, SYMBOLS[EOS]][: len(best.token_log_probs)]
    attention = translation.attention
    shown = attention is not None and translation.source and attention.size <= MOST_WEIGHTS
    weights = (100 * attention).round().astype(int).tolist() if attention is not None and shown else None
    return Pieces(number, pieces, best.text, weights, source, chrf)
