"""Where a recipe's files come from: a folder, or a server asked once."""

import hashlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from recipe import Recipe, fetch

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
