"""Files made of members of archives: unpacked, freed of markup where they have it, and put one after the other."""

import gzip
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

FORMAT = 1
"""Of what `write` makes of members. A change of it raises the number, or what was made before would stay in use."""
SEGMENT = re.compile(rb"<seg[^>]*>(.*)</seg>")
"""A sentence of a test set in SGML or XML. What is escaped in it stays so, as in what sacreBLEU makes of these files."""
UNWANTED = re.compile(rb"<(url|talkid|keywords)>")
TAG = re.compile(rb"</?(title|description)>")
"""Of training text with tags, as IWSLT has it: lines to leave out, and marks to take off lines that stay."""


@dataclass(frozen=True)
class Archive:
    """A tar file that can be downloaded."""

    name: str
    url: str
    hash: str | None = None
    """ALGORITHM:CHECKSUM; none where nobody has said it."""


@dataclass(frozen=True)
class Share:
    """A part of the lines: each so-manieth, or all but these."""

    every: int
    chosen: bool


def write(path: Path, members: Iterable[tuple[Path, str]], share: Share | None = None) -> None:
    """Write the lines of members, each an archive and a path in it, to `path`; all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.unfinished")
    with unfinished.open("wb") as target:
        lines = (line for archive, member in members for line in read(archive, member))
        target.writelines(lines if share is None else of_share(lines, share))
    unfinished.replace(path)


def of_share(lines: Iterable[bytes], share: Share) -> Iterator[bytes]:
    for number, line in enumerate(lines, 1):
        if (number % share.every == 0) == share.chosen:
            yield line


def read(archive: Path, member: str) -> Iterator[bytes]:
    """The sentences of a member, each with its line end. SystemExit with one line where it is not there, or damaged."""
    with ExitStack() as opened:
        try:
            packed = opened.enter_context(tarfile.open(archive))
            content: IO[bytes] | None = packed.extractfile(member)
            if content is None:
                raise KeyError("no file")
            unpacked: Iterable[bytes] = opened.enter_context(gzip.open(content)) if member.endswith(".gz") else content
            yield from sentences(member, unpacked)
        except (KeyError, EOFError, tarfile.TarError, gzip.BadGzipFile, zlib.error) as error:
            reason = str(error.args[0] if error.args else error).splitlines()[0].strip("\"'")
            raise SystemExit(
                f"recipe: error: {archive}: {member} cannot be read: {reason}; remove the archive to get it anew"
            ) from None


def sentences(name: str, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Without markup: what kind a file has is told by its name."""
    for line in lines:
        if name.endswith((".sgm", ".xml")):
            found = SEGMENT.search(line)
            if found:
                yield b" ".join(found[1].split()) + b"\n"
        elif "train.tags." in name:
            if not UNWANTED.search(line):
                yield TAG.sub(b"", line).strip() + b"\n"
        else:
            yield line.removesuffix(b"\n") + b"\n"
