"""The figures of a benchmark as lines of text, for people."""

from collections.abc import Callable, Mapping
from typing import Any

from nmt.console import layout, rate


def as_text(found: Mapping[str, Any]) -> list[str]:
    """The lines of a table of what `bench.training`, `bench.translation`, `curves.training` or `curves.decoding` found."""
    if found["measured"] == "curve":
        return [f"{found['curve']}: {circumstances(found)}", "", *_curve_lines(found)]
    title = (
        f"{found['measured']}, {found['configuration']['model']['backend']}, {found['parameters']:,} parameters; {_where(found)}"
    )
    return [title, "", *(_training_lines(found) if found["measured"] == "training" else _translation_lines(found))]


def circumstances(found: Mapping[str, Any]) -> str:
    """What is the same at all points of a curve, in words."""
    model = found["configuration"]["model"]
    facts = [
        model["backend"],
        *([] if found["curve"] == "width" else [f"width {model['width']:,}"]),
        *([] if found["vocabulary"] is None else [f"vocabulary {found['vocabulary']:,}"]),
        *([] if found["length"] is None else [f"sentences of {found['length']} subwords"]),
        *([] if found["batch_tokens"] is None else [f"batches of {found['batch_tokens']:,} tokens"]),
    ]
    return f"{', '.join(facts)}; {_where(found)}"


def _where(found: Mapping[str, Any]) -> str:
    threads = f"{found['threads']} thread{'s' if found['threads'] > 1 else ''}"
    return f"{found['device']}, {found['precision']}, {threads}; nmt {found['nmt']}, torch {found['torch']}"


def _training_lines(found: Mapping[str, Any]) -> list[str]:
    def row(name: str, spread: Mapping[str, float]) -> list[str]:
        return [name, *(rate(spread[each]) for each in ("median", "lowest", "highest"))]

    rates = [row("target tokens a second", found["tokens_per_second"]), row("updates a second", found["updates_per_second"])]
    facts = [
        ["padding", f"{found['padding']:.1%}"],
        ["peak memory", _bytes(found["peak_memory"])],
        ["matrix products a target token", _flops(found["flops_per_token"])],
        ["matrix products a second, at best", _flops(found["gemm_flops_per_second"])],
        ["floor: target tokens a second", rate(found["floor_tokens_per_second"])],
        ["share of the floor", f"{found['ratio_to_floor']:.0%}"],
    ]
    windows = f"{found['windows']} window{'s' if found['windows'] > 1 else ''}"
    return [
        *layout([windows, "median", "lowest", "highest"], rates),
        "",
        *layout(["", ""], facts),
        "",
        *layout(["where the time goes", ""], [[name, f"{share:.1%}"] for name, share in found["shares"].items()]),
    ]


def _translation_lines(found: Mapping[str, Any]) -> list[str]:
    searches = found["searches"]

    def row(name: str, key: str, shown: Callable[[Any], str]) -> list[str]:
        return [name, *(shown(each[key]) for each in searches)]

    rows = [
        row("sentences a second", "sentences_per_second", rate),
        row("target tokens a second", "tokens_per_second", rate),
        row("seconds", "seconds", lambda value: f"{value:,.2f}"),
        row("time, greedy = 1", "times_greedy", lambda value: "" if value is None else f"{value:.2f}"),
        row("one at a time: median, ms", "latency_milliseconds", lambda value: f"{value['median']:,.1f}"),
        row("one at a time: 95th percentile, ms", "latency_milliseconds", lambda value: f"{value['percentile_95']:,.1f}"),
        row("processes", "processes", str),
        row("peak memory of the largest", "peak_memory", _bytes),
        row("matrix products a sentence", "flops_per_sentence", _flops),
        row("floor: sentences a second", "floor_sentences_per_second", rate),
        row("share of the floor", "ratio_to_floor", lambda value: f"{value:.1%}"),
    ]
    spent = [[name, *(f"{each['shares'][name]:.1%}" for each in searches)] for name in searches[0]["shares"]]
    names = [each["search"] for each in searches]
    return [
        *layout([f"{(lines := searches[0]['sentences']):,} sentence{'s' if lines > 1 else ''}", *names], rows),
        "",
        *layout(["where the time goes", *names], spent),
        "",
        f"matrix products a second, at best: {_flops(found['gemm_flops_per_second'])}",
    ]


def _curve_lines(found: Mapping[str, Any]) -> list[str]:
    points = found["points"]
    if found["curve"] == "decoding":
        columns = [found["label"], "step with cache", "without", "times as long"]
        rows = [
            [
                f"{point['at']:,}",
                *(f"{point[way]['milliseconds']['median']:,.2f} ms" for way in ("with_cache", "without_cache")),
                f"{point['times_as_long']:.1f}",
            ]
            for point in points
        ]
        return layout(columns, rows)
    columns = [found["label"], "parameters", "target tokens a second", "lowest", "highest", "floor", "share of the floor"]
    rows = [
        [
            f"{point['at']:,}",
            f"{point['parameters']:,}",
            *(rate(point["tokens_per_second"][each]) for each in ("median", "lowest", "highest")),
            rate(point["floor_tokens_per_second"]),
            f"{point['ratio_to_floor']:.0%}",
        ]
        for point in points
    ]
    best = f"matrix products a second, at best: {_flops(found['gemm_flops_per_second'])}"
    return [*layout(columns, rows), "", best]


def _bytes(number: int | None) -> str:
    return "-" if number is None else f"{number / 1e6:,.0f} MB"


def _flops(number: float) -> str:
    size, name = next(each for each in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (0, "FLOP")) if number >= each[0])
    return f"{number / (size or 1):,.1f} {name}"
