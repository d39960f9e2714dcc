"""What `make bench-gpu` runs: how fast a GPU trains the Transformer of 2017 (base), and translates with it, in bfloat16.

The corpus is made on the spot: words as frequent as Zipf's law has them, sentences about as long as those of WMT's news in
subwords. There is nothing in it to learn, and nothing of the speed depends on that: the network that translates is untrained, and
its translations end where they may not be longer, at the length of their sources.

One table on stdout, every figure in runs/bench-gpu.json, in less than eight minutes: what has not begun by then is left out.
`--device cpu` goes the same way with a corpus and a network of no size, to see that it can be gone.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from made_up import write_corpus
from steps import near, run, say

from nmt.bench import peak_memory, reset_peak_memory
from nmt.checkpoint import save_model
from nmt.config import Layer, resolve
from nmt.console import layout, rate
from nmt.data.shards import Dataset
from nmt.device import choose_device
from nmt.errors import NmtError
from nmt.learning import new_network
from nmt.preflight import vocabulary
from nmt.search import Beam, Greedy, Search
from nmt.translate import Options, Translator

LIMIT, RESERVED = 450.0, 100.0
"""Seconds that all may take, and those of them that training leaves to translation."""
MEAN_LENGTH = 26.6
"""Words of a sentence."""


@dataclass(frozen=True)
class Scale:
    """How much is measured of what."""

    pairs: int
    vocabulary: int
    model: dict[str, object]
    """Settings that differ from the base network's."""
    batches: tuple[int, ...]
    """`--batch-tokens` of the trainings, the one that matters most first."""
    seconds: float
    warmup: int
    compiled: bool
    lines: int
    """To translate."""
    positions: int
    """Source positions of a batch of them."""


FULL = Scale(200_000, 32_000, {}, (50_000, 100_000, 25_000), 15, 20, True, 40_000, 50_000)
SMALL = Scale(300, 100, {"layers": 1, "width": 16, "heads": 2, "feed_forward": 32}, (800,), 0, 1, False, 30, 500)


def training(data: Path, scale: Scale, tokens: int, device: str, until: float) -> dict[str, Any]:
    """What `nmt bench` finds, in a process of its own, or as `failed` why it finds nothing."""
    settings = [f"--set=model.{key}={value}" for key, value in scale.model.items()]
    how = ["--precision", "bfloat16", "--compile" if scale.compiled else "--no-compile", "--device", device]
    extent = ["--seconds", str(scale.seconds), "--warmup", str(scale.warmup), "--format", "json"]
    words = ["nmt", "bench", near(data), "--size", "base", *settings, "--batch-tokens", str(tokens), *how, *extent]
    left = until - time.monotonic()
    if left <= 0:
        return {"failed": "no time was left"}
    say(f"$ {shlex.join(words)}")
    try:
        done = subprocess.run([sys.executable, "-m", *words], stdout=subprocess.PIPE, timeout=left, encoding="utf-8")
    except subprocess.TimeoutExpired:
        return {"failed": f"not done in {left:.0f} s"}
    if done.returncode:
        return {"failed": f"exit code {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout)
    return {key: value for key, value in found.items() if key != "path"}  # which is gone by the time that somebody reads it


def untrained(data: Path, model: dict[str, object], device: str) -> Translator:
    """The network that `nmt train` would begin with, loaded as `nmt translate` loads it."""
    dataset = Dataset.open(data)
    config = resolve("transformer", "base", [Layer("here", {"model": model})])
    with TemporaryDirectory() as place:
        description = {**config.to_dict(), **vocabulary(dataset)}
        save_model(Path(place), new_network(dataset, config), description, dataset.source, dataset.target)
        return Translator.load(place, device=device, precision="bfloat16")


def translation(
    translator: Translator, name: str, search: Search, lines: Sequence[str], positions: int, until: float
) -> dict[str, Any]:
    """Speed and memory of a search on as many of `lines` as there is time for, or as `failed` why there are none."""
    options = Options(search, max_length_ratio=1.0, batch_tokens=positions)
    first = lines[: len(lines) // 10]
    began = time.monotonic()
    if began > until:
        return {"failed": "no time was left"}
    say(f"translating {len(lines):,} lines, {name}")
    try:
        for _ in translator.translate(first, options):
            pass  # warms up
        warm = time.monotonic()
        chosen = lines[: 1 + int(len(first) * max(0, until - warm) / (warm - began))]
        reset_peak_memory(translator.device)
        began = time.monotonic()
        tokens = sum(len(each.hypotheses[0].token_log_probs) for each in translator.translate(chosen, options))
        seconds = time.monotonic() - began
    except Exception as error:
        return failed(error)
    return {
        "lines": len(chosen),
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "sentences_per_second": len(chosen) / seconds,
        "batch_tokens": positions,
        "peak_memory": peak_memory(translator.device),
    }


def failed(error: Exception) -> dict[str, Any]:
    """What stands in place of a figure: whatever it is, it takes no other figure with it."""
    return {"failed": f"{type(error).__name__}: {error}"}


def table(found: dict[str, Any]) -> list[str]:
    """The figures that matter, in lines."""
    columns = ("", "target tokens a second", "lowest", "highest", "share of the matrix rate", "padding", "peak memory")
    rows = []
    for tokens, each in found["training"].items():
        name = f"training, {int(tokens):,} tokens an update"
        if "failed" in each:
            rows.append([name, each["failed"], *[""] * 5])
            continue
        speed = [rate(each["tokens_per_second"][key]) for key in ("median", "lowest", "highest")]
        rows.append([name, *speed, f"{each['ratio_to_floor']:.1%}", f"{each['padding']:.1%}", _gigabytes(each["peak_memory"])])
    for name, each in found["translation"].items():
        speed = [each["failed"]] if "failed" in each else [rate(each["tokens_per_second"])]
        rows.append([f"translation, {name}", *speed, "", "", "", "", _gigabytes(each.get("peak_memory"))])
    return layout(columns, rows)


def _gigabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e9:.1f} GB"


def bench(scale: Scale, device: str) -> dict[str, Any]:
    """All figures, ready for JSON."""
    began = time.monotonic()
    with TemporaryDirectory() as place:
        folder = Path(place)
        say(f"writing a corpus of {scale.pairs:,} pairs")
        sides = write_corpus(folder, scale.pairs, scale.vocabulary, MEAN_LENGTH)
        data = folder / "data"
        how = ["--tokenizer", "word", "--vocab-size", str(scale.vocabulary), "--valid-size", "0", "--quiet"]
        run(["nmt", "preprocess", *sides, "-o", data, *how])
        until = began + LIMIT - RESERVED
        found = {str(tokens): training(data, scale, tokens, device, until) for tokens in scale.batches}
        with sides[0].open(encoding="utf-8") as text:
            lines = [line for line, _ in zip(text, range(scale.lines), strict=False)]
        searches: dict[str, Search] = {"beam 4": Beam(4), "greedy": Greedy()}
        try:
            translator = untrained(data, scale.model, device)
        except Exception as error:
            translated = dict.fromkeys(searches, failed(error))
        else:
            until = began + LIMIT
            translated = {
                name: translation(translator, name, search, lines, scale.positions, until) for name, search in searches.items()
            }
    return {"training": found, "translation": translated, "seconds": time.monotonic() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure training and translation in bfloat16 on one GPU.")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu for a trial in small (cuda)")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/bench-gpu.json"), help="all figures (runs/bench-gpu.json)")
    options = parser.parse_args()
    try:
        device = choose_device(options.device)
    except NmtError as error:
        raise SystemExit(f"bench-gpu: error: {error} (cpu: a trial in small)") from None
    try:
        found = bench(FULL if device.type == "cuda" else SMALL, options.device)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    measured = [each for each in found["training"].values() if "failed" not in each]
    if measured:
        first = measured[0]
        print(f"{first['device']}, bfloat16, {first['parameters']:,} parameters; nmt {first['nmt']}, torch {first['torch']}")
        print(f"matrix products: {first['gemm_flops_per_second'] / 1e12:.1f} TFLOP a second at best\n")
    print("\n".join(table(found)))
    say(f"{near(options.output)}: written, after {found['seconds']:.0f} s")
    if any("failed" in each for each in (*found["training"].values(), *found["translation"].values())):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
