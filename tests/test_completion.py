"""What a shell is offered to complete a word with, by the protocol of Typer's bash script."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.measures import METRICS
from nmt.models import BACKENDS
from nmt.search import STRATEGIES
from tests.toys import config, dataset, run, words


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, runs at several depths, and other things."""
    place = tmp_path_factory.mktemp("shell")
    data = dataset(place / "texts", words(30, seed=1), valid=0)
    (place / "runs" / "deep").mkdir(parents=True)
    run(data, place / "runs" / "first", config("rnn", max_steps=1))
    for copy in ("second", "deep/third", ".hidden"):
        shutil.copytree(place / "runs" / "first", place / "runs" / copy)
    (place / "runs" / "empty").mkdir()
    (place / "runs" / "file").touch()
    return place


def offered(place: Path, line: str) -> list[str]:
    """With the cursor at the end of `line`."""
    typed = line.split()
    asked = {"_NMT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(typed) - (not line.endswith(" ")))}
    done = subprocess.run([sys.executable, "-m", "nmt"], cwd=place, env={**os.environ, **asked}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode().split()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("nmt train data --backend ", list(BACKENDS)),
        ("nmt translate run --search ", list(STRATEGIES)),
        ("nmt bench run --search ", list(STRATEGIES)),
        ("nmt score hypothesis -r reference -m ", list(METRICS)),
        ("nmt train data --device c", ["cpu", "cuda"]),
    ],
)
def test_names_are_those_that_there_are(line: str, names: list[str], place: Path) -> None:
    assert sorted(offered(place, line)) == sorted(names)


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("nmt translate ", ["runs/deep/third", "runs/first", "runs/second"]),
        ("nmt report runs/f", ["runs/first"]),
        ("nmt report runs/first runs/s", ["runs/second"]),
        ("nmt translate runs/first/", ["runs/first/checkpoints/step-1"]),
        ("nmt average runs/.h", ["runs/.hidden"]),
        ("nmt train ", ["texts/data"]),
        ("nmt info ", ["runs/deep/third", "runs/first", "runs/second", "texts/data"]),
        ("nmt translate runs/first file", []),
    ],
)
def test_directories_are_those_of_the_kind(line: str, paths: list[str], place: Path) -> None:
    assert offered(place, line) == paths


def test_whole_paths_are_as_they_were_typed(place: Path) -> None:
    assert offered(Path("/"), f"nmt translate {place}/runs/f") == [f"{place}/runs/first"]


def test_it_installs(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    words = [sys.executable, "-m", "nmt", "--install-completion", "bash"]
    # Typer takes the shell's name as an argument only where it cannot look which one runs.
    done = subprocess.run(
        words, env={**environment, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    script = next((tmp_path / ".bash_completions").iterdir())
    assert "_NMT_COMPLETE=complete_bash" in script.read_text() and str(script) in (tmp_path / ".bashrc").read_text()
