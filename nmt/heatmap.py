"""Pictures of attention, as in figure 3 of Bahdanau et al. 2014 (arXiv 1409.0473): source along the top, target down the side.

Legend: T target pieces, S source pieces.
"""

import os
import re
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmt.pictures import STYLE, check, save

FONTS = (
    "Noto Sans",
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK KR",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Noto Sans Arabic",
    "Noto Naskh Arabic",
    "Noto Sans Devanagari",
    "Nirmala UI",
    "Noto Sans Thai",
    "Noto Sans Hebrew",
    "Unifont",
    "Arial Unicode MS",
)
"""Tried in this order for each character, where installed; DejaVu Sans comes with matplotlib."""

CELL = 0.26
"""Side of a cell in inches."""
MOST = 30.0
"""The longest side of the cells together, in inches: beyond it they shrink."""
LONGEST_LABEL = 24


def draw(source: Sequence[str], target: Sequence[str], weights: NDArray[np.float32], path: str | os.PathLike[str]) -> str:
    """Write the picture of `weights` (T, S) to `path`, as its name ends: .svg (text stays text), .png or .pdf.

    White is the largest weight, black is 0. The same picture is the same bytes. Returns the characters that no installed font
    can show (in an SVG the viewer's fonts may). Raises `UsageError` for another ending, `NmtError` where the file cannot be
    written.
    """
    check(path)
    if weights.shape != (len(target), len(source)):
        raise ValueError(f"weights are {weights.shape}, labels are for {(len(target), len(source))}")
    # Heavy imports, and only ever needed here. No pyplot: it keeps state, and asks for a display.
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    style = {**STYLE, "font.family": [font for font in FONTS if font in installed]}
    cell = min(CELL, MOST / max(1, *weights.shape))
    points = min(10.0, 0.62 * 72 * cell)
    rows, columns = _labels(target), _labels(source)
    # In inches. The picture is then cut to what was drawn, so the room for labels needs only to be enough.
    size = (cell * max(1, len(columns)), cell * max(1, len(rows)))
    with matplotlib.rc_context(style), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure = Figure(figsize=size)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        image = axes.imshow(weights, cmap="gray", vmin=0.0, vmax=max(float(weights.max(initial=0.0)), 1e-6), aspect="auto")
        axes.tick_params(length=0, top=False, bottom=False, labeltop=True, labelbottom=False)
        axes.set_xticks(
            range(len(columns)),
            columns,
            rotation=90,
            rotation_mode="anchor",
            ha="left",
            va="center_baseline",
            fontsize=points,
            parse_math=False,
        )
        axes.set_yticks(range(len(rows)), rows, va="center_baseline", fontsize=points, parse_math=False)
        bar = figure.add_axes((1.0 + 0.15 / size[0], 0.0, 0.12 / size[0], min(1.0, 1.5 / size[1])))
        figure.colorbar(image, cax=bar).ax.tick_params(labelsize=8)
        save(figure, path)
    return _missing([str(warning.message) for warning in caught])


def _labels(pieces: Sequence[str]) -> list[str]:
    """What can be drawn, in any format, of each piece: no control characters, and of a long one the beginning."""
    shown = ("".join(character if character.isprintable() else "\ufffd" for character in piece) for piece in pieces)
    return [piece if len(piece) <= LONGEST_LABEL else piece[: LONGEST_LABEL - 1] + "…" for piece in shown]


def _missing(messages: list[str]) -> str:
    """The characters that matplotlib's warnings say no font has."""
    found = (re.match(r"Glyph (\d+)", message) for message in messages)
    return "".join(sorted({chr(int(match[1])) for match in found if match}))
