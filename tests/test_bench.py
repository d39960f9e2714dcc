"""nmt bench: figures that do not depend on the clock, what it leaves behind, and what it refuses."""

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nmt import bench, floor
from nmt.cli import main
from nmt.data.shards import Dataset
from nmt.data.updates import Feed, Update
from nmt.learning import Training
from nmt.models.quantized import available
from nmt.profile import DECODER, TRAINING, TRANSLATION
from nmt.search import Beam, Greedy
from nmt.translate import Options, Translator
from nmt.vocab import BOS
from tests.command_line import out, refused, text
from tests.toys import CPU, QUIET, TINY, config, dataset, reversed_digits, run, words

COMMON = {
    "measured",
    "path",
    "nmt",
    "torch",
    "device",
    "threads",
    "precision",
    "configuration",
    "parameters",
    "gemm_flops_per_second",
}
OF_TRAINING = {
    *("compiled", "windows", "updates", "tokens", "seconds", "tokens_per_second", "updates_per_second", "padding", "peak_memory"),
    *("flops_per_token", "floor_tokens_per_second", "ratio_to_floor", "shares"),
}
OF_A_SEARCH = {
    *("search", "options", "sentences", "tokens", "seconds", "sentences_per_second", "tokens_per_second", "times_greedy"),
    *(
        "processes",
        "peak_memory",
        "latency_milliseconds",
        "flops_per_sentence",
        "floor_sentences_per_second",
        "ratio_to_floor",
        "shares",
    ),
}


@pytest.fixture(autouse=True)
def small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(floor.SIZE, "cpu", 16)
    monkeypatch.setattr(floor, "LEAST_SECONDS", 0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset(tmp_path_factory.mktemp("bench") / "made", words(60, 1), 8, tokenizer="bpe", vocab_size=60)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained as far as that it ends its translations, which are short."""
    place = tmp_path_factory.mktemp("model")
    digits = dataset(place / "made", reversed_digits(60, 1, longest=2), 4)
    run(digits, place / "run", config("rnn", max_steps=40, valid_every=40, learning_rate=0.03))
    return place / "run"


def tiny(backend: str) -> list[str]:
    """The options of a tiny network, and of a bench that takes no time."""
    settings = [word for key, value in TINY[backend].items() for word in ("--set", f"model.{key}={value}")]
    return ["--backend", backend, *settings, "--batch-tokens", "128", "--seconds", "0", "--warmup", "2", "-q"]


def all_files(*places: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for place in places for path in [place, *place.rglob("*")]}


def updates(data: Dataset, count: int) -> list[Update]:
    feed = Feed(data, BOS, batch_tokens=128, accumulate=1, bpe_dropout=0.0, seed=1, directory=data.path)
    coming = feed.updates(0, 0)
    found = list(itertools.islice(coming, count))
    coming.close()
    return found


def positive(value: Any) -> bool:
    return math.isfinite(value) and value > 0


def test_training_is_measured_on_the_updates_that_train_makes(
    capsys: pytest.CaptureFixture[str], data: Dataset, backend: str
) -> None:
    found = json.loads(out(capsys, "bench", data.path, *tiny(backend), "--format", "json"))
    assert set(found) == COMMON | OF_TRAINING and found["measured"] == "training"
    third = updates(data, 3)[2]
    assert (found["windows"], found["updates"], found["tokens"]) == (1, 1, third.tokens)
    assert found["tokens"] == sum(int((part.target != 0).sum()) for part in third.parts)
    assert found["padding"] == pytest.approx(1 - third.real / third.padded)
    assert found["configuration"]["model"]["backend"] == backend and found["configuration"]["train"]["batch_tokens"] == 128
    assert found["torch"] == torch.__version__ and found["threads"] == torch.get_num_threads()
    assert list(found["shares"]) == list(TRAINING) and sum(found["shares"].values()) == pytest.approx(1)
    for name in ("matrix products", "attention", "output layer and loss", "optimizer", "data"):
        assert found["shares"][name] > 0, name
    median = found["tokens_per_second"]["median"]
    assert median == pytest.approx(found["tokens"] / found["seconds"])
    assert found["floor_tokens_per_second"] == pytest.approx(found["gemm_flops_per_second"] / found["flops_per_token"])
    assert found["ratio_to_floor"] == pytest.approx(median / found["floor_tokens_per_second"])
    assert positive(found["parameters"]) and positive(found["flops_per_token"])


def test_translation_is_measured_on_what_translate_writes(capsys: pytest.CaptureFixture[str], tmp_path: Path, model: Path) -> None:
    lines = [*(source for source, _ in reversed_digits(12, 7, longest=2)), "", " "]
    found = json.loads(out(capsys, "bench", model, text(tmp_path / "in", *lines), "--format", "json", "--beam-size", "2"))
    assert set(found) == COMMON | {"input", "lines", "searches"} and found["lines"] == 14
    assert [each["search"] for each in found["searches"]] == ["greedy", "beam 2"]
    translator = Translator.load(model, device="cpu")
    for each in found["searches"]:
        assert set(each) == OF_A_SEARCH and each["sentences"] == 12
        assert list(each["shares"]) == list(TRANSLATION) and sum(each["shares"].values()) == pytest.approx(1)
        assert all(share > 0 for share in each["shares"].values())
        assert each["ratio_to_floor"] == pytest.approx(each["sentences_per_second"] / each["floor_sentences_per_second"])
        assert each["latency_milliseconds"].keys() == {"sentences", "median", "percentile_95"}
        assert each["latency_milliseconds"]["sentences"] == 12
        assert 0 < each["latency_milliseconds"]["median"] <= each["latency_milliseconds"]["percentile_95"]
    greedy, beam = found["searches"]
    assert greedy["times_greedy"] == 1 and beam["times_greedy"] == pytest.approx(beam["seconds"] / greedy["seconds"])
    assert beam["flops_per_sentence"] > greedy["flops_per_sentence"]
    greedy_tokens, beam_tokens = (
        sum(len(each.hypotheses[0].token_log_probs) for each in translator.translate(lines, Options(search)))
        for search in (Greedy(), Beam(2))
    )
    assert (greedy["tokens"], beam["tokens"]) == (greedy_tokens, beam_tokens)


def test_a_model_is_measured_in_integers(capsys: pytest.CaptureFixture[str], tmp_path: Path, model: Path) -> None:
    lines = [source for source, _ in reversed_digits(8, 7, longest=2)]
    words_ = ["bench", model, text(tmp_path / "in", *lines), "--search", "greedy", "--format", "json", "-q", "--precision"]
    if not available():
        assert refused(capsys, *words_, "int8")[0] == 1
        return
    exact, found = (json.loads(out(capsys, *words_, precision)) for precision in ("float32", "int8"))
    assert (exact["precision"], found["precision"]) == ("float32", "int8")
    assert found["parameters"] == exact["parameters"]
    translator = Translator.load(model, device="cpu", precision="int8")
    tokens = sum(len(each.hypotheses[0].token_log_probs) for each in translator.translate(lines, Options(Greedy())))
    assert found["searches"][0]["tokens"] == tokens
    assert found["searches"][0]["flops_per_sentence"] == exact["searches"][0]["flops_per_sentence"]
    assert found["searches"][0]["shares"][DECODER] > 0


def test_latency_is_of_one_line_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    asked: list[Options] = []
    monkeypatch.setattr(bench, "seconds", lambda: now)

    def translate(lines: list[str], options: Options) -> Iterator[Any]:
        nonlocal now
        asked.append(options)
        for line in lines:
            now += float(line)
            yield SimpleNamespace(source=line, hypotheses=[SimpleNamespace(token_log_probs=[0.0])])

    stub: Any = SimpleNamespace(translate=translate, device=CPU)
    found = bench._latency(stub, [str(number) for number in range(1, 101)], "greedy", Options(Greedy()), QUIET)
    assert found == {"sentences": 100, "median": 50_500.0, "percentile_95": 95_000.0}
    assert [options.batch_lines for options in asked] == [1, 1]


def test_memory_is_that_of_the_largest_process() -> None:
    program = "import sys; held = bytearray(700 << 20); held[:: 1 << 10] = b'x' * len(held[:: 1 << 10]); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        alone, together = bench.peak_memory(CPU), bench.peak_memory(CPU, [child.pid])
        child.communicate(b"\n")
    if alone is not None:  # the system tells
        assert together is not None and together >= max(alone, 700 << 20)
        assert bench.peak_memory(CPU, [child.pid]) == bench.peak_memory(CPU)  # it is gone


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes are forked on Linux only")
def test_worker_processes_are_seen(capsys: pytest.CaptureFixture[str], tmp_path: Path, model: Path) -> None:
    lines = [source for source, _ in reversed_digits(40, 7, longest=2)]
    threads = torch.get_num_threads()
    words_ = ["bench", model, text(tmp_path / "in", *lines, ""), "--search", "greedy", "--format", "json", "--batch-tokens", "32"]
    try:
        for count in (1, 2):
            found = json.loads(out(capsys, *words_, "--threads", str(count), "-q"))
            assert found["searches"][0]["processes"] == (1 if count == 1 else 3)
            assert found["searches"][0]["peak_memory"] > 50e6
    finally:
        torch.set_num_threads(threads)


def test_it_is_a_table_on_stdout_and_words_on_stderr(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, data: Dataset, model: Path
) -> None:
    assert main(["bench", str(data.path), *(word for word in tiny("rnn") if word != "-q"), "--threads", "1"]) == 0
    printed, told = capsys.readouterr()
    assert all(name in printed for name in (*TRAINING, "share of the floor", "1 window ", "1 thread;")) and "profiling" in told
    printed = out(capsys, "bench", model, text(tmp_path / "in", "1 2"), "--search", "beam", "-q")
    assert (
        all(name in printed for name in (*TRANSLATION, "beam 5", "sentences a second", "95th percentile, ms"))
        and printed.count("greedy") == 1
    )
    assert capsys.readouterr().err == ""


def test_nothing_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Dataset, model: Path
) -> None:
    import tempfile

    (tmp_path / "temporary").mkdir()
    lines = text(tmp_path / "in", "1 2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    there = all_files(data.path.parent, lines)
    out(capsys, "bench", data.path, *tiny("transformer"), "--set", "data.bpe_dropout=0.1")
    out(capsys, "bench", model, lines, "--search", "greedy")
    assert all_files(data.path.parent, lines) == there
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["in", "temporary"]


def test_a_file_of_train_configures_it(capsys: pytest.CaptureFixture[str], tmp_path: Path, data: Dataset) -> None:
    sizes = "\n".join(f"{key} = {value}" for key, value in TINY["rnn"].items())
    file = text(
        tmp_path / "recipe.toml",
        *("[model]", 'backend = "rnn"', sizes),
        *("[train]", "batch_tokens = 200", 'output = "elsewhere"', 'size = "tiny"', "warmup = 7"),
        *("[bench]", "seconds = 0", "warmup = 1"),
    )
    found = json.loads(out(capsys, "bench", data.path, "--config", file, "--format", "json"))
    model, train = found["configuration"]["model"], found["configuration"]["train"]
    assert (model["width"], model["dropout"], train["batch_tokens"], train["warmup"]) == (16, 0.3, 200, 7)
    for table, key, near in (("train", "outptu", "output"), ("bench", "second", "seconds")):
        wrong = text(tmp_path / "wrong.toml", f"[{table}]", f'{key} = "x"')
        code, told = refused(capsys, "bench", data.path, "--config", wrong)
        assert code == 2 and told.startswith(f"{wrong}:2: unknown key {table}.{key}; did you mean '{near}'?"), told


def test_what_is_for_the_other_subject_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, data: Dataset, model: Path
) -> None:
    lines, blank = text(tmp_path / "in", "1 2"), text(tmp_path / "blank", "", " ")
    for words_, code, message in (
        ([data.path, lines], 2, "INPUT is for a model"),
        ([data.path, "--search", "greedy"], 2, "--search is for a model"),
        ([data.path, "--beam-size", "3"], 2, "--beam-size is for a model"),
        ([model, lines, "--seconds", "3"], 2, "--seconds is for data to train on"),
        ([model, lines, "--set", "model.width=8"], 2, "--set is for data to train on"),
        ([model, lines, "--precision", "float16"], 2, "--precision float16 is for training"),
        ([model, lines, "--plot", "a.svg"], 2, "--plot is for a curve of training or the curve of decoding, not for a model"),
        ([data.path, "--precision", "int8"], 2, "--precision int8 is for a model"),
        ([data.path, "--vocab-size", "99"], 2, "--vocab-size is for a curve"),
        ([data.path, "--curve", "width"], 2, "name either what to measure"),
        ([model], 2, "name a text for it to translate"),
        ([model, tmp_path / "missing"], 1, "missing: no such file"),
        ([model, blank], 1, "has no line to translate"),
        ([data.path, "--batch-tokens", "2"], 1, "raise --batch-tokens"),
        ([data.path, "--set", "train.precision=float16"], 2, "float16 needs a GPU"),
    ):
        found = refused(capsys, "bench", *words_, "-q")
        assert found[0] == code and message in found[1], found


def test_an_interrupt_ends_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: Dataset) -> None:
    def interrupted(*_: object) -> Iterator[None]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Training, "update", interrupted)
    assert main(["bench", str(data.path), *tiny("rnn")]) == 130
    assert capsys.readouterr() == ("", "")
