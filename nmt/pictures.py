"""Pictures: their style and their formats, and what makes them whole and the same bytes each time."""

import io
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from nmt.data.files import beside, reason
from nmt.data.text import check_output
from nmt.errors import NmtError, UsageError

FORMATS = (".svg", ".png", ".pdf")

STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "nmt", "pdf.fonttype": 42}
"""Of matplotlib: text stays text."""


def plain(axes: Any, grid: str = "0.9") -> None:
    """Of matplotlib's axes: a faint grid, no frame above and on the right, numbers with commas."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(color=grid, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def inline_svg(figure: Any, name: str) -> str:
    """`figure`, of matplotlib, as an element of a page; `name` keeps its ids apart from those of others there."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    _, begin, rest = stream.getvalue().partition("<svg")
    # A style in it would be one of the whole page, comments name the artists, and ids count from 1 in each figure.
    drawn = re.sub(r"<style.*?</style>|<!--.*?-->", "", begin + rest, flags=re.DOTALL)
    return re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", drawn)


def check(path: str | os.PathLike[str]) -> None:
    """`UsageError` where the name does not end as that of a picture, `NmtError` where none can be written there."""
    place = Path(path)
    if place.suffix.lower() not in FORMATS:
        raise UsageError(f"{place}: the name of a picture ends in {', '.join(FORMATS)}")
    check_output(place)


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write `figure`, of matplotlib, cut to what was drawn, as the name ends. `NmtError` where the file cannot be written."""
    place = Path(path)
    kind = place.suffix.lower().removeprefix(".")
    metadata = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else {}
    partial = beside(place)
    try:
        figure.savefig(partial, format=kind, bbox_inches="tight", pad_inches=0.1, dpi=150, metadata=metadata)
        os.replace(partial, place)
    except OSError as error:
        raise NmtError(f"{place}: cannot be written ({reason(error)})") from error
    finally:
        with suppress(OSError):
            partial.unlink()
