"""Plots of the curves that `curves` measured."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nmt.pictures import STYLE, check, plain, save
from nmt.tables import circumstances

LOGARITHMIC = 10
"""Rates that differ by more than this factor get a logarithmic axis: on another one the small could not be read."""


@dataclass(frozen=True)
class Line:
    """One line of a plot."""

    name: str
    heights: list[float]
    """At each point."""
    band: tuple[list[float], list[float]] | None
    """Lowest and highest at each point, where they are known."""
    color: str
    """Of those of Okabe and Ito, which the colour-blind tell apart; the style tells them apart too."""
    style: str


def draw(found: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the plot of what `curves` found to `path`, as its name ends: .svg (text stays text), .png or .pdf.

    The same figures are the same bytes. Raises `UsageError` for another ending, `NmtError` where the file cannot be written.
    """
    check(path)
    # Heavy imports, and only ever needed here. No pyplot: it keeps state, and asks for a display.
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    decoding = found["curve"] == "decoding"
    at = [point["at"] for point in found["points"]]
    lines = _of_decoding(found) if decoding else _of_training(found)
    heights = [height for line in lines for height in line.heights]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.0), facecolor="white")  # a page may be dark, and the text is not
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        for line in lines:
            axes.plot(at, line.heights, line.style, color=line.color, label=line.name, markersize=5)
            if line.band is not None:
                axes.fill_between(at, *line.band, color=line.color, alpha=0.2, linewidth=0)
        if not decoding:
            axes.set_xscale("log", base=2)
        if not decoding and max(heights) > LOGARITHMIC * min(heights):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        else:
            axes.set_ylim(bottom=0)
        axes.set_xticks(at)
        axes.set_xlabel(found["label"])
        axes.set_ylabel("a decoding step, milliseconds" if decoding else "target tokens a second")
        axes.set_title(circumstances(found).replace("; ", "\n"), fontsize=8, loc="left", parse_math=False)
        plain(axes)
        axes.legend(frameon=False)
        save(figure, path)


def _of_training(found: Mapping[str, Any]) -> list[Line]:
    rates = [point["tokens_per_second"] for point in found["points"]]
    floors = [point["floor_tokens_per_second"] for point in found["points"]]
    return [
        Line("floor: matrix products only", floors, None, "#555555", "--"),
        _spread("measured", rates, "#0072b2", "o-"),
    ]


def _of_decoding(found: Mapping[str, Any]) -> list[Line]:
    return [
        _spread(name, [point[way]["milliseconds"] for point in found["points"]], color, style)
        for name, way, color, style in (
            ("without cache", "without_cache", "#d55e00", "s--"),
            ("with cache", "with_cache", "#0072b2", "o-"),
        )
    ]


def _spread(name: str, spreads: list[dict[str, float]], color: str, style: str) -> Line:
    median, lowest, highest = ([spread[each] for spread in spreads] for each in ("median", "lowest", "highest"))
    return Line(name, median, (lowest, highest), color, style)
