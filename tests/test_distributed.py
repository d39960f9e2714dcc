"""Several processes: they train as one does and translate as one does, and none is left waiting for another."""

import gzip
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nmt import distributed
from nmt.checkpoint import checkpoints
from nmt.cli import main
from nmt.data.shards import Dataset
from nmt.data.updates import Update
from nmt.learning import Training
from nmt.translate import Translator
from tests import toys
from tests.command_line import next_line, refused, text
from tests.team import End, free_port, team
from tests.toys import TINY, config, dataset, events, reversed_digits, run

LOST = "processes has ended or does not answer"


@pytest.fixture(scope="module", autouse=True)
def one_thread(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """And what training imports on the way is imported once, before any process is forked."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    run(data, tmp_path_factory.mktemp("first") / "run", config("rnn", max_steps=1))
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset(tmp_path_factory.mktemp("words") / "corpus", toys.words(120, seed=1), valid=11, tokenizer="bpe", vocab_size=60)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that has learned enough to say something."""
    place = tmp_path_factory.mktemp("model")
    digits = dataset(place / "corpus", reversed_digits(300, seed=1), valid=20)
    run(digits, place / "run", config("rnn", max_steps=60, valid_every=60, batch_tokens=512))
    return place / "run"


def training(data: Dataset, place: Path, backend: str = "rnn", **settings: object) -> list[str | Path]:
    """A command line: dropout 0.2, each update logged."""
    train = {"batch_tokens": 96, "max_steps": 12, "log_every": 1, "valid_every": 6, "save_every": 4, "learning_rate": 0.01}
    train |= {"warmup": 5, "metric": "nll", **settings}
    tables = {f"model.{key}": value for key, value in {"dropout": 0.2, **TINY[backend]}.items()}
    tables |= {key if "." in key else f"train.{key}": value for key, value in train.items()}
    sets = [word for key, value in tables.items() for word in ("--set", f"{key}={value}")]
    return ["train", data.path, "-o", place, "--backend", backend, "--device", "cpu", *sets]


def succeeded(ends: list[End]) -> None:
    assert [end.code for end in ends] == [0] * len(ends), [end.err for end in ends]
    assert not any(end.err or end.out for end in ends[1:]), "only the first speaks"


def curve(place: Path) -> list[float]:
    return [event["loss"] for event in events(place, "train")]


def weights(place: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(place / "checkpoints" / f"step-{step}" / "model.safetensors")


@pytest.mark.parametrize(("backend", "r_drop"), [*((backend, 0) for backend in TINY), ("transformer", 5)])
def test_processes_train_as_one_does_with_as_many_micro_batches(backend: str, r_drop: int, data: Dataset, tmp_path: Path) -> None:
    """Dropout and BPE-dropout on; the loss by validation too, whose lines they share."""
    settings = {"data.bpe_dropout": 0.1, "average_last": 2, "r_drop": r_drop}
    succeeded(team(1, *training(data, tmp_path / "one", backend, accumulate=4, **settings)))
    succeeded(team(2, *training(data, tmp_path / "two", backend, accumulate=2, **settings)))
    one, two = events(tmp_path / "one"), events(tmp_path / "two")
    assert len(one) == len(two) == 12 + 2 + 1
    for mine, theirs in zip(one, two, strict=True):
        assert mine.keys() == theirs.keys()
        for key, value in mine.items():
            numbers = isinstance(value, float | list)
            assert theirs[key] == (pytest.approx(value, rel=1e-5) if numbers else value), key
    for name, tensor in weights(tmp_path / "one", 12).items():
        torch.testing.assert_close(weights(tmp_path / "two", 12)[name], tensor, rtol=1e-4, atol=1e-6)
    names = [sorted(str(path.relative_to(tmp_path / each)) for path in (tmp_path / each).rglob("*")) for each in ("one", "two")]
    assert names[0] == names[1]


def test_the_loss_does_not_depend_on_how_many_there_are(data: Dataset, tmp_path: Path) -> None:
    """Updates of two or three pairs, fewer than micro-batches: some processes have nothing to do in some of them."""
    settings = {"batch_tokens": 32, "max_steps": 20, "model.dropout": 0}
    succeeded(team(1, *training(data, tmp_path / "1", **settings)))
    succeeded(team(3, *training(data, tmp_path / "3", accumulate=2, **settings)))
    assert curve(tmp_path / "3") == pytest.approx(curve(tmp_path / "1"), rel=1e-5)
    assert [event["tokens"] for event in events(tmp_path / "1", "train")] == [
        event["tokens"] for event in events(tmp_path / "3", "train")
    ]


def test_a_run_goes_on_with_another_number_of_processes(data: Dataset, tmp_path: Path) -> None:
    """The data comes in the same order: without dropout the curve is that of one process from start to end."""
    settings: dict[str, Any] = {"model.dropout": 0, "data.bpe_dropout": 0.1, "batch_tokens": 192}
    succeeded(team(1, *training(data, tmp_path / "whole", max_steps=14, **settings)))
    for size, steps in ((2, 4), (1, 9), (3, 14)):
        again = ["--resume"] if steps > 4 else []
        succeeded(team(size, *training(data, tmp_path / "parts", max_steps=steps, **settings), *again))
    assert curve(tmp_path / "parts") == pytest.approx(curve(tmp_path / "whole"), rel=1e-5)
    assert {event["epoch"] for event in events(tmp_path / "whole", "train")} == {1, 2}


@pytest.fixture(scope="module")
def untouched(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Runs of so many processes that nothing came in the way of."""
    place = tmp_path_factory.mktemp("untouched")
    for size in (2, 3):
        succeeded(team(size, *training(data, place / str(size))))
    return {size: place / str(size) for size in (2, 3)}


def at_update(number: int, rank: int, act: Callable[[Training], None]) -> Callable[[int], None]:
    """What a process does before it trains, so that `act` happens in that one, in the midst of that update."""

    def prepare(own: int) -> None:
        update = Training.update

        def acting(self: Training, each: Update) -> None:
            if self.state.step == number and own == rank:
                act(self)
            update(self, each)

        Training.update = acting  # type: ignore[method-assign]  # in this process only

    return prepare


def killed(self: Training) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("victim", [0, 1])
def test_when_one_is_killed_all_end_and_the_run_can_go_on(
    victim: int, data: Dataset, untouched: dict[int, Path], tmp_path: Path
) -> None:
    words = training(data, tmp_path / "run")
    ends = team(3, *words, before=at_update(6, victim, killed))
    assert ends.pop(victim).code == -signal.SIGKILL
    for end in ends:
        assert end.code == 1 and LOST in end.err.splitlines()[-1] and "with --resume" in end.err
    assert checkpoints(tmp_path / "run")[-1].name == "step-4"
    succeeded(team(3, *words, "--resume"))
    assert events(tmp_path / "run") == events(untouched[3])
    assert all(torch.equal(tensor, weights(tmp_path / "run", 12)[name]) for name, tensor in weights(untouched[3], 12).items())


def test_an_error_of_one_process_is_told_with_its_number(data: Dataset, tmp_path: Path) -> None:
    def starved(self: Training) -> None:
        def hidden(*_: object) -> None:
            raise torch.OutOfMemoryError

        self.hidden = hidden  # type: ignore[method-assign, assignment]

    ends = team(2, *training(data, tmp_path / "run"), before=at_update(6, 1, starved))
    assert [end.code for end in ends] == [1, 1]
    assert ends[1].err.startswith("nmt: error: process 1 of 2: out of memory in update 7, with ")
    assert LOST in ends[0].err.splitlines()[-1]


def test_what_is_not_a_number_in_one_process_is_skipped_by_all(data: Dataset, tmp_path: Path) -> None:
    def poisoned(self: Training) -> None:
        hidden = self.hidden

        def worse(*given: Any) -> torch.Tensor:
            self.hidden = hidden  # type: ignore[method-assign]
            return hidden(*given) * float("nan")

        self.hidden = worse  # type: ignore[method-assign]

    ends = team(2, *training(data, tmp_path / "run"), before=at_update(6, 1, poisoned))
    succeeded(ends)
    assert "update 7 is skipped" in ends[0].err
    assert [event["step"] for event in events(tmp_path / "run", "skipped")] == [7]
    assert len(curve(tmp_path / "run")) == 12


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_one_ends_all_after_the_same_update_with_a_checkpoint(
    number: signal.Signals, data: Dataset, untouched: dict[int, Path], tmp_path: Path
) -> None:
    words = training(data, tmp_path / "run")
    ends = team(2, *words, before=at_update(6, 1, lambda self: os.kill(os.getpid(), number)))
    assert [end.code if end.code > 0 else 128 - end.code for end in ends] == [128 + number] * 2
    assert f"stopped by {number.name} after update 7; go on with --resume" in ends[0].err and not ends[1].err
    assert checkpoints(tmp_path / "run")[-1].name == "step-7"
    succeeded(team(2, *words, "--resume"))
    assert events(tmp_path / "run", "train") == events(untouched[2], "train")


def test_all_stop_where_the_first_would(data: Dataset, tmp_path: Path) -> None:
    """Early stopping by BLEU that never gets better."""
    ends = team(2, *training(data, tmp_path / "run", learning_rate=0, patience=2, metric="bleu", valid_every=2))
    succeeded(ends)
    assert "ended after update 6: no better bleu in 2 validations" in ends[0].err
    assert "2 processes, each on cpu" in ends[0].err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--resume", "--overwrite"], 2, "exclude each other"),
        (["--set", "train.patience=x"], 2, "train.patience"),
        (["--no-such-option"], 2, "no such option"),
        ([], 1, "is not empty"),
        (["--init-from", "nowhere"], 1, "nowhere"),
        (["--device", "cuda"], 1, "no GPU"),
    ],
)
def test_what_is_wrong_for_all_is_told_once(words: list[str], code: int, told: str, data: Dataset, tmp_path: Path) -> None:
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    (tmp_path / "run").mkdir()
    text(tmp_path / "run" / "notes", "mine")
    ends = team(2, *training(data, tmp_path / "run"), *words)
    assert [end.code for end in ends] == [code, code]
    assert told in ends[0].err.lower() or told in ends[0].err
    assert ends[0].err.count("\n") == 1 and ends[1].err == ""


def test_processes_with_other_settings_do_not_train_together(data: Dataset, tmp_path: Path) -> None:
    ends = team(2, *training(data, tmp_path / "run"), before=lambda rank: ["--set", "train.clip_norm=2"] if rank else None)
    assert [end.code for end in ends] == [1, 1] and not (tmp_path / "run").exists()
    assert "do not have the same data and settings" in ends[0].err and ends[1].err == ""


SEARCHES = [
    ["--search", "greedy"],
    ["--beam-size", "3", "--n-best", "2", "--format", "jsonl", "--length-penalty", "1"],
    ["--search", "sample", "--seed", "5", "--scores"],
]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Blank lines, unknown words and a long line among others."""
    sources = [source for source, _ in reversed_digits(150, seed=9)]
    sources[10], sources[77], sources[100] = "", "what 1 2", "1 " * 300
    return text(tmp_path_factory.mktemp("text") / "lines", *sources)


@pytest.mark.parametrize("search", SEARCHES)
def test_processes_write_what_one_does(search: list[str], model: Path, lines: Path, tmp_path: Path) -> None:
    words = ["translate", model, "--device", "cpu", "--threads", "1", "-q", "--batch-tokens", "60", *search]
    assert main([str(word) for word in [*words, lines, "-o", tmp_path / "one"]]) == 0
    whole = (tmp_path / "one").read_text()
    succeeded(team(3, *words, lines, "-o", tmp_path / "three"))
    assert (tmp_path / "three").read_text() == whole
    first, second = team(2, *words, stdin=str(lines))  # only the first reads
    assert first == End(0, whole, "") and second == End(0, "", "")


def test_all_of_them_work(model: Path, lines: Path, tmp_path: Path) -> None:
    def counted(rank: int) -> None:
        search = Translator._search

        def counting(self: Translator, batch: list[Any], options: Any) -> list[Any]:
            with open(tmp_path / f"rank{rank}", "a") as stream:
                stream.write(f"{len(batch)}\n")
            return search(self, batch, options)

        Translator._search = counting  # type: ignore[method-assign]

    words = ["translate", model, lines, "-o", tmp_path / "out", "--device", "cpu", "--batch-tokens", "60", "-q"]
    succeeded(team(3, *words, before=counted))
    did = [sum(map(int, (tmp_path / f"rank{rank}").read_text().split())) for rank in range(3)]
    assert sum(did) == 149 and min(did) > 10


def test_memory_that_runs_out_in_one_is_split_there(model: Path, lines: Path, tmp_path: Path) -> None:
    def starved(rank: int) -> None:
        search = Translator._search

        def small(self: Translator, batch: list[Any], options: Any) -> list[Any]:
            if len(batch) > 2 and rank == 1:
                raise torch.OutOfMemoryError
            return search(self, batch, options)

        Translator._search = small  # type: ignore[method-assign]

    words = ["translate", model, lines, "--device", "cpu", "--batch-tokens", "60", "-q", "--search", "greedy"]
    succeeded(team(2, *words, "-o", tmp_path / "split", before=starved))
    succeeded(team(1, *words, "-o", tmp_path / "one"))
    assert (tmp_path / "split").read_text() == (tmp_path / "one").read_text()


@pytest.mark.parametrize("victim", [0, 1])
def test_a_translation_that_lost_a_process_goes_on(victim: int, model: Path, lines: Path, tmp_path: Path) -> None:
    def mortal(rank: int) -> None:
        search, calls = Translator._search, []

        def dying(self: Translator, batch: list[Any], options: Any) -> list[Any]:
            calls.append(batch)
            if rank == victim and len(calls) == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return search(self, batch, options)

        Translator._search = dying  # type: ignore[method-assign]

    words = ["translate", model, lines, "-o", tmp_path / "out", "--device", "cpu", "--batch-tokens", "60", "--search", "greedy"]
    ends = team(2, *words, before=mortal)
    assert ends.pop(victim).code == -signal.SIGKILL
    assert ends[0].code == 1 and LOST in ends[0].err and "--continue" in ends[0].err
    assert not (tmp_path / "out").exists()
    succeeded(team(2, *words, "--continue"))
    succeeded(team(1, *words[:3], "-o", tmp_path / "one", *words[5:]))
    assert (tmp_path / "out").read_text() == (tmp_path / "one").read_text()


def test_an_error_in_the_input_ends_all_with_the_lines_before_it_kept(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"1 2 3\n" * 50 + b"1 \xff 3\n")
    ends = team(2, "translate", model, tmp_path / "in", "-o", tmp_path / "out", "--device", "cpu", "-q", "--batch-tokens", "60")
    assert [end.code for end in ends] == [1, 0] and ends[1].err == ""
    assert f"{tmp_path / 'in'}, line 51" in ends[0].err and ends[0].err.count("\n") == 1


def test_a_model_that_is_not_there_is_told_once(tmp_path: Path) -> None:
    ends = team(2, "translate", tmp_path / "none", os.devnull)
    assert [end.code for end in ends] == [1, 1]
    assert "no such directory" in ends[0].err and ends[0].err.count("\n") == 1 and ends[1].err == ""


def test_what_is_wrong_with_input_and_output_is_told_once(model: Path, lines: Path, tmp_path: Path) -> None:
    prefix = text(tmp_path / "prefix", "1")
    for words, told in (
        ([lines, "--prefix", prefix], "prefix"),
        ([tmp_path / "none"], "no such file"),
        ([lines, "--attention", prefix], "prefix"),
        ([lines, "-o", tmp_path / "nowhere" / "out"], "nowhere"),
    ):
        ends = team(2, "translate", model, "--device", "cpu", *words)
        assert [end.code for end in ends] == [1, 1] and ends[1].err == ""
        assert told in ends[0].err and ends[0].err.count("\n") == 1


def test_prefixes_and_a_pipe(model: Path, lines: Path, tmp_path: Path) -> None:
    """Only the first process may look into a pipe: what one reads is gone for the others."""
    prefixes = text(tmp_path / "prefixes", *("4" if number % 3 == 0 else "" for number in range(150)))
    words = ["translate", model, "--prefix", prefixes, "--device", "cpu", "-q", "--search", "greedy"]
    (whole,) = team(1, *words, lines)
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text(lines.read_text()))
    writer.start()
    first, second = team(2, *words, tmp_path / "pipe")
    writer.join()
    assert first == whole and whole.code == 0 and second == End(0, "", "")


def test_nobody_is_left_serving_when_the_work_cannot_begin(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"1 2 3\n" * 1000)[:-9])
    first, second = team(2, "translate", model, tmp_path / "in.gz", "-o", tmp_path / "out", "--device", "cpu")
    assert first.code == 1 and "in.gz" in first.err and second == End(0, "", "")


def test_who_does_not_answer_is_not_waited_for_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "GRACE", 0.1)
    serving, never = {1, 2}, threading.Event()
    crew = distributed._Crew[int, int]([lambda batch: batch + 1, lambda batch: never.wait() and 0, lambda batch: 0], serving)
    while crew.free():
        crew.give(7)
    crew.dismiss()
    assert serving == {2}


def test_a_restart_by_torchrun_is_borne_by_resume_only(
    data: Dataset, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "TORCHELASTIC_RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(name, value)
    for more in ([], ["--overwrite"], ["--init-from", "model"]):
        code, told = refused(capsys, *training(data, tmp_path / "run"), *more)
        assert code == 2 and "--resume" in told


def test_other_commands_work_in_one_process(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    for words in (["score", "a", "-r", "b"], ["info", "x"], ["preprocess", "a", "b", "-o", "c"]):
        code, told = refused(capsys, *words)
        assert code == 2 and told.startswith(f"{words[0]} works in one process")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")  # torchrun has started the first too, and that one says it
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert main(["info", "x"]) == 2 and capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("size", "rank"), [("two", "0"), ("2", None), ("2", "x"), ("-2", "0"), ("2", "0"), ("2", "2"), ("9" * 20, "0")]
)
def test_an_environment_that_makes_no_sense_is_named(
    size: str, rank: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("WORLD_SIZE", size)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    for words in (["train", "data", "-o", tmp_path / "run"], ["translate", "run", os.devnull], ["info", "x"]):
        code, told = refused(capsys, *words)
        assert code in (1, 2) and any(name in told for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR"))


def test_who_waits_for_others_says_so_and_can_be_stopped(data: Dataset, tmp_path: Path) -> None:
    program = "import sys, nmt.distributed as d; d.SLOW = 0.1; from nmt.cli import main; main(sys.argv[1:])"
    environment = {**os.environ, "WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-c", program, *map(str, training(data, tmp_path / "run"))]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        try:
            told = f"process 0 waits for all 2 to meet at 127.0.0.1:{environment['MASTER_PORT']}\n"
            assert next_line(process.stderr).decode() == told
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == -signal.SIGINT
        finally:
            process.kill()
    assert not (tmp_path / "run").exists()


def test_torchrun_itself(data: Dataset, tmp_path: Path) -> None:
    """The launcher that users type: training, then translation of a pipe, each in two processes."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "nmt"]

    def launched(*words: str | Path, stdin: bytes = b"") -> bytes:
        done = subprocess.run([*launcher, *map(str, words)], input=stdin, capture_output=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    launched(*training(data, tmp_path / "run", max_steps=4))
    assert [event["step"] for event in events(tmp_path / "run", "train")] == [1, 2, 3, 4]
    source = "".join(f"{line}\n" for line, _ in toys.words(20, seed=3))
    found = launched("translate", tmp_path / "run", "--device", "cpu", "-q", stdin=source.encode())
    translator = Translator.load(tmp_path / "run", device="cpu", threads=1)
    assert found.decode() == "".join(f"{each.text}\n" for each in translator.translate(source.splitlines()))


@pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_each_process_has_a_gpu_of_its_own(data: Dataset, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "nmt"]
    words = [*training(data, tmp_path / "two"), "--device", "cuda", "--precision", "float32", "--no-compile"]
    subprocess.run([*launcher, *map(str, words)], check=True)
    one = training(data, tmp_path / "one", accumulate=2)
    assert main([*map(str, one), "--device", "cuda", "--precision", "float32", "--no-compile"]) == 0
    assert curve(tmp_path / "two") == pytest.approx(curve(tmp_path / "one"), rel=1e-4)
