"""Scores as people and programs read them: sacreBLEU's own line, or JSON with every digit."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.console import layout
from nmt.score import Score


def as_text(systems: Sequence[str], scores: Sequence[Sequence[Score]]) -> list[str]:
    """A line for each system and metric, `BLEU|signature = 28.30 details`; the system stands before it where there are several."""
    lines = []
    for system, row in zip(systems, scores, strict=True):
        for score in row:
            line = f"{score.name}|{score.signature} = {score.value:.2f}"
            if score.mean is not None and score.interval is not None:
                line += f" (μ = {score.mean:.2f} ± {score.interval:.2f})"
            if score.identical:
                line += f" (identical to {systems[0]}, p = 1)"
            elif score.p_value is not None:
                line += f" (p = {score.p_value:.4f} against {systems[0]})"
            if score.details:
                line += f" {score.details}"
            lines.append(f"{system}: {line}" if len(systems) > 1 else line)
    return lines


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


def of_breakdown(found: Mapping[str, Any]) -> list[str]:
    """Tables of what `breakdown.breakdown` found, and its sentences."""
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
    return lines[:-1]


def _sentences(sentences: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for each in sentences:
        rows = [("source", each["source"]), *(("reference", text) for text in each["references"])]
        rows += [(f"{output['score']:.2f}", output["text"]) for output in each["outputs"]]
        lines += [f"  line {each['line'] + 1:,}", *(f"    {name:9}  {text}".rstrip() for name, text in rows)]
    return lines or ["  none"]
