"""Pictures in files: their formats, and what makes them whole and the same bytes each time."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from nmt.data.files import beside, reason
from nmt.errors import NmtError, UsageError

FORMATS = (".svg", ".png", ".pdf")

STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "nmt", "pdf.fonttype": 42}
"""Of matplotlib: text stays text."""


def check(path: str | os.PathLike[str]) -> None:
    """`UsageError` where the name does not end as that of a picture, `NmtError` where none can be written there."""
    place = Path(path)
    if place.suffix.lower() not in FORMATS:
        raise UsageError(f"{place}: the name of a picture ends in {', '.join(FORMATS)}")
    if place.is_dir():
        raise NmtError(f"{place}: cannot be written (is a directory)")
    if not place.parent.is_dir():
        raise NmtError(f"{place}: cannot be written ({place.parent} is no directory)")
    if not os.access(place.parent, os.W_OK):
        raise NmtError(f"{place}: cannot be written (permission denied)")


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
