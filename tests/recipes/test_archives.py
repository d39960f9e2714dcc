"""Files made of members of archives."""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import archives
import pooch
import pytest
import texts
from steps import held

MEMBERS = {
    "a/one.en": b"first\r\nsecond \xc2\x85 half\nthird",
    "a/two.en.gz": gzip.compress(b"fourth\n"),
    "a/news-src.en.sgm": b'<doc>\n<p>\n<seg id="1">One  &amp;\tmore </seg>\n</p>\n<seg id="2"></seg>\n</doc>\n',
    "a/train.tags.en": b"<url>x</url>\n<title>A talk</title>\n<talkid>1</talkid>\n Good <b>day</b> .\n",
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "all.tgz"
    with tarfile.open(path, "w:gz") as packed:
        for name, content in MEMBERS.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            packed.addfile(about, io.BytesIO(content))
    return path


def test_members_are_unpacked_freed_of_markup_and_joined(archive: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "joined"
    archives.write(path, [(archive, name) for name in MEMBERS])
    assert path.read_bytes().split(b"\n") == [
        *(b"first\r", b"second \xc2\x85 half", b"third", b"fourth"),
        *(b"One &amp; more", b""),
        *(b"A talk", b"Good <b>day</b> ."),
        b"",
    ]
    assert [each.name for each in path.parent.iterdir()] == ["joined"]


def test_test_sets_are_what_sacrebleu_makes_of_them(archive: Path, tmp_path: Path) -> None:
    from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

    # In a place of its own: the archive is unpacked already, so that nothing is downloaded.
    data = FakeSGMLDataset("x", data=[], langpairs={"en-en": ["a/news-src.en.sgm", "a/news-src.en.sgm"]})
    data._outdir, data._rawdir = str(tmp_path), str(tmp_path / "raw")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "raw", filter="data")
    data.process_to_text("en-en")
    theirs = Path(data._get_txt_file_path("en-en", "src")).read_bytes()
    assert b"".join(archives.read(archive, "a/news-src.en.sgm")) == theirs


def test_a_share_and_the_rest_are_the_whole() -> None:
    lines = [b"%d\n" % number for number in range(1, 50)]
    chosen = list(archives.of_share(lines, archives.Share(23, True)))
    assert chosen == [b"23\n", b"46\n"]
    assert list(archives.of_share(lines, archives.Share(23, False))) == [line for line in lines if line not in chosen]


def test_what_is_not_there_is_refused(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^recipe: error: .*all\.tgz: a/three cannot be read"):
        archives.write(tmp_path / "out", [(archive, "a/three")])
    (tmp_path / "no.tgz").write_bytes(b"not an archive")
    with pytest.raises(SystemExit, match=r"^recipe: error: .*no\.tgz"):
        archives.write(tmp_path / "out", [(tmp_path / "no.tgz", "a/one.en")])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("size", [20, 200, -8])
def test_a_damaged_archive_is_refused_in_one_line(size: int, archive: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.tgz").write_bytes(archive.read_bytes()[:size])
    (tmp_path / "page.tgz").write_bytes(b"<html>not found</html>")
    for name in ("cut", "page"):
        with pytest.raises(SystemExit, match=rf"^recipe: error: .*{name}\.tgz: .*; remove the archive") as refused:
            archives.write(tmp_path / "out", [(tmp_path / f"{name}.tgz", "a/two.en.gz"), (tmp_path / f"{name}.tgz", "z")])
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


TEXTS = """
title = "A"
source = "B"
valid_every = 2
train = { en = "train.en", de = "train.de" }
valid = { en = "valid.en", de = "valid.de" }
test.a = { en = "test.en", de = "test.de" }
archive = [{ name = "all", url = "https://example.invalid/all.tgz" }]

[made]
"train.en" = ["all/a/one.en", "all/a/two.en.gz"]
"train.de" = ["all/a/one.en", "all/a/two.en.gz"]
"valid.en" = ["all/a/one.en", "all/a/two.en.gz"]
"valid.de" = ["all/a/one.en", "all/a/two.en.gz"]
"test.en" = ["all/a/news-src.en.sgm"]
"test.de" = ["all/a/news-src.en.sgm"]
"""


def test_files_are_made_once_and_told_what_they_turned_out_to_be(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def retrieve(url: str, known: str | None, fname: str, path: Path) -> str:
        asked.append(url)
        assert known is None and fname == "all.tgz"
        return str(archive)

    monkeypatch.delenv("NMT_DATA", raising=False)
    monkeypatch.setattr(pooch, "retrieve", retrieve)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache")
    (tmp_path / "a.toml").write_text(TEXTS, encoding="utf-8")
    told = texts.read(tmp_path / "a.toml")
    found = texts.fetch(told, "en", "de")
    assert found["train.en"].read_bytes() == b"first\r\nthird\n" == found["train.de"].read_bytes()
    assert found["valid.en"].read_bytes() == b"second \xc2\x85 half\nfourth\n"
    assert found["test.de"].read_bytes() == b"One &amp; more\n\n"
    assert texts.sha256(told, found)["test.de"] == hashlib.sha256(b"One &amp; more\n\n").hexdigest()
    said = capsys.readouterr().err
    assert "checksum unknown" in said and hashlib.sha256(archive.read_bytes()).hexdigest() in said
    before = len(asked)
    assert texts.fetch(told, "en", "de") == found and len(asked) == before

    # Not while another process makes them.
    made = found["train.en"]
    made.unlink()
    with held(made.parent), pytest.raises(SystemExit, match="another process is at work there"):
        texts.fetch(told, "en", "de")
    assert texts.fetch(told, "en", "de") == found

    # A folder does as well; what lies in it is taken as it is.
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in found:
        (folder / f"{name}.gz").write_bytes(gzip.compress(name.encode()))
    taken = texts.fetch(told, "en", folder=folder)
    assert taken["test.en"] == folder / "test.en.gz" and "no checksum is known" in capsys.readouterr().err
    assert texts.sha256(told, taken)["test.en"] == hashlib.sha256(b"test.en").hexdigest()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"all/a/news-src.en.sgm"', '"none/a/x"', "there is no such"),
        ('"test.en" = ["all/a/news-src.en.sgm"]', "", "no checksum of test.en"),
        ("url", "link", "no key url"),
    ],
)
def test_a_file_of_texts_that_makes_no_sense_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(TEXTS.replace(old, new), encoding="utf-8")
    with pytest.raises(SystemExit, match=rf"^recipe: error: .*a\.toml: .*{message}"):
        texts.read(path)
