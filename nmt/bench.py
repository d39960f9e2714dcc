"""How fast training and translation are here, how near to the floor (see `floor`), and where the time goes (see `profile`).

Nothing is written: figures are returned, ready for JSON; `tables` lays them out, `curves` has those of how speed grows.
"""

import dataclasses
import math
import multiprocessing
import re
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import nmt
from nmt.checkpoint import load_model
from nmt.config import Config
from nmt.console import Console, Progress, seconds
from nmt.data.shards import Dataset
from nmt.data.subword import Subword
from nmt.data.updates import Update
from nmt.device import Precision, prepare
from nmt.errors import NmtError
from nmt.floor import FlopCounter, gemm_rate, wait_for
from nmt.learning import Training, feed, new_network
from nmt.models.base import Seq2Seq
from nmt.preflight import check
from nmt.profile import DATA, TRAINING, TRANSLATION, mark, profiled, shares, training_regions, translation_regions
from nmt.search import Search
from nmt.search.pool import LEAST_WIDTH
from nmt.translate import Options, Translator

WINDOWS = 10
"""Parts of the measured time, whose rates show how steady they are."""
COUNTED, PROFILED = 50, 10
"""Updates whose FLOPs are counted and whose time is told apart, at most: those of a window, if these are fewer."""
PART = 5
"""Lengths of sentences, spread over those of the input, that a translation is warmed up and profiled with: a batch of each."""
SINGLE, FIRST = 200, 5
"""Lines, spread over the input, that are translated one at a time, at most; and how many of them once before, to warm up."""


@dataclass(frozen=True)
class Window:
    """Updates that were measured together."""

    seconds: float
    updates: int
    tokens: int
    """Target tokens, `</s>` counted, padding not."""
    real: int
    padded: int
    """Positions of both sides, without and with padding."""


def training(
    dataset: Dataset, config: Config, console: Console, *, device: torch.device, compile: bool, length: float, warmup: int
) -> dict[str, Any]:
    """Figures of updates as `nmt train` makes them: after `warmup` of them, about `length` seconds' worth, one at least.

    Raises UsageError and NmtError as `train` does.
    """
    precision = check(dataset, dataset.path, config, device, resume=False, init_from=None, overwrite=False)
    model = new_network(dataset, config).to(device)
    learner = Training(config, console, model, device, precision, compile)
    with closing(feed(dataset, config, model, Path(tempfile.gettempdir())).updates(0, 0)) as coming:
        windows = timed_updates(learner, coming, "training", length, warmup)
        peak = peak_memory(device)
        console.say("counting, profiling, measuring matrix products")
        each = windows[0].updates
        flops = flops_per_token(learner, coming, min(each, COUNTED))
        spent = profiled(lambda: _profiled(learner, coming, min(each, PROFILED)), training_regions(compile), device)
    speed = gemm_rate(device, precision)
    return {
        "measured": "training",
        "path": str(dataset.path),
        **surroundings(device, precision),
        "compiled": compile,
        "configuration": config.to_dict(),
        "parameters": number_of_parameters(model),
        **rates(windows, flops, speed),
        "padding": 1 - sum(window.real for window in windows) / sum(window.padded for window in windows),
        "peak_memory": peak,
        "gemm_flops_per_second": speed,
        "shares": shares(spent, TRAINING),
    }


def rates(windows: Sequence[Window], flops: float, speed: float) -> dict[str, Any]:
    """The figures of updates of so many FLOPs a target token, where matrix products run at `speed` FLOPs a second."""
    tokens = spread([window.tokens / window.seconds for window in windows])
    return {
        "windows": len(windows),
        "updates": sum(window.updates for window in windows),
        "tokens": sum(window.tokens for window in windows),
        "seconds": sum(window.seconds for window in windows),
        "tokens_per_second": tokens,
        "updates_per_second": spread([window.updates / window.seconds for window in windows]),
        "flops_per_token": flops,
        "floor_tokens_per_second": speed / flops,
        "ratio_to_floor": tokens["median"] * flops / speed,
    }


def timed_updates(learner: Training, coming: Iterator[Update], name: str, length: float, warmup: int) -> list[Window]:
    """About `length` seconds' worth of updates, one at least, after `warmup` of them."""
    with learner.console.progress("warming up", "updates", warmup) as shown:
        for _ in range(warmup):
            learner.update(next(coming))
            shown.advance()
    wait_for(learner.device)
    windows: list[Window] = []
    with learner.console.progress(name, "updates", until=seconds() + length) as shown:
        while not windows or sum(window.seconds for window in windows) < length:
            windows.append(_window(learner, coming, length / WINDOWS))
            shown.advance(windows[-1].updates)
    return windows


def _window(learner: Training, coming: Iterator[Update], length: float) -> Window:
    """At least one update, and as many as `length` seconds need."""
    updates: list[Update] = []
    began = seconds()
    while not updates or seconds() - began < length:
        updates.append(next(coming))
        learner.update(updates[-1])
    wait_for(learner.device)
    took = seconds() - began
    sums = (sum(getattr(update, name) for update in updates) for name in ("tokens", "real", "padded"))
    return Window(took, len(updates), *sums)


def flops_per_token(learner: Training, coming: Iterator[Update], updates: int) -> float:
    """Of so many updates, the FLOPs of their matrix products over their target tokens."""
    # A compiled network's products are hidden from the counter; it does the same ones.
    compiled, learner.forward = learner.forward, learner.model
    tokens = 0
    with FlopCounter() as counter:
        for update in (next(coming) for _ in range(updates)):
            learner.update(update)
            tokens += update.tokens
    learner.forward = compiled
    per_token: float = counter.flops / tokens
    return per_token


def _profiled(learner: Training, coming: Iterator[Update], updates: int) -> None:
    for _ in range(updates):
        with mark(DATA):
            update = next(coming)
        learner.update(update)


def translation(
    path: Path,
    lines: Sequence[str],
    source: str,
    console: Console,
    *,
    searches: Mapping[str, Search],
    batch_tokens: int,
    device: torch.device,
    precision: Precision = "float32",
) -> dict[str, Any]:
    """Figures of the translation of `lines`, which are from `source`, as `nmt translate` makes them, by each of `searches`.

    Raises NmtError where the model at `path` is none, where no line has anything to translate, and for int8 on a device without.
    """
    saved = load_model(path, device)
    parameters = number_of_parameters(saved.model)
    prepare(saved.model, device, precision)
    alone = Translator([saved.model], saved.source, saved.target, device)  # counters and profilers see one process only
    workers = torch.get_num_threads() if device.type == "cpu" else 1
    translator = Translator([saved.model], saved.source, saved.target, device, workers=workers)
    full = [line for line in lines if saved.source.encode(line)]
    if not full:
        raise NmtError(f"{source}: has no line to translate")
    part = _part(full, saved.source, batch_tokens)
    single = [full[number * len(full) // SINGLE] for number in range(SINGLE)] if len(full) > SINGLE else full
    each_options = {name: Options(search, batch_tokens=batch_tokens) for name, search in searches.items()}
    # All are timed before the first is taken apart: what a profiler holds would count as memory of those after it.
    found = [_timed(translator, lines, part, name, options, console) for name, options in each_options.items()]
    for each, options in zip(found, each_options.values(), strict=True):
        each["latency_milliseconds"] = _latency(alone, single, each["search"], options, console)
    console.say("counting, profiling, measuring matrix products")
    for each, options in zip(found, each_options.values(), strict=True):
        with FlopCounter() as counter:
            _run(alone, full, options)
        each["flops_per_sentence"] = counter.flops / len(full)
        spent = profiled(partial(_run, alone, part, options), translation_regions(saved.model, options.search), device)
        each["shares"] = shares(spent, TRANSLATION)
    arithmetic: torch.dtype = getattr(torch, precision)
    speed = gemm_rate(device, arithmetic)
    greedy = next((each["seconds"] for each in found if each["search"] == "greedy"), None)
    for each in found:
        each["floor_sentences_per_second"] = speed / each["flops_per_sentence"]
        each["ratio_to_floor"] = each["sentences_per_second"] * each["flops_per_sentence"] / speed
        each["times_greedy"] = None if greedy is None else each["seconds"] / greedy
    return {
        "measured": "translation",
        "path": str(path),
        "input": source,
        **surroundings(device, arithmetic),
        "configuration": {"model": saved.config["model"], "batch_tokens": batch_tokens},
        "parameters": parameters,
        "lines": len(lines),
        "gemm_flops_per_second": speed,
        "searches": found,
    }


def _part(lines: Sequence[str], subword: Subword, batch_tokens: int) -> list[str]:
    """Whole batches of a few lengths: a part of the input that is batched as it is in the whole."""
    by_length: defaultdict[int, list[str]] = defaultdict(list)
    for line in lines:
        by_length[len(subword.encode(line))].append(line)
    lengths = sorted(by_length)
    every = max(1, len(lengths) // PART)
    chosen = lengths[every // 2 :: every][:PART]
    return [line for length in chosen for line in by_length[length][: max(1, batch_tokens // max(length + 1, LEAST_WIDTH))]]


def _timed(
    translator: Translator, lines: Sequence[str], part: Sequence[str], name: str, options: Options, console: Console
) -> dict[str, Any]:
    """Speed and memory of one search."""
    _run(translator, part, options)  # warms up
    reset_peak_memory(translator.device)
    began = seconds()
    with console.progress(name, "lines", len(lines)) as shown:
        sentences, tokens, processes, peak = _run(translator, lines, options, shown)
    took = seconds() - began
    return {
        "search": name,
        "options": dataclasses.asdict(options.search),  # type: ignore[call-overload]  # all searches are dataclasses
        "sentences": sentences,
        "tokens": tokens,
        "seconds": took,
        "sentences_per_second": sentences / took,
        "tokens_per_second": tokens / took,
        "processes": processes,
        "peak_memory": peak,
    }


def _run(
    translator: Translator, lines: Sequence[str], options: Options, shown: Progress | None = None
) -> tuple[int, int, int, int | None]:
    """Lines that were not blank, target tokens that were produced, `</s>` counted, processes that took part, and peak memory."""
    sentences = tokens = 0
    workers: list[int] = []
    peak = None
    for number, each in enumerate(translator.translate(lines, options), 1):
        sentences += bool(each.source)
        tokens += len(each.hypotheses[0].token_log_probs)
        if shown is not None:
            shown.advance()
        if number == len(lines):  # once the iterator has ended, the workers are gone
            workers = [process.pid for process in multiprocessing.active_children() if process.pid is not None]
            peak = peak_memory(translator.device, workers)
    return sentences, tokens, 1 + len(workers), peak


def _latency(translator: Translator, lines: Sequence[str], name: str, options: Options, console: Console) -> dict[str, float]:
    """Milliseconds from a line to its translation, one line at a time: half of the lines, and 95 in a hundred, take no longer."""
    options = dataclasses.replace(options, batch_lines=1)
    _run(translator, lines[:FIRST], options)  # warms up
    times = []
    with console.progress(f"{name}, one at a time", "lines", len(lines)) as shown:
        began = seconds()
        for _ in translator.translate(lines, options):
            times.append(1000 * (seconds() - began))
            shown.advance()
            began = seconds()
    slowest = sorted(times)[: math.ceil(0.95 * len(times))]
    return {"sentences": len(times), "median": statistics.median(times), "percentile_95": slowest[-1]}


def surroundings(device: torch.device, precision: torch.dtype) -> dict[str, Any]:
    """What a speed depends on besides the work."""
    return {
        "nmt": nmt.__version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "threads": torch.get_num_threads(),
        "precision": str(precision).removeprefix("torch."),
    }


def number_of_parameters(model: Seq2Seq) -> int:
    """Those that are shared count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def spread(values: Sequence[float]) -> dict[str, float]:
    """The middle one of `values`, and the ends."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def peak_memory(device: torch.device, workers: Sequence[int] = ()) -> int | None:
    """The most bytes held: on a GPU by torch's tensors, else by the largest process, this one or one of `workers` (their ids).

    They share weights and libraries, which count in each, so that their sum would be too much. None where the system does not tell.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peaks = [0]
    for process in ("self", *workers):
        status = Path(f"/proc/{process}/status")
        found = re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text(), re.MULTILINE) if status.is_file() else None
        peaks.append(1024 * int(found[1]) if found else 0)
    return max(peaks) or None


def reset_peak_memory(device: torch.device) -> None:
    """Begin anew, on a GPU; a process keeps its own peak."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
