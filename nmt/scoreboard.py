"""Scores as people and programs read them: sacreBLEU's own line, or JSON with every digit."""

import json
from collections.abc import Sequence
from itertools import takewhile

from nmt.breakdown import Breakdown, Sentence
from nmt.console import layout
from nmt.score import Score

ABREAST = 2
"""Metrics of a table: more, and names of usual length, are wider than a terminal."""


def as_text(systems: Sequence[str], scores: Sequence[Sequence[Score]]) -> list[str]:
    """A line for each metric of one system, `BLEU|signature = 28.30 details`; of several a table, signatures below it."""
    if len(systems) == 1:
        return [_line(score) for score in scores[0]]
    names = without_folder(systems)
    metrics = list(zip(*scores, strict=True))
    lines = []
    for begin in range(0, len(metrics), ABREAST):
        columns = [column for metric in metrics[begin : begin + ABREAST] for column in _columns(metric)]
        lines += [
            *layout(["", *(head for head, *_ in columns)], list(zip(names, *(cells for _, *cells in columns), strict=True))),
            "",
        ]
    lines += [f"{score.name}|{score.signature}" for score in scores[0]]
    if any(score.p_value is not None for row in scores for score in row):
        randomised = any(part.startswith("ar:") for part in scores[0][0].signature.split("|"))
        lines.append(f"p: {'approximate randomisation' if randomised else 'paired bootstrap'} against {names[0]}")
    if any(score.identical for row in scores for score in row):
        lines.append("same: no sentence counts otherwise than the baseline's")
    return lines


def without_folder(names: Sequence[str]) -> list[str]:
    """Names of files without the folder that they share."""
    parents = zip(*(name.split("/")[:-1] for name in names), strict=False)
    folder = "/".join(each[0] for each in takewhile(lambda each: len(set(each)) == 1, parents))
    return [name[len(folder) + 1 :] for name in names] if folder else [*names]


def _line(score: Score) -> str:
    """sacreBLEU's own."""
    line = f"{score.name}|{score.signature} = {score.value:.2f}"
    if score.mean is not None and score.interval is not None:
        line += f" (μ = {score.mean:.2f} ± {score.interval:.2f})"
    return f"{line} {score.details}" if score.details else line


def _columns(scores: Sequence[Score]) -> list[list[str]]:
    """Head and cells of the columns of one metric: scores, with intervals where there are any, and p-values likewise."""
    values = [f"{score.value:.2f}" for score in scores]
    intervals = ["" if score.interval is None else f"{score.interval:.2f}" for score in scores]
    width = max(map(len, intervals))
    column = [scores[0].name, *values]
    if width:
        column = [f"{scores[0].name} {'95 %':>{width + 2}}"]
        column += [f"{value} ± {interval:>{width}}" for value, interval in zip(values, intervals, strict=True)]
    p_values = ["same" if score.identical else "" if score.p_value is None else f"{score.p_value:.4f}" for score in scores]
    return [column, ["p", *p_values]] if any(p_values) else [column]


def as_json(systems: Sequence[str], scores: Sequence[Sequence[Score]]) -> list[str]:
    """One JSON list of an object for each system and metric, with the numbers unrounded and sacreBLEU's names for them."""
    objects = []
    for system, row in zip(systems, scores, strict=True):
        for score in row:
            found: dict[str, object] = {"system": system, "name": score.name, "score": score.value, "signature": score.signature}
            if score.details:
                found["verbose_score"] = score.details
            if score.mean is not None and score.interval is not None:
                found |= {"confidence_mean": score.mean, "confidence_var": score.interval}
            if score.p_value is not None:
                found |= {"baseline": systems[0], "p_value": score.p_value, "identical": score.identical}
            objects.append(found)
    return [json.dumps(objects, ensure_ascii=False, indent=1)]


def by_sentence(systems: Sequence[str], scores: Sequence[Sequence[Sequence[Score]]], jsonl: bool) -> list[str]:
    """A line for each sentence, from the `scores` of each system, sentence and metric.

    As text the numbers stand in columns, system after system and metric after metric; as JSON each object has a list of
    `{"system", "scores"}`, in the order of the systems: two may have one name.
    """
    lines = []
    for number, rows in enumerate(zip(*scores, strict=True)):
        if jsonl:
            named = [
                {"system": system, "scores": {score.name: score.value for score in row}}
                for system, row in zip(systems, rows, strict=True)
            ]
            lines.append(json.dumps({"line": number, "systems": named}, ensure_ascii=False))
        else:
            lines.append("\t".join(f"{score.value:.2f}" for row in rows for score in row))
    return lines


def of_breakdown(found: Breakdown) -> list[str]:
    """Tables of what `breakdown.breakdown` found, its sentences, and at the end the signatures."""
    lines = []
    for system in found["systems"]:
        lines += [system["system"], ""]
        for partition in system["partitions"]:
            rows = [
                [
                    group["group"],
                    f"{group['lines']:,}",
                    *(f"{score:.2f}" for score in group["scores"].values()),
                    "" if group["length_ratio"] is None else f"{group['length_ratio']:.3f}",
                ]
                for group in partition["groups"]
            ]
            names = partition["groups"][0]["scores"] if partition["groups"] else ()
            lines += [*layout([partition["by"], "lines", *names, "length ratio"], rows), ""]
        for which in ("worst", "best"):
            lines += [f"{which} by {found['ranked_by']}", *_sentences(system[which]), ""]
    for pair in found["differences"]:
        first, second = pair["systems"]
        lines += [f"{first} and {second} differ most by {found['ranked_by']}", *_sentences(pair["sentences"]), ""]
    return [*lines, *(f"{name}|{signature}" for name, signature in found["signatures"].items())]


def _sentences(sentences: Sequence[Sentence]) -> list[str]:
    lines = []
    for each in sentences:
        rows = [("source", each["source"]), *(("reference", text) for text in each["references"])]
        rows += [(f"{output['score']:.2f}", output["text"]) for output in each["outputs"]]
        lines += [f"  line {each['line'] + 1:,}", *(f"    {name:9}  {text}".rstrip() for name, text in rows)]
    return lines or ["  none"]
