"""The soaks of `make soak` and `make soak-translate`, with a few stops, and what the first would tell."""

from pathlib import Path

import pytest

from tests import soak_translate
from tests.soak import How, differences, soak
from tests.toys import dataset, words


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dataset(tmp_path_factory.mktemp("soak") / "corpus", words(200, seed=1), valid=10, tokenizer="bpe", vocab_size=60).path


@pytest.mark.parametrize(("how", "backend", "breaks"), [("kill", "rnn", 2), ("signal", "transformer", 2), ("disk", "rnn", 2)])
def test_a_few_breaks_change_nothing(
    how: How, backend: str, breaks: int, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert soak(data, tmp_path / "runs", backend, how, breaks, updates=16, seed=1) == []
    except PermissionError:
        pytest.skip("no disk may be mounted here")
    told = capsys.readouterr().out.splitlines()
    assert len(told) == breaks + 1 and told[-1].endswith("files the same, nothing left over")


def test_what_would_differ_is_named(data: Path, tmp_path: Path) -> None:
    assert soak(data, tmp_path / "runs", "rnn", "kill", breaks=0, updates=2, seed=1) == []
    whole, killed = tmp_path / "runs/untouched/run", tmp_path / "runs/broken/run"
    weights = bytearray((killed / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (killed / "model.safetensors").write_bytes(weights)
    log = (killed / "log.jsonl").read_text()
    (killed / "log.jsonl").write_text(log.replace('"loss": ', '"loss": 1', 1))
    (killed / "checkpoints/.step-5.7.partial").mkdir()
    (killed / "source.model").unlink()
    assert differences(whole, killed) == [
        "checkpoints/.step-5.7.partial: left over",
        "source.model: missing",
        "log.jsonl: differs",
        "model.safetensors: differs",
    ]


def test_a_few_stops_of_a_translation_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "beam, lists, three files to a directory"
    jobs = {name: soak_translate.Job(("--beam-size", "3", *soak_translate.LISTS), to_directory=True)}
    assert soak_translate.soak(tmp_path, jobs, stops=2, lines=300, seed=1) == []
    assert capsys.readouterr().out.endswith("the same bytes, nothing left over\n")
