"""What a result says of the machine and the code that made it."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import record
import run
from record import NOT_CODE, begun_in, circumstances, commit, device

ROOT = Path(__file__).parents[2]


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_the_commit_is_marked_where_code_differs_but_not_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / "checkout"
    for name in ("nmt/code.py", "recipes/README.md", "recipes/results/a.json"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("as it was\n")
    git(checkout, "init", "-q")
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "first")
    clean = git(checkout, "rev-parse", "HEAD")[:12]
    for name in ("recipes/README.md", "recipes/results/a.json", "recipes/results/new.json"):
        (checkout / name).write_text("written by a recipe\n")
    assert commit(checkout) == clean
    (checkout / "nmt/code.py").write_text("changed\n")
    assert commit(checkout) == f"{clean}-dirty"
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "unpacked").mkdir()
    assert commit(tmp_path / "unpacked") == ""


def test_without_git_there_is_no_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(ROOT) == ""


def test_what_recipes_and_experiments_write_is_what_is_left_out() -> None:
    """They write a README.md and results/ beside themselves."""
    places = [place.relative_to(ROOT) for place in (Path(run.__file__).parent, ROOT / "recipes" / "experiments")]
    assert sorted(NOT_CODE) == sorted(str(place / name) for place in places for name in ("README.md", "results"))


def test_the_device_and_the_versions_are_named() -> None:
    found = circumstances()
    assert found["device"] == device() and len(device()) > 5
    assert set(found["versions"]) - {"sacremoses"} == {"python", "nmt", "torch", "sacrebleu"}


def test_work_that_goes_on_tells_of_its_earlier_circumstances_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def now(torch: str, commit: str) -> None:
        versions = {"python": "3.11", "torch": torch}
        monkeypatch.setattr(record, "circumstances", lambda: {"device": "cores", "versions": versions, "commit": commit})

    made = tmp_path / "made.json"
    now("2.6", "a")
    assert begun_in(None) == begun_in(made) == {"device": "cores", "versions": {"python": "3.11", "torch": "2.6"}, "commit": "a"}
    for torch, code in (("2.6", "a"), ("2.13", "b"), ("2.6", "a")):
        now(torch, code)
        made.write_text(json.dumps({"processes": 2, **begun_in(made)}))
    assert begun_in(made) == {"device": "cores", "versions": {"python": "3.11", "torch": "2.6; 2.13"}, "commit": "a; b"}
