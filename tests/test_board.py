"""Event files for TensorBoard hold the numbers of the log."""

from pathlib import Path

import pytest

from nmt.cli import main
from nmt.data.shards import Dataset
from nmt.errors import NmtError
from nmt.run import read_log
from tests.command_line import refused
from tests.toys import config, dataset, reversed_digits, run

FEW = {"max_steps": 6, "valid_every": 3, "save_every": 2}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset(tmp_path_factory.mktemp("board") / "digits", reversed_digits(60, seed=1), valid=5)


def logged(path: Path) -> dict[tuple[str, int], float]:
    """The numbers of a log, by name and update."""
    events, damage = read_log(path)
    assert damage is None
    return {
        (f"{event['event']}/{key}", event["step"]): value
        for event in events
        for key, value in event.items()
        if key != "step" and type(value) in (int, float)
    }


def shown(path: Path) -> dict[tuple[str, int], float]:
    """What TensorBoard reads of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(path / "tensorboard"))
    accumulator.Reload()
    return {(tag, each.step): each.value for tag in accumulator.Tags()["scalars"] for each in accumulator.Scalars(tag)}


def test_all_numbers_of_the_log_are_there_once(digits: Dataset, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    run(digits, tmp_path / "run", config("rnn", **FEW, tensorboard=True))
    assert shown(tmp_path / "run") == pytest.approx(logged(tmp_path / "run"), rel=1e-6)
    # Gone on with, from an earlier update than the last one that was shown.
    run(digits, tmp_path / "run", config("rnn", **{**FEW, "max_steps": 9}, tensorboard=True), resume=True)
    assert shown(tmp_path / "run") == pytest.approx(logged(tmp_path / "run"), rel=1e-6)


def test_it_changes_nothing_else(digits: Dataset, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    run(digits, tmp_path / "with", config("rnn", **FEW, tensorboard=True))
    run(digits, tmp_path / "without", config("rnn", **FEW))
    assert not (tmp_path / "without" / "tensorboard").exists()
    same = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("with", "without")]
    assert same[0] == same[1]


def test_a_run_is_replaced_with_its_board_and_without_what_is_not_its_own(
    digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    run(digits, tmp_path / "run", config("rnn", **FEW, tensorboard=True))
    (tmp_path / "run" / "tensorboard" / "notes").touch()
    words = ["train", digits.path, "-o", tmp_path / "run", "--overwrite", "--backend", "rnn", "--max-steps", "1"]
    words += ["--set", "model.width=16", "--set", "model.embedding=16", "--set", "model.layers=1"]
    _, message = refused(capsys, *words, "--quiet")
    assert "notes" in message and (tmp_path / "run" / "model.safetensors").exists()
    (tmp_path / "run" / "tensorboard" / "notes").unlink()
    assert main([*map(str, words), "--quiet"]) == 0
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_the_missing_package_is_named_before_training(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NmtError, match=r"pip install 'nmt\[tensorboard\]'"):
        run(digits, tmp_path / "run", config("rnn", tensorboard=True))
    assert not (tmp_path / "run").exists()
