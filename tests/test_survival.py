"""Training loses nothing: damage to any file, full disks, signals, moved directories, a second training, numbers that are none.

All through the command line. What is right is what a training that nothing happened to leaves behind, byte for byte.
"""

import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nmt import checkpoint, loss
from nmt.checkpoint import checkpoints
from nmt.cli import main
from nmt.config import Config, keys
from nmt.models import BACKENDS
from nmt.preflight import MAY_CHANGE
from nmt.run import Log
from nmt.train import _Run
from nmt.validate import Validation
from tests.command_line import nmt_started, wait_until
from tests.soak import differences, small_disk
from tests.toys import TINY, dataset, reversed_digits, words

STEPS = 6


def command(data: Path, run: Path, steps: int = STEPS, backend: str = "rnn", **train: object) -> list[str]:
    settings: dict[str, object] = {f"model.{key}": value for key, value in TINY[backend].items()}
    often = {"learning_rate": 0.01, "warmup": 3, "valid_every": 3, "save_every": 2, "log_every": 1, "keep_last": 2}
    settings |= {f"train.{key}": value for key, value in {**often, "metric": "nll", "average_last": 2, **train}.items()}
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    fixed = [
        "--backend",
        backend,
        "--batch-tokens",
        "64",
        "--device",
        "cpu",
        "--threads",
        "1",
        "--quiet",
        "--max-steps",
        str(steps),
    ]
    return ["train", str(data), "-o", str(run), *fixed, *flags]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`data`; `runs/whole`, `runs/half` and `runs/other`: trained to the end, to update 4, and to that with another seed."""
    place = tmp_path_factory.mktemp("survival")
    shutil.move(dataset(place / "corpus", reversed_digits(60, seed=1), valid=4).path, place / "data")
    (place / "runs").mkdir()
    assert main(command(place / "data", place / "runs/whole")) == 0
    assert main(command(place / "data", place / "runs/half", 4)) == 0
    assert main([*command(place / "data", place / "runs/other", 4), "--seed", "2"]) == 0
    return place


@pytest.fixture
def home(place: Path, tmp_path: Path) -> Path:
    """A place for `runs`, with `data` that lies where it does for `place`'s."""
    (tmp_path / "runs").mkdir()
    shutil.copytree(place / "data", tmp_path / "data")
    return tmp_path


class Hung(BaseException):
    pass


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def alarm(number: int, frame: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, alarm)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# Damage


class Trap:
    """Code in a pickle."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, ("/tmp/nmt-test-trap",)


def flipped(at: Callable[[int], int]) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[at(len(content))] ^= 1
        path.write_bytes(content)

    return flip


def cut(size: Callable[[int], int]) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size(path.stat().st_size))


def replaced(by: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.unlink()
        by(path)

    return replace


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a byte of the header": flipped(lambda size: min(9, size - 1)),
    "a byte in the middle": flipped(lambda size: size // 2),
    "last byte": flipped(lambda size: size - 1),
    "empty": cut(lambda size: 0),
    "half": cut(lambda size: size // 2),
    "one byte less": cut(lambda size: size - 1),
    "missing": Path.unlink,
    "a directory": replaced(Path.mkdir),
    "a fifo": replaced(os.mkfifo),
    "a link to nothing": replaced(lambda path: path.symlink_to("nowhere")),
    "a device without end": replaced(lambda path: path.symlink_to("/dev/zero")),
    "a pickle": lambda path: path.write_bytes(pickle.dumps(Trap())),
    "nested": lambda path: path.write_bytes(b"[" * 100_000),
}

Told = Callable[..., tuple[int, str]]
"""Words of a command line -> exit code and what it said on stderr."""


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """It must end soon, and well, or with one line; and run no code of others."""

    def run(*line: str) -> tuple[int, str]:
        with at_most(60):
            code = main(list(line))
        out, err = capsys.readouterr()
        assert out == "" and not Path("/tmp/nmt-test-trap").exists()
        if code:
            assert err.startswith("nmt: error: ") and err.count("\n") == 1 and "unexpected" not in err, err
        return code, err

    return run


def content(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def files_of(directory: Path) -> list[Path]:
    return sorted(path.relative_to(directory) for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_of_a_run_is_refused_by_name_or_changes_nothing(how: str, place: Path, home: Path, told: Told) -> None:
    """Harmless: what is written anew, and what of an older checkpoint or beside a newer one training does not read."""
    shutil.copytree(place / "runs/half", home / "runs/good")
    assert main([*command(home / "data", home / "runs/good"), "--resume"]) == 0
    for file in files_of(place / "runs/half"):
        if file.parent.name == "step-2" and file.name != "model.safetensors":
            continue  # of all these alike nothing is read
        run = home / "runs/run"
        shutil.copytree(place / "runs/half", run)
        DAMAGE[how](run / file)
        code, err = told(*command(home / "data", run), "--resume")
        if code:
            assert f"{run}" in err and file.name in err, err
            assert any(what in err for what in ("can be deleted", "move it", "cannot be written", "put it back")), err
            assert code == 1 and "step-2" not in err
        else:
            (run / file).unlink(missing_ok=True) if not (run / file).is_dir() else (run / file).rmdir()
            left = [line for line in differences(home / "runs/good", run) if not line.startswith((f"{file}:", "log.jsonl: miss"))]
            assert left == [], file
        shutil.rmtree(run)


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_of_the_data_is_refused_by_name(how: str, place: Path, home: Path, told: Told) -> None:
    for file in files_of(home / "data"):
        data, run = home / "damaged", home / "runs/run"
        shutil.copytree(place / "data", data)
        shutil.copytree(place / "runs/half", run)
        if (data / file).stat().st_size:
            DAMAGE[how](data / file)
            before = content(run)
            code, err = told(*command(data, run), "--resume")
            if file.name == "config.json" and how == "one byte less":  # its last, which is a line feed
                assert code == 0
            else:
                assert code == 1 and f"{data}" in err and (file.name in err or "not a directory that nmt" in err), err
                assert content(run) == before
        shutil.rmtree(data)
        shutil.rmtree(run)


def test_a_file_of_another_run_or_data_is_not_taken_for_its_own(place: Path, home: Path, told: Told) -> None:
    for file in files_of(place / "runs/half"):
        for origin in ("other", "half/checkpoints/step-2", "half"):
            source = place / "runs" / origin / (file if origin == "other" else file.name)
            if not source.is_file() or source.read_bytes() == (place / "runs/half" / file).read_bytes():
                continue
            run = home / "runs/run"
            shutil.copytree(place / "runs/half", run)
            shutil.copy(source, run / file)
            code, err = told(*command(home / "data", run), "--resume")
            if file.parts[-2:-1] == ("step-4",) and file.name != "config.json":
                assert code == 1 and f"{run / file.parent}" in err and "can be deleted" in err, err
            elif file.name == "log.jsonl":
                assert code == 1 and f"{run / file}: is damaged or was edited" in err
            elif file.name == "config.json" and file.parent.name != "step-2":
                assert code == 0 or (code == 2 and "train.seed" in err)
            else:
                assert code == 0 and checkpoints(run)[-1].name == f"step-{STEPS}"
            shutil.rmtree(run)


def test_what_a_newer_nmt_made_is_refused_with_what_to_do(place: Path, home: Path, told: Told) -> None:
    shutil.copytree(place / "runs/half", home / "runs/run")
    for directory in ("data", "runs/run", "runs/run/checkpoints/step-4"):
        path = home / directory / "config.json"
        before, files = path.read_text(), content(home)
        path.write_text(json.dumps({**json.loads(before), "format": 99, "version": "9.9"}))
        code, err = told(*command(home / "data", home / "runs/run"), "--resume")
        assert (code, "nmt 9.9" in err, "newer nmt" in err or "upgrade nmt" in err) == (1, True, True), err
        path.write_text(before)
        assert content(home) == files


# Full disks, read-only ones, directories that are gone


@pytest.fixture
def disk(home: Path) -> Iterator[Callable[[int], None]]:
    try:
        with small_disk(home / "runs") as resize:
            yield resize
    except PermissionError:
        pytest.skip("no disk may be mounted here")


@pytest.mark.parametrize("tensorboard", [False, True])
def test_a_disk_that_is_full_again_and_again_loses_nothing(
    tensorboard: bool, place: Path, home: Path, disk: Callable[[int], None], told: Told
) -> None:
    """It grows page by page, so that each file in its turn is the one without room."""
    if tensorboard:
        pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    run, page, named = home / "runs/run", os.sysconf("SC_PAGESIZE"), set()
    size = page
    more = ["--set", "train.tensorboard=true"] if tensorboard else []
    while True:
        disk(size)
        before = content(run / "checkpoints") if run.exists() else {}
        code, err = told(*command(home / "data", run), *more, *(["--resume"] if run.exists() else []))
        if code == 0:
            break
        assert "cannot be written (no space left on device): nothing that was saved is lost; once it can be, go on" in err, err
        assert "--resume" in err and not list(run.rglob(".*"))
        # No checkpoint was touched but to be replaced by newer ones.
        after = content(run / "checkpoints")
        assert all(after[name] == before[name] for name in before.keys() & after.keys())
        assert newest(after) >= newest(before)
        file = Path(err.split()[2].rstrip(":")).name
        size += page * (16 if file in named else 1)
        named.add(file)
    disk(1 << 30)
    if not tensorboard:
        assert differences(place / "runs/whole", run) == []
        assert {"source.model", "step-0", "step-2", "step-6"} <= named
    assert (run / "model.safetensors").read_bytes() == (place / "runs/whole" / "model.safetensors").read_bytes()


def newest(files: dict[str, bytes]) -> int:
    """The step of the newest checkpoint that has all its files; -1 where there is none."""
    steps = [name.split("/")[0] for name in files]
    return max((int(step.removeprefix("step-")) for step in steps if steps.count(step) == 6), default=-1)


@pytest.mark.parametrize("words", [["--resume"], ["--overwrite"]])
def test_a_run_that_was_never_begun_can_be(
    words: list[str], place: Path, home: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is there but its configuration, as after a disk that was full at once."""
    with monkeypatch.context() as patched:
        patched.setattr("nmt.data.subword.Subword.save", no_room)
        assert told(*command(home / "data", home / "runs/run"))[0] == 1
    assert sorted(os.listdir(home / "runs/run")) == ["checkpoints", "config.json"]
    code, err = told("train", str(home / "data"), "-o", str(home / "runs/run"))
    assert code == 1 and "--resume to go on with it, --overwrite to begin anew" in err
    line = command(home / "data", home / "runs/run")
    assert told(*(line if words == ["--overwrite"] else [*line[:4], "--quiet", "--threads", "1"]), *words)[0] == 0
    assert differences(place / "runs/whole", home / "runs/run") == []


def no_room(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_read_only_is_said(place: Path, home: Path, disk: Callable[[int], None], told: Told) -> None:
    disk(1 << 24)
    shutil.copytree(place / "runs/half", home / "runs/run")
    subprocess.run(["mount", "-o", "remount,ro", str(home / "runs")], check=True)
    for run, more in (("run", ["--resume"]), ("run", ["--overwrite"]), ("new", [])):
        code, err = told(*command(home / "data", home / "runs" / run), *more)
        assert code == 1 and f"{home / 'runs' / run}" in err and ("read-only" in err or "permission" in err), err
    subprocess.run(["mount", "-o", "remount,rw", str(home / "runs")], check=True)
    assert told(*command(home / "data", home / "runs/run"), "--resume")[0] == 0


@pytest.mark.parametrize("then", ["moved", "deleted", "another's"])
def test_a_run_that_is_moved_while_it_is_trained_in(
    then: str, place: Path, home: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made in its place, and what is there now is left alone."""
    run, write, lines = home / "runs/run", Log.write, []

    def moving(self: Log, event: dict[str, Any]) -> None:
        write(self, event)
        lines.append(event)
        if len(lines) == 3:
            run.rename(home / "runs/moved")
            if then == "deleted":
                shutil.rmtree(home / "runs/moved")
            elif then == "another's":
                shutil.copytree(place / "runs/other", run)

    with monkeypatch.context() as patched:
        patched.setattr(Log, "write", moving)
        code, err = told(*command(home / "data", run))
    assert code == 1 and f"{run}: was moved or deleted while it was trained in; move it back, then go on with --resume" in err
    if then == "another's":
        assert content(run) == content(place / "runs/other")
        shutil.rmtree(run)
    assert not run.exists()
    if then != "deleted":
        (home / "runs/moved").rename(run)
        assert told(*command(home / "data", run), "--resume")[0] == 0
        assert differences(place / "runs/whole", run) == []


# Signals

MOMENTS = {
    "at the start": (checkpoint, "write_config"),
    "in the first save": (checkpoint, "save_checkpoint"),
    "before the loop": (_Run, "opened_log"),
    "in an update": (loss, "backward"),
    "in a save": (checkpoint, "write_json"),
    "in a validation": (Validation, "_translated"),
    "at a best model": (checkpoint, "save_weights"),
    "in the final average": (checkpoint, "mean"),
    "at the very end": (checkpoint, "rewrite_state"),
}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_leaves_a_run_that_ends_as_if_it_had_not_come(
    moment: str, times: int, place: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where, name = MOMENTS[moment]
    number, code = ((signal.SIGINT, 130), (signal.SIGTERM, 143))[len(moment) % 2]
    original, calls = getattr(where, name), [0]

    def signalled(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == (2 if moment in ("in an update", "in a validation", "at a best model") else 1):
            for _ in range(times):
                signal.raise_signal(number)
        return original(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(where, name, signalled)
        try:
            found = main(command(home / "data", home / "runs/run"))
        except SystemExit as end:
            assert isinstance(end.code, int)
            found = end.code
    assert (found, capsys.readouterr()) == (code, ("", ""))
    assert main([*command(home / "data", home / "runs/run"), "--resume"]) == 0
    assert differences(place / "runs/whole", home / "runs/run") == []


def test_a_signal_that_is_to_be_ignored_is(place: Path, home: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a script's background job ignores Ctrl-C."""
    backward = loss.backward

    def signalled(*arguments: Any) -> loss.Sums:
        signal.raise_signal(signal.SIGINT)
        return backward(*arguments)

    monkeypatch.setattr(loss, "backward", signalled)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert told(*command(home / "data", home / "runs/run"))[0] == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert differences(place / "runs/whole", home / "runs/run") == []


# Who else is there


def test_a_second_training_is_refused_while_the_first_goes_on(place: Path, home: Path, told: Told) -> None:
    """By whatever path it names the run; a killed one leaves no lock."""
    run, log = home / "runs/run", home / "runs/run" / "log.jsonl"
    (home / "link").symlink_to(home)
    with nmt_started(*command(home / "data", run, 1_000_000)) as first:
        wait_until(lambda: first.poll() is not None or (log.exists() and b'"train"' in log.read_bytes()))
        for name in (run, home / "link" / "runs/run", Path(os.path.relpath(run))):
            for more in ([], ["--resume"], ["--overwrite"]):
                code, err = told(*command(home / "data", name), *more)
                assert code == 1 and f"{name}: another process is training there; wait for it, or choose another place" in err
        size = log.stat().st_size
        wait_until(lambda: log.stat().st_size > size)
        assert first.poll() is None
        first.kill()
        first.wait()
    step = int(checkpoints(run)[-1].name.removeprefix("step-"))
    assert told(*command(home / "data", run, step + 20), "--resume")[0] == 0
    assert json.loads(log.read_text().splitlines()[-1])["step"] == step + 20


def another(kind: Any, value: Any) -> Any:
    """Some other value of a setting."""
    choices = [
        choice
        for part in (kind, *typing.get_args(kind))
        if typing.get_origin(part) is typing.Literal
        for choice in typing.get_args(part)
    ]
    if isinstance(value, bool):
        return not value
    if choices:
        return next(choice for choice in choices if choice != value)
    if isinstance(value, int) or int in (kind, *typing.get_args(kind)):
        return (value or 0) + 1
    return 0.5 if value != 0.5 else 0.25


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_every_setting_is_refused_by_name_when_a_run_goes_on_or_may_be_another(backend: str, home: Path, told: Told) -> None:
    data = dataset(home / "corpus", words(60, seed=1), valid=4, tokenizer="bpe", vocab_size=40).path
    run = home / "runs/run"
    assert told(*command(data, run, 1, backend))[0] == 0
    config = Config.from_dict(json.loads((run / "config.json").read_text()))
    tables: dict[str, Any] = {"model": config.model, "data": config.data, "train": config.train}
    for table, settings in tables.items():
        for key in keys(type(settings)).values():
            if key.name == "precision":
                continue  # what else there is depends on the machine
            other = another(key.type, getattr(settings, key.name))
            code, err = told(
                "train", str(data), "-o", str(run), "--resume", "-q", "--set", f"{table}.{key.name}={json.dumps(other)}"
            )
            if table == "train" and key.name in MAY_CHANGE:
                assert code == 0 or (key.name == "tensorboard" and "not installed" in err), (key.name, err)
            else:
                assert code in (1, 2) and key.name.removesuffix("_end") in err, (key.name, err)
    for more in (["--init-from", str(run)], ["--overwrite"]):
        code, err = told(*command(data, run, 1, backend), "--resume", *more)
        assert code == 2 and "--resume" in err and more[0] in err
    code, err = told(
        "train", str(data), "-o", str(run), "--resume", "--backend", "rnn" if backend == "transformer" else "transformer"
    )
    assert code == 2 and "model.backend" in err


# Numbers that are none


def finite(run: Path) -> bool:
    files = [path for path in run.rglob("*.safetensors")]
    return bool(files) and all(bool(tensor.isfinite().all()) for path in files for tensor in load_file(path).values())


POISONS: dict[str, Callable[[Any], None]] = {
    "one gradient": lambda run: next(run.model.parameters()).register_hook(
        lambda grad: grad.index_fill(0, torch.tensor([0]), -torch.inf)
    ),
    "nan gradient": lambda run: next(run.model.parameters()).register_hook(lambda grad: grad * torch.nan),
    "weights": lambda run: next(run.model.parameters()).data.fill_(torch.nan),
    "moments": lambda run: next(iter(run.optimizer.state.values()))["exp_avg_sq"].fill_(torch.inf),
    "learning rate": lambda run: setattr(run, "peak", 1e38),
}


@pytest.mark.parametrize("what", POISONS)
def test_nothing_that_is_no_number_is_ever_saved(
    what: str, place: Path, home: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the fourth update on; the run ends, and says where a good model is."""
    update = _Run.update

    def poisoned(self: _Run, *arguments: Any) -> None:
        if self.state.step == 3:
            POISONS[what](self)
        update(self, *arguments)

    monkeypatch.setattr(_Run, "update", poisoned)
    code, err = told(*command(home / "data", home / "runs/run", 40))
    assert code == 1 and "has diverged; the last good model is " in err and "begin another run with --init-from" in err
    assert finite(home / "runs/run")
    good = err.split("the last good model is ")[1].split(":")[0]
    events = [json.loads(line) for line in (home / "runs/run" / "log.jsonl").read_text().splitlines()]
    skipped = [event for event in events if event["event"] == "skipped"]
    if what in ("one gradient", "nan gradient", "weights"):
        assert [event["in_a_row"] for event in skipped] == list(range(1, len(skipped) + 1)) and skipped
    monkeypatch.undo()
    assert told(*command(home / "data", home / "next", 2, learning_rate=0.001), "--init-from", good)[0] == 0


# Clocks


def test_minutes_count_over_all_resumes_and_the_date_does_not(
    place: Path, home: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock is ten seconds after the one before; the date jumps by years."""
    ticks, dates = iter(range(0, 10**9, 10)), iter(range(0, 10**18, 10**8))
    monkeypatch.setattr("nmt.train.seconds", lambda: float(next(ticks)))
    monkeypatch.setattr(time, "time", lambda: float(next(dates) % (10**9 + 7)))
    run, ends = home / "runs/run", []
    for minutes, more in ((3, []), (3, ["--resume"]), (5, ["--resume"]), (1000, ["--resume"])):
        assert told(*command(home / "data", run), "--max-minutes", str(minutes), *more)[0] == 0
        ends.append(int(checkpoints(run)[-1].name.removeprefix("step-")))
    assert 0 < ends[0] == ends[1] < ends[2] < ends[3] == STEPS
    weights = [(each / "checkpoints" / f"step-{STEPS}" / "model.safetensors").read_bytes() for each in (run, place / "runs/whole")]
    assert weights[0] == weights[1]


# The same bytes each time


def test_the_same_bytes_whatever_the_order_of_directories(
    place: Path, home: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    listdir, iterdir, glob = os.listdir, Path.iterdir, Path.glob
    monkeypatch.setattr(os, "listdir", lambda *path: listdir(*path)[::-1])
    monkeypatch.setattr(Path, "iterdir", lambda self: iter([*iterdir(self)][::-1]))
    monkeypatch.setattr(Path, "glob", lambda self, *words, **named: iter([*glob(self, *words, **named)][::-1]))
    shutil.rmtree(home / "data")
    (home / "data").mkdir()
    for file in reversed(files_of(place / "data")):
        shutil.copy(place / "data" / file, home / "data" / file)
    assert told(*command(home / "data", home / "runs/run"))[0] == 0
    assert differences(place / "runs/whole", home / "runs/run") == []


def test_the_same_bytes_in_another_process_place_and_locale(place: Path, home: Path) -> None:
    """This process has hash values of its own; so has that one."""
    changed = {"PYTHONHASHSEED": "7", "LC_ALL": "C", "TMPDIR": str(home), "PYTHONPATH": str(Path(__file__).parents[1])}
    environment = {**os.environ, **changed}
    (home / "a b" / "runs").mkdir(parents=True)
    shutil.move(home / "data", home / "a b" / "data")
    line = command(Path("data"), Path("runs", "whole"))
    done = subprocess.run(
        [sys.executable, "-m", "nmt", *line], cwd=home / "a b", env=environment, capture_output=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert differences(place / "runs/whole", home / "a b" / "runs/whole") == []


def test_a_run_whose_best_model_is_gone_says_so(place: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = home / "runs/run"
    shutil.copytree(place / "runs/half", run)
    (run / "model.safetensors").unlink()
    capsys.readouterr()
    assert main([*command(home / "data", run), "--resume"]) == 1
    told = capsys.readouterr().err
    assert f"{run}/model.safetensors: no such file: it is the model of update" in told and "put it back" in told
    shutil.copy(place / "runs/half/model.safetensors", run)
    assert main([*command(home / "data", run), "--resume"]) == 0
