"""Where a recipe's files come from: a folder, or a server asked once."""

import gzip
import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import texts as corpora
from recipe import read
from run import main, record
from table import results
from texts import Texts, fetch

FILES = {"a.en": b"one\ntwo\n", "a.de": b"eins\nzwei\n"}


class Server:
    """Serves a folder on this machine, and notes what it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, format: str, *arguments: object) -> None:
                asked.append(self.path)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self.thread = Thread(target=self.server.serve_forever, args=[0.01], daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files, in a folder."""
    place = tmp_path / "files"
    place.mkdir()
    for name, content in FILES.items():
        (place / name).write_bytes(content)
    return place


@pytest.fixture
def server(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of the files; what is downloaded is kept in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("NMT_DATA", raising=False)
    found = Server(folder)
    yield found
    found.stop()


def texts(url: str, path: Path) -> Texts:
    """Whose every part is the two files, to be had at `url`."""
    sums = ", ".join(f'"{name}" = "{hashlib.sha256(content).hexdigest()}"' for name, content in FILES.items())
    path.write_text(TEXTS.replace("{ SUMS }", f"{{ {sums} }}").replace("https://example.invalid/", url), encoding="utf-8")
    return corpora.read(path)


def contents(files: dict[str, Path]) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in files.items()}


def test_files_are_downloaded_once(server: Server, tmp_path: Path) -> None:
    here = texts(server.url, tmp_path / "a.toml")
    found = fetch(here, "en", "de")
    assert contents(found) == FILES
    assert all(path.is_relative_to(tmp_path / "cache") for path in found.values())
    assert sorted(server.asked) == ["/a.de", "/a.en"]
    assert fetch(here, "en", "de") == found
    found["a.de"].write_bytes(b"damaged\n")
    assert contents(fetch(here, "en", "de")) == FILES
    assert sorted(server.asked) == ["/a.de", "/a.de", "/a.en"]


def test_only_the_languages_of_the_recipe_are_fetched(server: Server, tmp_path: Path) -> None:
    assert set(fetch(texts(server.url, tmp_path / "a.toml"), "de")) == {"a.de"}
    assert server.asked == ["/a.de"]


def test_an_empty_name_of_a_folder_is_none(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NMT_DATA", "")
    assert contents(fetch(texts(server.url, tmp_path / "a.toml"), "en", "de")) == FILES


def test_what_has_another_checksum_is_refused_and_not_kept(server: Server, folder: Path, tmp_path: Path) -> None:
    here = texts(server.url, tmp_path / "a.toml")
    (folder / "a.de").write_bytes(b"zwei\neins\n")
    with pytest.raises(SystemExit, match=rf"^recipe: error: {server.url}a\.de: .*hash.*NMT_DATA=DIR"):
        fetch(here, "en", "de")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.read_bytes() == b"zwei\neins\n"]


@pytest.mark.parametrize("gone", ["file", "server"])
def test_a_server_that_has_nothing_is_named_with_the_way_out(gone: str, server: Server, folder: Path, tmp_path: Path) -> None:
    here = texts(server.url, tmp_path / "a.toml")
    if gone == "file":
        (folder / "a.en").unlink()
    else:
        server.stop()
    with pytest.raises(
        SystemExit, match=rf"^recipe: error: {server.url}a.en: .*{'404' if gone == 'file' else 'refused'}.*NMT_DATA=DIR"
    ):
        fetch(here, "en", "de")


def test_a_file_that_cannot_be_downloaded_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NMT_DATA", raising=False)
    texts("", tmp_path / "a.toml")
    (tmp_path / "a.toml").write_text((tmp_path / "a.toml").read_text().replace('url = ""\n', ""), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"a\.toml: a\.en cannot be downloaded; NMT_DATA=DIR"):
        fetch(corpora.read(tmp_path / "a.toml"), "en", "de")


def test_the_home_directory_may_be_a_tilde(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NMT_DATA", "~/files")
    assert contents(fetch(texts("https://example.invalid/", tmp_path / "a.toml"), "en", "de")) == FILES


def test_a_file_may_lie_packed_in_the_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checksum is that of what it holds: how it was packed does not matter."""
    monkeypatch.setenv("NMT_DATA", str(folder))
    (folder / "a.de").unlink()
    (folder / "a.de.gz").write_bytes(gzip.compress(FILES["a.de"], compresslevel=1))
    here = texts("https://example.invalid/", tmp_path / "a.toml")
    assert fetch(here, "en", "de")["a.de"] == folder / "a.de.gz"
    (folder / "a.de.gz").write_bytes(gzip.compress(b"else\n"))
    with pytest.raises(SystemExit, match=r"a\.de\.gz: not the file that a\.toml names"):
        fetch(here, "en", "de")


TEXTS = """
title = "A"
source = "B"
train = { en = "a.en", de = "a.de" }
valid = { en = "a.en", de = "a.de" }
test.one = { en = "a.en", de = "a.de" }
[[place]]
url = "https://example.invalid/"
sha256 = { SUMS }
"""
GOOD = """
[recipe]
title = "A"
data = "a"
published = [{ system = "X", source = "Y", way = "tokens", scores = { one = 1.5 } }]
[preprocess]
source_lang = "en"
target_lang = "de"
[train]
seed = 3
"""
BAD = [
    (lambda text: "", "has no table [recipe]"),
    (lambda text: "[train]\nseed = 1\n", "has no table [recipe]"),
    (lambda text: "recipe = 1\n", "has no table [recipe]"),
    (lambda text: "{not toml", "not valid TOML: "),
    (lambda text: "x = 1" + "1" * 5000, "not valid TOML: "),
    *((lambda text, key=key: text.replace(f"{key} = ", f"{key}_ = "), f"no key {key}") for key in ("title", "data")),
    (lambda text: text.replace("title", "name = 1\ntitle"), "unknown key name"),
    (lambda text: text.replace('"A"', "1"), "recipe.title must be text"),
    (lambda text: text.replace('"tokens"', '"letters"'), "recipe.published.way must be tokens or sacrebleu"),
    (lambda text: text.replace("system", "name"), "no key system"),
    (lambda text: text.replace("published =", "ensemble = [1]\npublished ="), "recipe.ensemble must hold NAME:SEED"),
    (lambda text: text.replace("source_lang", "source_language"), "preprocess.source_lang must be text"),
    (lambda text: f"train_ = 1\n{text}", "train_ must be a table"),
    (lambda text: f'{text}[score]\nmetric = ["chrf"]\n', "score.metric must have bleu"),
]
BAD_TEXTS = [
    (lambda text: text.replace("source = ", "source_ = "), "no key source"),
    (lambda text: text.replace("train = ", "train = 1 #"), "train must be a table"),
    (lambda text: text.replace("sha256 = ", "sums = "), "no key sha256"),
    (lambda text: text.replace('"a.de" = ', '"b.de" = '), "no checksum of a.de"),
    (lambda text: f"tokens.lower = true\n{text}", "unknown key lower"),
]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe, and its text described in data/."""
    (tmp_path / "data").mkdir()
    texts("https://example.invalid/", tmp_path / "data" / "a.toml")
    (tmp_path / "a.toml").write_text(GOOD, encoding="utf-8")
    return tmp_path / "a.toml"


def test_what_a_recipe_says(recipe: Path) -> None:
    found = read(recipe)
    assert (found.name, found.title, found.languages, found.seed, found.ensemble) == ("a", "A", ("en", "de"), 3, ())
    assert found.published[0].scores == {"one": 1.5} and found.texts.tests[0].sides == {"en": "a.en", "de": "a.de"}
    recipe.write_text(GOOD.replace("published =", 'ensemble = ["b-c:1", "b-c:12"]\npublished ='), encoding="utf-8")
    assert read(recipe).ensemble == (("b-c", 1), ("b-c", 12))


@pytest.mark.parametrize(
    ("part", "change", "message"), [*(("a.toml", *bad) for bad in BAD), *(("data/a.toml", *bad) for bad in BAD_TEXTS)]
)
def test_a_file_that_is_no_recipe_is_refused_in_one_line(
    part: str, change: Callable[[str], str], message: str, recipe: Path
) -> None:
    path = recipe.parent / part
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(SystemExit) as refused:
        main([str(recipe)])
    told = str(refused.value)
    assert told.startswith(f"recipe: error: {path}: ") and message in told and "\n" not in told


def test_a_recipe_that_is_not_utf8_is_refused_in_one_line(recipe: Path) -> None:
    recipe.write_bytes(b"# \xfc\n" + GOOD.encode())
    with pytest.raises(SystemExit, match=r"^recipe: error: .*a\.toml: not valid TOML: .*utf-8"):
        main([str(recipe)])


def test_runs_of_other_text_or_of_other_files_are_not_told_of_together(recipe: Path) -> None:
    """Of files that are made here no checksum is known: the record's own is all that tells them apart."""
    path = recipe.parent / "data" / "a.toml"
    made = '[made]\n"a.en" = ["b/en"]\n"a.de" = ["b/de"]\n[[archive]]\nname = "b"\nurl = "https://example.invalid/b.tgz"\n'
    path.write_text(TEXTS.split("[[place]]")[0] + made, encoding="utf-8")
    (recipe.parent / "results").mkdir()
    result = recipe.parent / "results" / "a.json"
    for seed, text, seeds in ((1, "x", [1]), (2, "x", [1, 2]), (3, "y", [3])):
        record(read(recipe), {"seed": seed}, dict.fromkeys(FILES, text), result)
        found = results(read(recipe), result)
        assert found is not None and [each["seed"] for each in found["runs"]] == seeds
    path.write_text(path.read_text(encoding="utf-8").replace('"b/en"', '"b/en", "b/more"'), encoding="utf-8")
    assert results(read(recipe), result) is None


def test_a_record_of_an_ensemble_is_of_these_members_with_these_settings(recipe: Path) -> None:
    member, both, result = (recipe.with_name(name) for name in ("b.toml", "both.toml", "both.json"))
    member.write_text(GOOD, encoding="utf-8")

    def together(*names: str) -> Path:
        both.write_text(GOOD.replace("published =", f"ensemble = {list(names)}\npublished ="), encoding="utf-8")
        return both

    def about(name: str, seed: int) -> dict[str, object]:
        return {"recipe": name, "seed": seed, "settings": read(recipe.with_name(f"{name}.toml")).settings}

    runs = {"seed": 3, "members": [about("a", 1), about("b", 1)]}
    record(read(together("a:1", "b:1")), runs, dict(read(both).texts.sha256), result)
    assert results(read(both), result) is not None
    for names in (("a:1", "b:2"), ("a:1",), ("b:1", "a:1"), ()):
        assert results(read(together(*names)), result) is None
    member.write_text(f"{GOOD}max_steps = 7\n", encoding="utf-8")
    assert results(read(together("a:1", "b:1")), result) is None


def test_a_folder_without_a_place_for_the_table_is_refused_before_the_work(recipe: Path) -> None:
    with pytest.raises(SystemExit, match=r"^recipe: error: .*README\.md: cannot be read"):
        main([str(recipe), "-o", str(recipe.parent / "work")])
    assert not (recipe.parent / "work").exists()
