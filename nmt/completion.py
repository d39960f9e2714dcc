"""What a shell offers to complete a word of the command line with: the values of an option, or directories that nmt has made.

Typer's `nmt --install-completion` tells the shell to ask.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

DEEPEST = 3
"""Levels of directories that are searched below what has been typed."""

MOST_LOOKED_AT = 2000
"""Directories: a shell waits for the answer."""

Completion = Callable[[str], list[str]]
"""From the beginning of a word to all words that it may become; none leaves it to the shell, which knows files."""


def completion(metavar: str) -> Completion:
    """Of an option or argument whose help says `metavar`: `beam|greedy|sample` names words, `MODEL|DATA` directories, by kind."""
    names = metavar.split("|")
    words = [name for name in names if name and name == name.lower()]
    kinds = {name for name in names if name in ("RUN", "CHECKPOINT", "MODEL", "DATA")}

    def complete(incomplete: str) -> list[str]:
        return [*(word for word in words if word.startswith(incomplete)), *(_directories(kinds, incomplete) if kinds else ())]

    return complete


def _directories(kinds: set[str], incomplete: str) -> list[str]:
    folder, name = os.path.split(incomplete)
    looked_at = iter(range(MOST_LOOKED_AT))

    def search(place: Path, shown: str, deep: int) -> Iterator[str]:
        with suppress(OSError):  # what cannot be read holds nothing to offer
            for child in sorted(place.iterdir()):
                begin = name if deep == 0 else ""
                is_hidden = child.name.startswith(".") and not begin
                if not child.name.startswith(begin) or is_hidden or not child.is_dir() or next(looked_at, None) is None:
                    continue
                path = os.path.join(shown, child.name)
                if _is(child, kinds):
                    yield path
                elif deep + 1 < DEEPEST:
                    yield from search(child, path, deep + 1)

    return list(search(Path(folder or "."), folder, 0))


def _is(path: Path, kinds: set[str]) -> bool:
    from nmt.data.files import made_as

    made = made_as(path)
    if made == "data":
        return "DATA" in kinds
    is_run = (path / "checkpoints").is_dir()
    return made == "model" and ("MODEL" in kinds or ("RUN" in kinds and is_run) or ("CHECKPOINT" in kinds and not is_run))
