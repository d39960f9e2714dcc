"""Steps of a recipe: what is run, shown and kept, and what a stop at any moment leaves."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from steps import Step, near, run

from tests.command_line import wait_until

RECIPES = Path(__file__).parents[2] / "recipes"

SAVES = """
import signal, sys, time
from pathlib import Path

def stop(number, frame):
    time.sleep(0.5)  # a checkpoint takes its time
    Path("saved").touch()
    sys.exit(130)

signal.signal(signal.SIGINT, stop)
Path("at-work").touch()
time.sleep(60)
"""


def test_ctrl_c_leaves_the_command_time_to_save(tmp_path: Path) -> None:
    """As at a terminal: the signal goes to all processes at once."""
    (tmp_path / "saves.py").write_text(SAVES)
    program = "import sys; sys.path.insert(0, sys.argv[1]); from steps import run; run(['saves.py']); print('went on')"
    command = [sys.executable, "-c", program, str(RECIPES)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe, start_new_session=True) as process:
        try:
            wait_until((tmp_path / "at-work").exists)
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, b"", b"$ python saves.py\n")
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize(("script", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)])
def test_a_command_that_fails_ends_it_as_it_ended(script: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text(f"import os, sys; {script}")
    with pytest.raises(SystemExit) as ended:
        run([tmp_path / "fails.py"])
    assert ended.value.code == code


def test_paths_are_shown_from_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "one.py").write_text("import sys; print(sys.argv)")
    monkeypatch.chdir(tmp_path / "here")
    run([tmp_path / "here" / "one.py", tmp_path / "here" / "a b", Path("c"), tmp_path / "out", "-x"])
    out, err = capfd.readouterr()
    assert err == f"$ python one.py 'a b' c {tmp_path / 'out'} -x\n"
    assert out == f"{['one.py', 'a b', 'c', str(tmp_path / 'out'), '-x']}\n"
    assert near("nmt") == "nmt"


def test_a_step_is_done_once_its_end_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = Step(tmp_path / "new" / "run", "a")
    assert not step.done() and not step.begun()
    step.begin()
    assert not step.begun()  # nothing is there yet
    step.output.mkdir()
    assert step.begun() and not step.done()
    step.begin(resume=True)
    assert step.output.is_dir()
    step.end()
    assert capsys.readouterr().err == ""
    assert step.done() and "there already" in capsys.readouterr().err
    assert not Step(step.output, "b").done() and "other settings" in capsys.readouterr().err


def test_other_settings_that_may_change_do_the_step_again_from_where_it_is(tmp_path: Path) -> None:
    old, new, other = (
        Step(tmp_path / "run", "old", "network"),
        Step(tmp_path / "run", "new", "network"),
        Step(tmp_path / "run", "new", "x"),
    )
    old.begin()
    old.output.mkdir()
    old.end()
    assert old.done() and not new.done() and new.begun() and not other.begun() and not other.done()
    new.begin(resume=True)
    assert new.output.is_dir() and new.begun() and not new.done() and not old.done()
    new.end()
    assert new.done() and not old.done() and not other.done()


@pytest.mark.parametrize("directory", [True, False])
def test_a_stop_right_after_the_settings_changed_leaves_nothing_to_go_on_with(directory: bool, tmp_path: Path) -> None:
    """What is made from other settings would be refused by --resume, now and each time."""
    old = Step(tmp_path / "run", "old")
    old.begin()
    if directory:
        (old.output / "checkpoints").mkdir(parents=True)
    else:
        old.output.touch()
    old.end()
    new = Step(tmp_path / "run", "new")
    new.begin()
    assert not new.output.exists() and not new.begun() and not new.done() and not old.done()


def test_a_stop_while_the_old_is_removed_leaves_nothing_that_seems_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (Step(tmp_path / "run", cause) for cause in ("old", "new"))
    old.begin()
    old.output.mkdir()
    old.end()
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", lambda path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            new.begin()
    assert not old.done() and not old.begun() and not new.begun()
    old.begin()
    assert not old.output.exists()


def test_what_no_recipe_made_is_not_removed(tmp_path: Path) -> None:
    step = Step(tmp_path / "data", "a")
    step.output.mkdir()
    assert not step.done()
    with pytest.raises(SystemExit, match="no recipe made it"):
        step.begin()
    assert step.output.is_dir()
