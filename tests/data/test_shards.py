"""Shards: what was written is read, in any chunks, and damage is refused by name."""

import json
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.shards import Dataset, ParallelData, ParallelWriter, Sequences, SequencesWriter, token_type
from nmt.data.subword import Recipe, train_subword
from nmt.errors import NmtError


@given(
    st.lists(st.lists(st.lists(st.integers(0, 65_535), max_size=9), max_size=4), max_size=5), st.sampled_from([1 << 16, 100_000])
)
def test_lines_written_in_chunks_are_read_back(chunks: list[list[list[int]]], vocabulary: int) -> None:
    lines = [line for chunk in chunks for line in chunk]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "train.source")
        with SequencesWriter.create(path, vocabulary) as writer:
            for chunk in chunks:
                writer.append(Sequences.of(chunk))
        read = Sequences.open(path, vocabulary, writer.lines, writer.tokens)
        assert [[int(id) for id in read[i]] for i in range(len(read))] == lines
        assert read.lengths.tolist() == [len(line) for line in lines]
        assert read.lengths.dtype == np.int64
        with pytest.raises(IndexError):
            read[len(lines)]
        with pytest.raises(IndexError):
            read[-1]


@given(st.lists(st.tuples(st.lists(st.integers(0, 99_999), max_size=9), st.booleans())))
def test_chosen_lines_stay_in_their_order(lines: list[tuple[list[int], bool]]) -> None:
    left = Sequences.of([ids for ids, _ in lines]).where(np.array([chosen for _, chosen in lines], bool))
    assert [left[i].tolist() for i in range(len(left))] == [ids for ids, chosen in lines if chosen]
    assert left.lengths.tolist() == [len(ids) for ids, chosen in lines if chosen]


def test_ids_of_large_vocabularies_fit() -> None:
    assert token_type(65_536).itemsize == 2
    assert token_type(65_537).itemsize == 4
    with tempfile.TemporaryDirectory() as directory:
        with SequencesWriter.create(Path(directory, "it"), 100_000) as writer:
            writer.append(Sequences.of([[99_999, 0]]))
        assert Sequences.open(Path(directory, "it"), 100_000, 1, 2)[0].tolist() == [99_999, 0]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data directory written by hand."""
    subword = train_subword(["a b c d e f"] * 9, Recipe("bpe", 30, "nmt_nfkc", False, 1.0, False), "it").subword
    for side in ("source", "target"):
        subword.save(tmp_path / f"{side}.model")
    splits = {}
    for split, size in (("train", 50), ("valid", 0)):
        with ParallelWriter.create(tmp_path, split, len(subword), len(subword)) as writer:
            numbers = random.Random(split)
            for _ in range(size):
                writer.append(*(Sequences.of([[id] * numbers.randint(1, 9)]) for id in (5, 6)))
        splits[split] = writer.sizes
    config = {
        "kind": "data",
        "format": 1,
        "version": "9.9",
        "languages": ["en", None],
        "vocabulary": {"shared": True, "source_sha256": subword.fingerprint, "target_sha256": subword.fingerprint},
        "splits": splits,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_directory_is_opened(directory: Path) -> None:
    data = Dataset.open(directory)
    assert (len(data.train), len(data.valid), data.shared, data.languages) == (50, 0, True, ("en", None))
    expected = [[len(data.train.src[i]) + 1, len(data.train.tgt[i]) + 1] for i in range(50)]
    assert data.train.lengths.tolist() == expected
    assert data.valid.lengths.shape == (0, 2)
    assert isinstance(data.train, ParallelData)


@pytest.mark.parametrize("name", ["train.source.tokens", "train.target.offsets", "valid.source.offsets"])
@pytest.mark.parametrize("damage", ["shorter", "longer", "missing"])
def test_a_file_of_another_size_is_refused_by_name(directory: Path, name: str, damage: str) -> None:
    path = directory / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-1] if damage == "shorter" else content + b"x")
    with pytest.raises(NmtError, match=name):
        Dataset.open(directory)


def test_offsets_that_go_back_are_refused_by_name(directory: Path) -> None:
    path = directory / "train.source.offsets"
    offsets = np.fromfile(path, "<i8")
    offsets[3], offsets[4] = offsets[4], offsets[3]
    offsets.tofile(path)
    with pytest.raises(NmtError, match=r"train\.source\.offsets: is damaged"):
        Dataset.open(directory)


def test_another_subword_model_is_refused_by_name(directory: Path) -> None:
    train_subword(["a b c d e g"] * 9, Recipe("bpe", 30, "nmt_nfkc", False, 1.0, False), "it").subword.save(
        directory / "target.model"
    )
    with pytest.raises(NmtError, match=r"target\.model: is not the subword model that this data was made with"):
        Dataset.open(directory)


def test_what_is_no_data_directory_is_refused(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(NmtError, match="no such directory"):
        Dataset.open(tmp_path / "none")
    (tmp_path / "run").mkdir()
    with pytest.raises(NmtError, match="not a directory that nmt preprocess made"):
        Dataset.open(tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text('{"format": 1, "model": {}}')
    with pytest.raises(NmtError, match="not a directory that nmt preprocess made"):
        Dataset.open(tmp_path / "run")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "format": 2}))
    with pytest.raises(NmtError, match=r"made by nmt 9\.9, which is newer"):
        Dataset.open(directory)
