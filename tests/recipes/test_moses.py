"""The tokens that papers score."""

import gzip
from pathlib import Path

import pytest
from moses import main, tokenized
from texts import Tokens

SHARED = Path(__file__).parents[3] / "shared" / "data" / "multi30k"


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ([], "A Well-Known „ word “ isn ’ t mine . &apos; &amp;"),
        (["--lowercase"], "a well-known „ word “ isn ’ t mine . &apos; &amp;"),
        (["--normalize"], "A Well-Known &quot; word &quot; isn &apos; t mine . &apos; &amp;"),
        (["--compounds"], "A Well ##AT##-##AT## Known „ word “ isn ’ t mine . &apos; &amp;"),
    ],
)
def test_each_option_does_its_own(options: list[str], tokens: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("A Well-Known „word“ isn’t mine. ' &\n\n", encoding="utf-8")
    main([str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--language", "de", *options])
    assert (tmp_path / "out").read_text(encoding="utf-8") == f"{tokens}\n\n"


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("part", ["test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"])
def test_they_are_those_of_the_authors_of_multi30k(part: str, language: str) -> None:
    paths = SHARED / f"{part}.{language}.gz", SHARED / "tok" / f"{part}.lc.norm.tok.{language}.gz"
    if not paths[0].is_file():
        pytest.skip("no ../shared/data to compare with")
    text, tokens = (gzip.decompress(path.read_bytes()).decode().split("\n")[:-1] for path in paths)
    assert tokenized(text, language, Tokens(lowercase=True, normalize=True)) == tokens
