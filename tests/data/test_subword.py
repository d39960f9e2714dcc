"""Subword models: against Python's own Unicode tables and string methods, and against the promises of ids and seeds."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.subword import LONGEST_LINE, Kind, Normalization, Recipe, Subword, train_subword
from nmt.errors import NmtError
from nmt.vocab import BOS, EOS, PAD, SYMBOLS, UNK

TEXT = [
    f"{article} {colour} {thing} {verb} {number}, isn't it? / & ß Ö é"
    for number, article in enumerate(["the", "a", "one", "my"])
    for colour in ("green", "yellow", "reddish", "Blue")
    for thing in ("house", "mouse", "houseboat", "tree")
    for verb in ("stands", "falls", "opens", "understands")
] * 2
KINDS: list[Kind] = ["bpe", "unigram", "char", "word"]


def train(
    text: list[str] = TEXT,
    kind: Kind = "bpe",
    size: int = 200,
    normalization: Normalization = "nmt_nfkc",
    lowercase: bool = False,
    coverage: float = 1.0,
    byte_fallback: bool = False,
) -> Subword:
    return train_subword(text, Recipe(kind, size, normalization, lowercase, coverage, byte_fallback), "vocabulary").subword


@pytest.fixture(scope="module")
def bpe() -> Subword:
    return train()


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_the_control_symbols(kind: Kind) -> None:
    model = train(kind=kind)
    assert model.kind == kind
    assert tuple(model.pieces([PAD, UNK, BOS, EOS])) == SYMBOLS
    assert model.decode([PAD, BOS, EOS]) == ""
    assert [model.pieces([i])[0] for i in range(len(model))].count("</s>") == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_text_that_spells_control_symbols_is_text(kind: Kind, byte_fallback: bool) -> None:
    line = "</s> <s> <pad> <unk> a b<0x41></s>"
    text = [line] * 50 + [*TEXT]
    model = train(text, kind, 600, byte_fallback=byte_fallback)
    ids = model.encode(line)
    assert not {PAD, BOS, EOS} & set(ids)
    if kind != "word":
        assert model.decode(ids) == line


def test_characters_that_stand_only_in_control_symbols_are_covered() -> None:
    model = train(["</s> <s> <pad> <unk>"] * 20)
    assert UNK not in model.encode("</s> <s> <pad> <unk>")


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\0\r\u2028\u2581\u2585 <>/s")))
def test_any_text_gives_ordinary_ids_and_one_line(bpe: Subword, text: str) -> None:
    ids = bpe.encode(text)
    assert not {PAD, BOS, EOS} & set(ids)
    assert "\n" not in bpe.decode(ids)


@given(st.text("the green\u00a0houseÖß&é/"))
def test_round_trip_of_covered_text(bpe: Subword, text: str) -> None:
    assert bpe.decode(bpe.encode(text)) == " ".join(unicodedata.normalize("NFKC", text).split())


def test_control_bytes_shorten_nothing() -> None:
    model = train([*TEXT, "a\0b"] * 2, normalization="identity", byte_fallback=True, size=500)
    for character in "\0\x01\x0b\x1c\x7f":
        assert model.decode(model.encode(f"green{character}house tree")) == f"green{character}house tree"


def test_normalisation_is_what_it_says() -> None:
    line = "①２ﬁ…Å a  b\tc e\u0301"
    characters = [line + unicodedata.normalize("NFKC", line)] * 5
    composed = train(characters, normalization="nmt_nfkc")
    assert composed.decode(composed.encode(line)) == " ".join(unicodedata.normalize("NFKC", line).split())
    identity = train(characters, normalization="identity")
    assert identity.decode(identity.encode(line)) == line.replace("  ", " ")


@pytest.mark.parametrize("normalization", ["nmt_nfkc", "nfkc", "identity"])
def test_lower_case_is_in_the_model(normalization: Normalization) -> None:
    line = "ÀÉÎ Straße GROẞ Σίσυφος ΣΑΣ İstanbul Щука Ǆ ÅE\u0301"
    lowered = "".join(character.lower() for character in line)  # one by one: Python's final sigma looks at neighbours
    if normalization != "identity":
        lowered = "".join(character.lower() for character in unicodedata.normalize("NFKC", line))
    model = train([lowered] * 9, normalization=normalization, lowercase=True)
    assert model.decode(model.encode(line)) == model.decode(model.encode(lowered)) == lowered
    assert UNK not in model.encode(line)


@pytest.mark.parametrize("blank", ["", "  ", "\u00a0\u3000", "\u200b", "\t"])
def test_blanks_encode_to_nothing(bpe: Subword, blank: str) -> None:
    assert bpe.encode(blank) == []


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_same_text_gives_the_same_model(kind: Kind) -> None:
    assert train(kind=kind).fingerprint == train(kind=kind).fingerprint


def test_a_batch_is_encoded_as_its_lines_are(bpe: Subword) -> None:
    assert bpe.encode_batch(TEXT) == [bpe.encode(line) for line in TEXT]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_a_vocabulary_too_small_names_the_size_needed(kind: Kind, byte_fallback: bool) -> None:
    needed = len(set("".join(TEXT))) + len(SYMBOLS) + 256 * byte_fallback
    for size in (1, 4, needed - 1):
        with pytest.raises(NmtError, match=f"give --vocab-size {needed} or more, or a --character-coverage below 1"):
            train(kind=kind, size=size, byte_fallback=byte_fallback)
    assert len(train(kind=kind, size=needed, byte_fallback=byte_fallback)) <= needed
    assert len(train(kind=kind, size=needed - 1, coverage=0.98, byte_fallback=byte_fallback)) < needed


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_too_large_becomes_what_the_text_supports(kind: Kind) -> None:
    assert 20 < len(train(kind=kind, size=8000)) < 2000


def test_long_lines_are_counted_and_of_ordinary_length_used() -> None:
    trained = train_subword(
        [*TEXT, "x" * 6000, "Ж" * LONGEST_LINE, "q" * (LONGEST_LINE + 1)], Recipe("bpe", 300, "nmt_nfkc", False, 1.0, False), "it"
    )
    assert trained.skipped == 2
    assert UNK not in trained.subword.encode("xxx")
    assert trained.subword.uncovered("xЖq the Ж") == ["Ж", "q", "Ж"]


def test_lines_with_the_trainers_own_mark_are_used() -> None:
    model = train(["▅ only here: zebra ▅"] * 9)
    assert UNK not in model.encode("zebra")
    assert model.uncovered("▅z▅☃") == ["▅", "▅", "☃"]


def test_no_text_is_an_error() -> None:
    for text in ([], [" ", "\u200b"]):
        with pytest.raises(NmtError, match="no text"):
            train(text)


def test_an_error_while_reading_comes_through() -> None:
    def lines() -> object:
        yield "a"
        raise NmtError("file, line 2: broken")

    with pytest.raises(NmtError, match="file, line 2: broken"):
        train_subword(lines(), Recipe("bpe", 300, "nmt_nfkc", False, 1.0, False), "it")


def test_the_trainer_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    train(lowercase=True)
    with pytest.raises(NmtError):
        train(size=5)
    assert capfd.readouterr() == ("", "")


def test_a_model_file_keeps_its_bytes(bpe: Subword, tmp_path: Path) -> None:
    bpe.save(tmp_path / "one.model")
    again = Subword.load(tmp_path / "one.model")
    again.save(tmp_path / "two.model")
    assert (tmp_path / "one.model").read_bytes() == (tmp_path / "two.model").read_bytes()
    assert again.fingerprint == bpe.fingerprint
    assert again.kind == "bpe"
    assert again.encode_batch(TEXT) == bpe.encode_batch(TEXT)


def test_what_is_no_model_is_refused(bpe: Subword, tmp_path: Path) -> None:
    path = tmp_path / "it.model"
    with pytest.raises(NmtError, match=r"it\.model: no such file"):
        Subword.load(path)
    for content in (b"", b"not a model", b"\x0a\xff\xff"):
        path.write_bytes(content)
        with pytest.raises(NmtError, match=r"it\.model"):
            Subword.load(path)


def test_a_model_with_other_ids_is_refused(tmp_path: Path) -> None:
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(TEXT), model_writer=model, vocab_size=100, hard_vocab_limit=False, minloglevel=2
    )
    path = tmp_path / "default.model"
    path.write_bytes(model.getvalue())
    with pytest.raises(NmtError, match=r"default\.model: its <pad> <unk> <s> </s> have the ids \(-1, 0, 1, 2\)"):
        Subword.load(path)


def test_a_byte_piece_cannot_break_the_line() -> None:
    model = train(byte_fallback=True, size=500)
    newline = next(i for i in range(len(model)) if model.pieces([i]) == ["<0x0A>"])
    assert model.decode([*model.encode("green"), newline, *model.encode("tree")]) == "green  tree"
    assert UNK not in model.encode("☃ Ж")
    assert model.uncovered("☃ Ж") == []
    assert model.decode(model.encode("☃ Ж")) == "☃ Ж"
