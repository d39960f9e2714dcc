"""In how many processes a recipe trains, and by what command."""

import json
from pathlib import Path

import pytest
import training

COUNTS = [
    # micro-batches, cores -> processes
    (1, 1, 1),
    (1, 8, 1),
    (2, 1, 1),
    (2, 2, 2),
    (2, 3, 2),
    (3, 2, 1),
    (6, 4, 3),
    (8, 16, 8),
]


@pytest.mark.parametrize(("micro_batches", "cores", "count"), COUNTS)
def test_each_process_has_a_core_and_an_equal_share(
    micro_batches: int, cores: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr(training, "cores", lambda: cores)
    assert training.processes(micro_batches) == count


def test_gpus_are_shared_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr(training, "cores", lambda: 64)
    assert training.processes(8) == 4


@pytest.mark.parametrize(("accumulate", "count"), [(2, 1), (1, 2)])
def test_a_training_goes_on_in_as_many_processes_as_it_began_with(accumulate: int, count: int, tmp_path: Path) -> None:
    """What each has of an update may not change, wherever it goes on."""
    (tmp_path / "config.json").write_text(json.dumps({"train": {"accumulate": accumulate}}))
    assert training.processes(2, tmp_path) == count


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_a_training_does_not_go_on_with_fewer_gpus(gpus: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    (tmp_path / "config.json").write_text(json.dumps({"train": {"accumulate": 4}}))
    if gpus >= 2:
        assert training.processes(8, tmp_path) == 2
        return
    with pytest.raises(SystemExit, match=f"^recipe: error: {tmp_path}: was begun by 2 processes.*; here are 1 GPU "):
        training.processes(8, tmp_path)


def test_processes_share_micro_batches_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []
    monkeypatch.setattr(training, "run", lambda words: commands.append(" ".join(map(str, words))))
    monkeypatch.setattr(training, "cores", lambda: 8)
    for count in (1, 2):
        training.train(Path("data"), Path("run"), ["--resume"], 4, count)
    same = "nmt train data -o run --resume --accumulate"
    assert commands == [f"{same} 4", f"torchrun --standalone --nproc-per-node 2 -m {same} 2 --threads 4"]


def test_a_run_that_has_not_begun_to_train_is_begun_anew(tmp_path: Path) -> None:
    """`nmt train` makes the folder of checkpoints, then writes the settings."""
    assert not training.begun(tmp_path / "run")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    assert not training.begun(tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text("{}")
    assert training.begun(tmp_path / "run")
