"""The parallel text of recipes: which files, where they come from, their checksums; one TOML file each in data/.

A file is downloaded as it is (`[[place]]`), or made of members of archives (`[[archive]]` and `[made]`; see `archives`).
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import archives
import pooch
from archives import Archive, Share
from steps import digest, held, say
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


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """How papers make the tokens that they score, where the authors of the text did not."""

    split: bool = True
    """False where the text is tokens already: then it is scored as it is."""
    lowercase: bool = False
    normalize: bool = False
    """Punctuation, as Moses does."""
    compounds: bool = False
    """Split at hyphens, which then are words of their own; of `a-b-c`, as tensor2tensor's script has it, the first."""

    def options(self) -> list[str]:
        """Of moses.py."""
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
    """Of each file that is downloaded as it is; empty where it cannot be."""
    sha256: dict[str, str]
    """Of each of these files."""
    archives: dict[str, Archive]
    made: dict[str, list[str]]
    """Of each other file the members that it is made of, one after the other: ARCHIVE/PATH."""
    valid_every: int | None
    """The validation set is each so-manieth pair of the training text, which then does without it."""
    mean_length: int | None
    """Target tokens of a sentence: what `--estimate` makes up a corpus by."""

    def names(self, *languages: str) -> list[str]:
        """The files that a recipe of these languages needs."""
        parts = [self.train, self.valid, *(side for test in self.tests for side in (test.sides, test.tokens))]
        return [part[language] for part in parts for language in languages if language in part]

    def made_of(self, *languages: str) -> dict[str, Any]:
        """What a record says of the files of these languages that are made; their checksums do not tell how."""
        made = {name: self.made[name] for name in self.names(*languages) if name in self.made}
        return {"made": made, "valid_every": self.valid_every} if made else {}

    def share(self, name: str) -> Share | None:
        """The lines that a file has of what it is made of; none: all."""
        if self.valid_every is None or name not in {*self.train.values(), *self.valid.values()}:
            return None
        return Share(self.valid_every, name in self.valid.values())


def read(path: Path) -> Texts:
    """What a file of data/ says. SystemExit with one line where that makes no sense."""
    told = read_tables(path)
    shape = {"title": str, "source": str, "train": dict, "valid": dict, "test": dict}
    more = {"tokens": dict, "place": list, "archive": list, "made": dict, "valid_every": int, "mean_length": int}
    check(path, "", told, shape, more)
    tests = []
    for name, test in told["test"].items():
        sides = {key: value for key, value in test.items() if key != "tokens"}
        tests.append(Test(name, sides, test.get("tokens", {})))
    if "valid" in told["test"]:
        refuse(path, "test.valid: the validation set is scored under that name; give the test set another")
    urls, sha256 = {}, {}
    for place in told.get("place", []):
        check(path, "place", place, {"sha256": dict}, {"url": str})
        for name, checksum in place["sha256"].items():
            urls[name], sha256[name] = f"{place['url']}{name}" if "url" in place else "", checksum
    settings = told.get("tokens", {})
    check(path, "tokens", settings, {}, dict.fromkeys(("split", "lowercase", "normalize", "compounds"), bool))
    texts = Texts(
        path=path,
        title=told["title"],
        source=told["source"],
        train=told["train"],
        valid=told["valid"],
        tests=tuple(tests),
        tokens=Tokens(**settings),
        urls=urls,
        sha256=sha256,
        archives=_archives(path, told),
        made=told.get("made", {}),
        valid_every=told.get("valid_every"),
        mean_length=told.get("mean_length"),
    )
    for name in texts.names(*{language for part in (texts.train, *(test.sides for test in tests)) for language in part}):
        if name not in sha256 and name not in texts.made:
            refuse(path, f"there is no checksum of {name} in a [place.sha256], and [made] does not say what it is made of")
    return texts


def _archives(path: Path, told: dict[str, Any]) -> dict[str, Archive]:
    """By name; all that [made] speaks of are there."""
    found = {}
    for archive in told.get("archive", []):
        check(path, "archive", archive, {"name": str, "url": str}, {"hash": str})
        found[archive["name"]] = Archive(**archive)
    for name, members in told.get("made", {}).items():
        for member in members:
            if member.partition("/")[0] not in found:
                refuse(path, f"made.{name}: {member}: there is no such [[archive]]; there are {', '.join(found)}")
    return found


def fetch(texts: Texts, *languages: str, folder: Path | None = None) -> dict[str, Path]:
    """The files by name, checksums checked: from a folder, or NMT_DATA where that is set, else downloaded and kept."""
    names = texts.names(*languages)
    here = folder or os.environ.get("NMT_DATA")
    if here:
        return {name: _taken(texts, name, Path(here).expanduser()) for name in names}
    cache = pooch.os_cache("nmt") / texts.path.stem
    return {name: _made(texts, name, cache) if name in texts.made else _downloaded(texts, name, cache) for name in names}


def sha256(texts: Texts, files: Mapping[str, Path]) -> dict[str, str]:
    """Of each file: the checksum by which it is known, or, of one that is made here, what it turned out to be, unpacked."""
    return {name: texts.sha256.get(name) or _sha256_unpacked(path) for name, path in files.items()}


def _downloaded(texts: Texts, name: str, cache: Path) -> Path:
    if not texts.urls[name]:
        refuse(texts.path, f"{name} cannot be downloaded; NMT_DATA=DIR takes the files from a folder")
    return retrieve(texts.urls[name], f"sha256:{texts.sha256[name]}", cache / name.replace("/", "-"))


def _made(texts: Texts, name: str, cache: Path) -> Path:
    """A file made of members of archives; in a folder named by what it is made of, so that it is not taken for another."""
    members, share = texts.made[name], texts.share(name)
    needed = {archive: texts.archives[archive] for archive in dict.fromkeys(member.partition("/")[0] for member in members)}
    hashes = [archive.hash for archive in needed.values()]
    path = cache / digest([archives.FORMAT, members, share and asdict(share), hashes]) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with held(path.parent):
        if not path.is_file():
            found = {key: retrieve(each.url, each.hash, cache / each.url.rpartition("/")[2]) for key, each in needed.items()}
            archives.write(path, [(found[key], inside) for key, _, inside in (member.partition("/") for member in members)], share)
    return path


def retrieve(url: str, known: str | None, path: Path) -> Path:
    """A file of the net, kept at `path`. Where no checksum is known, it is taken as it comes, and said what it turned out to be."""
    if known is None and not path.is_file():
        say(f"{url}: checksum unknown: nobody has run this here")
    try:
        found = Path(pooch.retrieve(url, known, fname=path.name, path=path.parent))
    except (OSError, ValueError) as error:
        raise SystemExit(f"recipe: error: {url}: {error}; NMT_DATA=DIR takes the files from a folder") from None
    if known is None:
        say(f"{url}: sha256:{pooch.file_hash(str(found))}, taken as it is")
    return found


def _taken(texts: Texts, name: str, folder: Path) -> Path:
    """A file that lies in a folder, as it is named or packed."""
    plain, packed = folder / name, folder / f"{name}.gz"
    path = next((path for path in (plain, packed) if path.is_file()), None)
    if path is None:
        raise SystemExit(f"recipe: error: {plain}: no such file; NMT_DATA must hold {', '.join([*texts.sha256, *texts.made])}")
    if name not in texts.sha256:
        say(f"{path}: no checksum is known of it; it is taken as it is")
    elif (pooch.file_hash(str(path)) if path == plain else _sha256_unpacked(path)) != texts.sha256[name]:
        raise SystemExit(f"recipe: error: {path}: not the file that {texts.path.name} names: its sha256 differs")
    return path


def _sha256_unpacked(path: Path) -> str:
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SystemExit(f"recipe: error: {path}: is damaged ({str(error).lower()})") from None
