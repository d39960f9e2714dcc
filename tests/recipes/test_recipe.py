"""Where a recipe's files come from: a folder, or a server asked once."""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from recipe import Recipe, fetch, read
from run import main

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


def recipe(url: str) -> Recipe:
    sha256 = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    sides = ["a.en", "a.de"]
    return Recipe(Path("a.toml"), "A", url, sha256, train=sides, valid=sides, test=sides, published=[], settings={})


def contents(files: dict[str, Path]) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in files.items()}


def test_files_are_downloaded_once(server: Server, tmp_path: Path) -> None:
    found = fetch(recipe(server.url))
    assert contents(found) == FILES
    assert all(path.is_relative_to(tmp_path / "cache") for path in found.values())
    assert sorted(server.asked) == ["/a.de", "/a.en"]
    assert fetch(recipe(server.url)) == found
    found["a.de"].write_bytes(b"damaged\n")
    assert contents(fetch(recipe(server.url))) == FILES
    assert sorted(server.asked) == ["/a.de", "/a.de", "/a.en"]


def test_an_empty_name_of_a_folder_is_none(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NMT_DATA", "")
    assert contents(fetch(recipe(server.url))) == FILES


def test_what_has_another_checksum_is_refused_and_not_kept(server: Server, folder: Path, tmp_path: Path) -> None:
    (folder / "a.de").write_bytes(b"zwei\neins\n")
    with pytest.raises(SystemExit, match=rf"^recipe: error: {server.url}: .*hash.*a\.de.*NMT_DATA=DIR"):
        fetch(recipe(server.url))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.read_bytes() == b"zwei\neins\n"]


@pytest.mark.parametrize("gone", ["file", "server"])
def test_a_server_that_has_nothing_is_named_with_the_way_out(gone: str, server: Server, folder: Path) -> None:
    if gone == "file":
        (folder / "a.en").unlink()
    else:
        server.stop()
    with pytest.raises(
        SystemExit, match=rf"^recipe: error: {server.url}: .*{'404' if gone == 'file' else 'refused'}.*NMT_DATA=DIR"
    ):
        fetch(recipe(server.url))


def test_the_home_directory_may_be_a_tilde(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NMT_DATA", "~/files")
    assert contents(fetch(recipe("https://example.invalid/"))) == FILES


GOOD = """
[recipe]
title = "A"
url = "https://example.invalid/"
published = []
train = ["a.en", "a.de"]
valid = ["a.en", "a.de"]
test = ["a.en", "a.de"]
[recipe.sha256]
"a.en" = "1"
"a.de" = "2"
[train]
seed = 1
"""
BAD = [
    (lambda text: "", "has no table [recipe]"),
    (lambda text: "[train]\nseed = 1\n", "has no table [recipe]"),
    (lambda text: "recipe = 1\n", "has no table [recipe]"),
    (lambda text: "{not toml", "not valid TOML: "),
    (lambda text: "x = 1" + "1" * 5000, "not valid TOML: "),
    *(
        (lambda text, key=key: text.replace(f"{key} = ", f"{key}_ = "), f"no key {key}")
        for key in ("title", "url", "train", "test")
    ),
    (lambda text: text.replace("[recipe.sha256]", "[recipe.sums]"), "no key sha256"),
    (lambda text: text.replace("title", "name = 1\ntitle"), "unknown key name"),
    (lambda text: text.replace("title", "path = 1\ntitle"), "unknown key path"),
    (lambda text: text.replace('"A"', "1"), "recipe.title must be text"),
    (lambda text: text.replace('["a.en", "a.de"]', '"a.en"', 1), "recipe.train must be two file names"),
    (lambda text: text.replace('"2"', "2"), "recipe.sha256 must be"),
    (lambda text: text.replace('"a.de" = "2"', ""), "no checksum of a.de"),
    (lambda text: text.replace("published = []", 'published = [{system = "X"}]'), "recipe.published must be"),
    (lambda text: f"train_ = 1\n{text}", "train_ must be a table"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_a_file_that_is_no_recipe_is_refused_in_one_line(change: Callable[[str], str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(GOOD, encoding="utf-8")
    assert read(path).train == ["a.en", "a.de"]
    path.write_text(change(GOOD), encoding="utf-8")
    with pytest.raises(SystemExit) as refused:
        main([str(path)])
    told = str(refused.value)
    assert told.startswith(f"recipe: error: {path}: ") and message in told and "\n" not in told


def test_a_recipe_that_is_not_utf8_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"# \xfc\n" + GOOD.encode())
    with pytest.raises(SystemExit, match=r"^recipe: error: .*a\.toml: not valid TOML: .*utf-8"):
        main([str(tmp_path / "a.toml")])


def test_a_folder_without_a_place_for_the_table_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD, encoding="utf-8")
    with pytest.raises(SystemExit, match=r"^recipe: error: .*README\.md: cannot be read"):
        main([str(tmp_path / "a.toml"), "-o", str(tmp_path / "work")])
    assert not (tmp_path / "work").exists()
