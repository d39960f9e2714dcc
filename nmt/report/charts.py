"""The charts of the page: SVG whose colours are variables of its style sheet, with the figures that its script reads out."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nmt.pictures import STYLE, inline_svg, plain
from nmt.report.gather import Run
from nmt.report.samples import METRICS, Group

INK, GRID, SERIES = "#000001", "#000002", "#0001{:02}"
"""Stand-ins for colours of the page's theme, which matplotlib knows nothing of; the last is that of run number N."""

COLORS = (
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff9248"),
    ("#009e73", "#2fd0a2"),
    ("#b0578d", "#e59cc8"),
    ("#a87400", "#f0c24b"),
    ("#555555", "#c8c8c8"),
)
"""Of the runs, on light and on dark paper; then they begin again. Those of Okabe and Ito, which the colour-blind tell apart."""

SIZE = (4.4, 2.6)
"""In inches: small, so that three stand side by side, and letters stay legible where the page is narrow."""

PLACE = (0.13, 0.17, 0.85, 0.78)
"""Of the axes in the picture: left, bottom, width and height, as shares of it."""

FROM_THE_LOWEST = ("Loss", "nll")
"""Charts whose axis does not begin at 0, where nothing of interest is."""

THEME: dict[Any, Any] = {
    **STYLE,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "font.size": 8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}

MOST_POINTS = 1000
"""Of a line: more could not be told apart."""

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """One line of a chart, or one row of bars."""

    run: int
    """The number of its run on the page, which its colour follows."""
    what: str
    """The figures, in a word."""
    at: Sequence[float]
    heights: Sequence[float]
    dashed: bool = False
    band: tuple[Sequence[float], Sequence[float]] | None = None
    """Lower and upper edge, at each point."""

    @property
    def color(self) -> int:
        return self.run % len(COLORS)


@dataclass(frozen=True)
class Chart:
    """What the page's template needs."""

    title: str
    note: str
    svg: str
    lines: list[Line]
    reading: dict[str, Any]
    """For the script: where the axis stands in the picture, where it ends, what it counts, and the points of each line."""


def curves(runs: Sequence[Run]) -> list[Chart]:
    """The charts of training; those that no run has figures for are left out."""
    wanted: list[tuple[str, str, list[Line]]] = [
        ("Loss", "per target token, with label smoothing", _lines(runs, "training", "train", "loss")),
        (
            "nll",
            "per target token, without smoothing",
            [*_lines(runs, "training", "train", "nll"), *_lines(runs, "validation", "valid", "nll", dashed=True)],
        ),
        (
            "BLEU and chrF",
            "of the validation text",
            [*_lines(runs, "BLEU", "valid", "bleu"), *_lines(runs, "chrF", "valid", "chrf", dashed=True)],
        ),
        ("Learning rate", "after each update", _lines(runs, "rate", "train", "lr")),
        ("Gradient norm", "before clipping: the median, and where four of five updates are", _norms(runs)),
        ("Speed", "target tokens a second", _lines(runs, "speed", "train", "tokens_per_second")),
    ]
    return [_curve(title, note, lines, number) for number, (title, note, lines) in enumerate(wanted) if lines]


def _lines(runs: Sequence[Run], what: str, kind: str, key: str, dashed: bool = False) -> list[Line]:
    found = []
    for number, run in enumerate(runs):
        at, heights = _points(run, kind, lambda event: event[key])
        if at:
            found.append(Line(number, what, at, heights, dashed))
    return found


def _norms(runs: Sequence[Run]) -> list[Line]:
    def share(of: float) -> Callable[[Event], float | None]:
        def read(event: Event) -> float | None:
            norms = sorted(norm for norm in event["grad_norms"] if norm is not None)
            return norms[round(of * (len(norms) - 1))] if norms else None

        return read

    found = []
    for number, run in enumerate(runs):
        at, median = _points(run, "train", share(0.5))
        if at:
            band = (_points(run, "train", share(0.1))[1], _points(run, "train", share(0.9))[1])
            found.append(Line(number, "median", at, median, band=band))
    return found


def _points(run: Run, kind: str, read: Callable[[Event], float | None]) -> tuple[list[int], list[float]]:
    """Updates, and the figures that `read` finds there."""
    points = [(event["step"], height) for event in run.of(kind) if (height := read(event)) is not None]
    thinned = points[:: math.ceil(len(points) / MOST_POINTS) or 1]
    return [at for at, _ in thinned], [height for _, height in thinned]


def by_length(group: Group, numbers: Sequence[int], name: str) -> list[Chart]:
    """BLEU and chrF of the lines of each length; `numbers` are those of the group's runs on the page."""
    bins = group.bins()
    scores = [[samples.scores(each.lines) for each in bins] for samples in group.members]
    labels = [f"{each.label} {group.unit}, {len(each.lines):,} lines" for each in bins]
    charts = []
    for metric in METRICS.values():
        lines = [
            Line(number, metric, range(len(bins)), [each[metric] for each in row])
            for number, row in zip(numbers, scores, strict=True)
            if metric in row[0]
        ]
        if lines:
            charts.append(_bars(metric, lines, [each.label for each in bins], labels, group.unit, f"{name}{metric}"))
    return charts


def _curve(title: str, note: str, lines: list[Line], number: int) -> Chart:
    def draw(axes: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        on_top = max(line.run for line in lines)
        for line in lines:
            color = SERIES.format(line.color)
            marked = line.dashed or len(line.at) == 1  # a line of one point could not be seen
            style = "o--" if line.dashed else "o-" if marked else "-"
            # Of lines that coincide each is seen beneath the next.
            width = 1.4 + (1.6 * (on_top - line.run) / on_top if on_top else 0)
            axes.plot(line.at, line.heights, style, color=color, markersize=width + 1.2 if marked else 0, linewidth=width)
            if line.band is not None:
                axes.fill_between(line.at, *line.band, color=color, alpha=0.2, linewidth=0)
        axes.set_xlabel("updates")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if title not in FROM_THE_LOWEST:
            axes.set_ylim(0, 1.08 * max(max(line.band[1] if line.band else line.heights) for line in lines) or 1)
        axes.set_xlim(left=0)

    return _chart(title, note, lines, draw, f"curve{number}")


def _bars(title: str, lines: list[Line], ticks: list[str], labels: list[str], unit: str, name: str) -> Chart:
    def draw(axes: Any) -> None:
        width = 0.8 / len(lines)
        for number, line in enumerate(lines):
            left = [at + (number - (len(lines) - 1) / 2) * width for at in line.at]
            axes.bar(left, line.heights, width * 0.92, color=SERIES.format(line.color))
        axes.grid(visible=False, axis="x")
        axes.set_axisbelow(True)
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_xlabel(f"length of the source, {unit}")
        axes.set_ylim(bottom=0)
        axes.set_xlim(-0.6, len(ticks) - 0.4)

    return _chart(title, "by the length of the source", lines, draw, name, labels)


def _chart(
    title: str, note: str, lines: list[Line], draw: Callable[[Any], None], name: str, labels: list[str] | None = None
) -> Chart:
    """What `draw` makes of matplotlib's axes. `labels` say in words what stands along the axis, where those are no updates."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with matplotlib.rc_context(THEME):
        figure = Figure(figsize=SIZE)
        axes = figure.add_axes(PLACE)
        plain(axes, GRID)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        draw(axes)
        points = [[list(line.at), [float(f"{height:.4g}") for height in line.heights]] for line in lines]
        reading = {"left": PLACE[0], "width": PLACE[2], "ends": [*axes.get_xlim()], "labels": labels, "points": points}
        return Chart(title, note, _themed(inline_svg(figure, name)), lines, reading)


def _themed(svg: str) -> str:
    """With the theme's colours in place of the stand-ins."""
    svg = svg.replace(INK, "var(--faint)").replace(GRID, "var(--line)")
    return re.sub(r"#0001(\d\d)", lambda match: f"var(--run{int(match[1])})", svg)
