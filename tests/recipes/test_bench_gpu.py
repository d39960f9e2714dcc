"""`make bench-gpu`: the whole way on a CPU, in small, and what it says where there is no GPU."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import bench_gpu
import pytest
import torch

from nmt.results import EMPTY, Translation
from nmt.search import Greedy
from nmt.translate import Options

ROOT = Path(__file__).parents[2]


def bench(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "recipes" / "bench_gpu.py"), *words]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, encoding="utf-8")


def written(scale: bench_gpu.Scale, folder: Path) -> tuple[Path, Path]:
    return bench_gpu.write_corpus(folder, scale.pairs, scale.vocabulary, bench_gpu.MEAN_LENGTH)


def test_all_is_measured(tmp_path: Path) -> None:
    done = bench(tmp_path, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")] == [Path("runs/bench-gpu.json")]
    found = json.loads((tmp_path / "runs" / "bench-gpu.json").read_text(encoding="utf-8"))
    (trained,) = found["training"].values()
    assert trained["precision"] == "bfloat16" and trained["tokens_per_second"]["median"] > 0 and 0 < trained["ratio_to_floor"] < 1
    assert trained["configuration"]["train"]["batch_tokens"] == 800 and "path" not in trained
    beam, greedy = found["translation"]["beam 4"], found["translation"]["greedy"]
    lines = written(bench_gpu.SMALL, tmp_path)[0].read_text(encoding="utf-8").splitlines()[: bench_gpu.SMALL.lines]
    # The translations are as long as their sources, so all searches make the same number of tokens.
    assert beam["tokens"] == greedy["tokens"] == sum(len(line.split()) for line in lines)
    for row in ("training, 800 tokens an update", "translation, beam 4", "translation, greedy"):
        assert row in done.stdout
    assert f"{trained['ratio_to_floor']:.1%}" in done.stdout and "bench-gpu.json: written" in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    done = bench(tmp_path)
    assert done.returncode == 1 and done.stdout == "" and not list(tmp_path.iterdir())
    assert done.stderr.startswith("bench-gpu: error: --device cuda: PyTorch finds no GPU here") and done.stderr.count("\n") == 1


def test_what_fails_is_told_and_the_rest_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    failed = bench_gpu.training(tmp_path / "missing", bench_gpu.SMALL, 800, "cpu", until=time.monotonic() + 60)
    late = bench_gpu.training(tmp_path / "missing", bench_gpu.SMALL, 800, "cpu", until=0)
    assert (failed, late) == ({"failed": "exit code 1"}, {"failed": "no time was left"})
    assert "missing: no such directory" in capfd.readouterr().err
    table = bench_gpu.table({"training": {"800": failed}, "translation": {"greedy": late}})
    assert "exit code 1" in table[1] and "no time was left" in table[2]


def test_a_search_that_fails_is_told_and_one_that_is_slow_gets_fewer_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(bench_gpu, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Slow:
        device = torch.device("cpu")

        def translate(self, lines: list[str], options: Options) -> Iterator[Translation]:
            for line in lines:
                now[0] += 1
                yield Translation((replace(EMPTY, token_log_probs=(0.0,) * len(line)),), (), False, False, None)

    class Broken:
        def translate(self, lines: list[str], options: Options) -> Iterator[Translation]:
            raise RuntimeError("no kernel")

    lines = ["ab"] * 100
    assert bench_gpu.translation(Broken(), "greedy", Greedy(), lines, 500, 60) == {"failed": "RuntimeError: no kernel"}
    found = bench_gpu.translation(Slow(), "greedy", Greedy(), lines, 500, 60)  # ten lines to warm up leave time for fifty
    assert (found["lines"], found["tokens"], found["tokens_per_second"]) == (51, 102, 2)
    assert bench_gpu.translation(Slow(), "greedy", Greedy(), lines, 500, 60) == {"failed": "no time was left"}


def test_a_network_that_cannot_be_loaded_takes_no_training_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: Path, model: dict[str, object], device: str) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(bench_gpu, "training", lambda *about: {"tokens_per_second": 7})
    monkeypatch.setattr(bench_gpu, "untrained", broken)
    found = bench_gpu.bench(bench_gpu.SMALL, "cpu")
    assert found["training"] == {"800": {"tokens_per_second": 7}}
    assert found["translation"] == {name: {"failed": "RuntimeError: no room"} for name in ("beam 4", "greedy")}


def test_the_corpus_has_lines_of_the_length_of_news_and_all_words(tmp_path: Path) -> None:
    scale = replace(bench_gpu.FULL, pairs=20_000, vocabulary=1_000)
    sides = written(scale, tmp_path)
    for path in sides:
        lines = [line.split(" ") for line in path.read_text(encoding="utf-8").splitlines()]
        assert len(lines) == 20_000 and 25 < sum(map(len, lines)) / 20_000 < 28 and max(map(len, lines)) == 150
        counts = Counter(word for line in lines for word in line)
        assert len(counts) == 996 and 1.9 < counts["a"] / counts["b"] < 2.1
    assert len(sides[0].read_text(encoding="utf-8").split()) != len(sides[1].read_text(encoding="utf-8").split())
