"""The parallel text of recipes: which files, where they come from, their checksums; one TOML file each in data/."""

import gzip
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pooch
from toml_file import check, read_tables, refuse

Sides = Mapping[str, str]
"""The file of each language."""


@dataclass(frozen=True)
class Test:
    """A test set."""

    name: str
    sides: Sides
    tokens: Sides
    """Lower-cased, tokenised, or whatever papers score, as its authors made it; empty where they made none."""


@dataclass(frozen=True)
class Tokens:
    """How papers make the tokens that they score, where the authors of the text did not."""

    lowercase: bool = False
    normalize: bool = False
    """Punctuation, as Moses does."""
    compounds: bool = False
    """Split at hyphens, which then are words of their own."""

    def options(self) -> list[str]:
        """Of tokens.py."""
        return [f"--{name}" for name in ("lowercase", "normalize", "compounds") if getattr(self, name)]


@dataclass(frozen=True)
class Texts:
    """Parallel text in two languages or more, any of which may be the source."""

    path: Path
    title: str
    source: str
    """Whom to thank and to cite."""
    train: Sides
    valid: Sides
    tests: tuple[Test, ...]
    tokens: Tokens
    urls: dict[str, str]
    """Of each file; empty where it cannot be downloaded."""
    sha256: dict[str, str]
    """Of each file."""

    def names(self, *languages: str) -> list[str]:
        """The files that a recipe of these languages needs."""
        parts = [self.train, self.valid, *(side for test in self.tests for side in (test.sides, test.tokens))]
        return [part[language] for part in parts for language in languages if language in part]


def read(path: Path) -> Texts:
    """What a file of data/ says. SystemExit with one line where that makes no sense."""
    told = read_tables(path)
    shape = {"title": str, "source": str, "train": dict, "valid": dict, "test": dict, "place": list}
    check(path, "", told, shape, {"tokens": dict})
    tests = []
    for name, test in told["test"].items():
        sides = {key: value for key, value in test.items() if key != "tokens"}
        tests.append(Test(name, sides, test.get("tokens", {})))
    urls, sha256 = {}, {}
    for place in told["place"]:
        check(path, "place", place, {"sha256": dict}, {"url": str})
        for name, checksum in place["sha256"].items():
            urls[name], sha256[name] = f"{place['url']}{name}" if "url" in place else "", checksum
    settings = told.get("tokens", {})
    check(path, "tokens", settings, {}, dict.fromkeys(("lowercase", "normalize", "compounds"), bool))
    texts = Texts(path, told["title"], told["source"], told["train"], told["valid"], tuple(tests), Tokens(**settings), urls, sha256)
    for name in texts.names(*{language for part in (texts.train, *(test.sides for test in tests)) for language in part}):
        if name not in sha256:
            refuse(path, f"there is no checksum of {name} in a [place.sha256]")
    return texts


def fetch(texts: Texts, *languages: str) -> dict[str, Path]:
    """The files by name, checksums checked: from the folder NMT_DATA where that is set, else downloaded and kept."""
    names = texts.names(*languages)
    folder = os.environ.get("NMT_DATA")
    if folder:
        return {name: _taken(texts, name, Path(folder).expanduser()) for name in names}
    found = {}
    for name in names:
        if not texts.urls[name]:
            refuse(texts.path, f"{name} cannot be downloaded; NMT_DATA=DIR takes the files from a folder")
        try:
            known, place = f"sha256:{texts.sha256[name]}", pooch.os_cache("nmt") / texts.path.stem
            found[name] = Path(pooch.retrieve(texts.urls[name], known, fname=name.replace("/", "-"), path=place))
        except (OSError, ValueError) as error:
            raise SystemExit(f"recipe: error: {texts.urls[name]}: {error}; NMT_DATA=DIR takes the files from a folder") from None
    return found


def _taken(texts: Texts, name: str, folder: Path) -> Path:
    """A file that lies in a folder, as it is named or packed."""
    plain, packed = folder / name, folder / f"{name}.gz"
    if plain.is_file():
        path, sha256 = plain, pooch.file_hash(str(plain))
    elif packed.is_file():
        path, sha256 = packed, hashlib.sha256(gzip.decompress(packed.read_bytes())).hexdigest()
    else:
        raise SystemExit(f"recipe: error: {plain}: no such file; NMT_DATA must hold {', '.join(texts.sha256)}")
    if sha256 != texts.sha256[name]:
        raise SystemExit(f"recipe: error: {path}: not the file that {texts.path.name} names: its sha256 differs")
    return path
