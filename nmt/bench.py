"""How fast training and translation are here, how near to the floor (see `floor`), and where the time goes (see `profile`).

Nothing is written: figures are returned, ready for JSON, and `as_text` lays them out.
"""

import dataclasses
import re
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import nmt
from nmt.checkpoint import load_model
from nmt.config import Config
from nmt.console import Console, Progress, layout, rate, seconds
from nmt.data.shards import Dataset
from nmt.data.subword import Subword
from nmt.data.updates import Update
from nmt.errors import NmtError
from nmt.floor import FlopCounter, gemm_rate, wait_for
from nmt.learning import Training, new_network
from nmt.models.base import Seq2Seq
from nmt.preflight import check
from nmt.profile import DATA, TRAINING, TRANSLATION, mark, profiled, shares, training_regions, translation_regions
from nmt.search import Search
from nmt.translate import LEAST_WIDTH, Options, Translator

WINDOWS = 10
"""Parts of the measured time, whose rates show how steady they are."""
COUNTED, PROFILED = 50, 10
"""Updates whose FLOPs are counted and whose time is told apart, at most: those of a window, if these are fewer."""
PART = 5
"""Lengths of sentences, spread over those of the input, that a translation is warmed up and profiled with: a batch of each."""


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
    place = Path(tempfile.gettempdir())
    learner = Training(dataset, config, console, model, device, precision, compile, directory=place)
    with closing(learner.feed.updates(0, 0)) as coming:
        with console.progress("warming up", "updates", warmup) as shown:
            for _ in range(warmup):
                learner.update(next(coming))
                shown.advance()
        windows: list[Window] = []
        with console.progress("training", "updates", until=seconds() + length) as shown:
            while not windows or sum(window.seconds for window in windows) < length:
                windows.append(_window(learner, coming, length / WINDOWS))
                shown.advance(windows[-1].updates)
        peak = peak_memory(device)
        console.say("counting, profiling, measuring matrix products")
        each = windows[0].updates
        flops = _flops_per_token(learner, coming, min(each, COUNTED))
        spent = profiled(lambda: _profiled(learner, coming, min(each, PROFILED)), training_regions(compile), device)
    speed = gemm_rate(device, precision)
    tokens = _spread([window.tokens / window.seconds for window in windows])
    return {
        "measured": "training",
        "path": str(dataset.path),
        **_surroundings(device, precision),
        "compiled": compile,
        "configuration": config.to_dict(),
        "parameters": _parameters(model),
        "windows": len(windows),
        "updates": sum(window.updates for window in windows),
        "tokens": sum(window.tokens for window in windows),
        "seconds": sum(window.seconds for window in windows),
        "tokens_per_second": tokens,
        "updates_per_second": _spread([window.updates / window.seconds for window in windows]),
        "padding": 1 - sum(window.real for window in windows) / sum(window.padded for window in windows),
        "peak_memory": peak,
        "flops_per_token": flops,
        "gemm_flops_per_second": speed,
        "floor_tokens_per_second": speed / flops,
        "ratio_to_floor": tokens["median"] * flops / speed,
        "shares": shares(spent, TRAINING),
    }


Coming = Generator[Update, None, None]


def _window(learner: Training, coming: Coming, length: float) -> Window:
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


def _flops_per_token(learner: Training, coming: Coming, updates: int) -> float:
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


def _profiled(learner: Training, coming: Coming, updates: int) -> None:
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
) -> dict[str, Any]:
    """Figures of the translation of `lines`, which are from `source`, as `nmt translate` makes them, by each of `searches`.

    Raises NmtError where the model at `path` is none, and where no line has anything to translate.
    """
    saved = load_model(path, device)
    alone = Translator([saved.model], saved.source, saved.target, device)  # counters and profilers see one process only
    workers = torch.get_num_threads() if device.type == "cpu" else 1
    translator = Translator([saved.model], saved.source, saved.target, device, workers=workers)
    part = _part(lines, saved.source, batch_tokens)
    if not part:
        raise NmtError(f"{source}: has no line to translate")
    each_options = {name: Options(search, batch_tokens=batch_tokens) for name, search in searches.items()}
    # All are timed before the first is taken apart: what a profiler holds would count as memory of those after it.
    found = [_timed(translator, lines, part, name, options, console) for name, options in each_options.items()]
    console.say("counting, profiling, measuring matrix products")
    for each, options in zip(found, each_options.values(), strict=True):
        each |= _taken_apart(alone, saved.model, lines, part, options)
    precision = next(saved.model.parameters()).dtype
    speed = gemm_rate(device, precision)
    greedy = next((each["seconds"] for each in found if each["search"] == "greedy"), None)
    for each in found:
        each["floor_sentences_per_second"] = speed / each["flops_per_sentence"]
        each["ratio_to_floor"] = each["sentences_per_second"] * each["flops_per_sentence"] / speed
        each["times_greedy"] = None if greedy is None else each["seconds"] / greedy
    return {
        "measured": "translation",
        "path": str(path),
        "input": source,
        **_surroundings(device, precision),
        "configuration": {"model": saved.config["model"], "batch_tokens": batch_tokens},
        "parameters": _parameters(saved.model),
        "lines": len(lines),
        "gemm_flops_per_second": speed,
        "searches": found,
    }


def _part(lines: Sequence[str], subword: Subword, batch_tokens: int) -> list[str]:
    """Whole batches of a few lengths: a part of the input that is batched as it is in the whole."""
    by_length: defaultdict[int, list[str]] = defaultdict(list)
    for line in lines:
        by_length[len(subword.encode(line))].append(line)
    by_length.pop(0, None)  # blank
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
        sentences, tokens = _run(translator, lines, options, shown)
    took = seconds() - began
    peak = peak_memory(translator.device)
    return {
        "search": name,
        "options": dataclasses.asdict(options.search),  # type: ignore[call-overload]  # all searches are dataclasses
        "sentences": sentences,
        "tokens": tokens,
        "seconds": took,
        "sentences_per_second": sentences / took,
        "tokens_per_second": tokens / took,
        "peak_memory": peak,
    }


def _taken_apart(
    translator: Translator, model: Seq2Seq, lines: Sequence[str], part: Sequence[str], options: Options
) -> dict[str, Any]:
    """FLOPs of one search, and where its time goes."""
    with FlopCounter() as counter:
        sentences, _ = _run(translator, lines, options)
    spent = profiled(lambda: _run(translator, part, options), translation_regions(model, options.search), translator.device)
    return {"flops_per_sentence": counter.flops / sentences, "shares": shares(spent, TRANSLATION)}


def _run(translator: Translator, lines: Sequence[str], options: Options, shown: Progress | None = None) -> tuple[int, int]:
    """Lines that were not blank, and target tokens that were produced, `</s>` counted."""
    sentences = tokens = 0
    for each in translator.translate(lines, options):
        sentences += bool(each.source)
        tokens += len(each.hypotheses[0].token_log_probs)
        if shown is not None:
            shown.advance()
    return sentences, tokens


def _surroundings(device: torch.device, precision: torch.dtype) -> dict[str, Any]:
    return {
        "nmt": nmt.__version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "threads": torch.get_num_threads(),
        "precision": str(precision).removeprefix("torch."),
    }


def _parameters(model: Seq2Seq) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def peak_memory(device: torch.device) -> int | None:
    """The most bytes held: on a GPU by torch's tensors, else by this process; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    found = re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text(), re.MULTILINE) if status.is_file() else None
    return 1024 * int(found[1]) if found else None


def reset_peak_memory(device: torch.device) -> None:
    """Begin anew, on a GPU; a process keeps its own peak."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def as_text(found: Mapping[str, Any]) -> list[str]:
    """The lines of a table of what `training` or `translation` found."""
    threads = f"{found['threads']} thread{'s' if found['threads'] > 1 else ''}"
    title = (
        f"{found['measured']}, {found['configuration']['model']['backend']}, {found['parameters']:,} parameters; "
        f"{found['device']}, {found['precision']}, {threads}; nmt {found['nmt']}, torch {found['torch']}"
    )
    return [title, "", *(_training_lines(found) if found["measured"] == "training" else _translation_lines(found))]


def _training_lines(found: Mapping[str, Any]) -> list[str]:
    def row(name: str, spread: Mapping[str, float]) -> list[str]:
        return [name, *(rate(spread[each]) for each in ("median", "lowest", "highest"))]

    rates = [row("target tokens a second", found["tokens_per_second"]), row("updates a second", found["updates_per_second"])]
    facts = [
        ["padding", f"{found['padding']:.1%}"],
        ["peak memory", _bytes(found["peak_memory"])],
        ["matrix products a target token", _flops(found["flops_per_token"])],
        ["matrix products a second, at best", _flops(found["gemm_flops_per_second"])],
        ["floor: target tokens a second", rate(found["floor_tokens_per_second"])],
        ["share of the floor", f"{found['ratio_to_floor']:.0%}"],
    ]
    windows = f"{found['windows']} windows"
    return [
        *layout([windows, "median", "lowest", "highest"], rates),
        "",
        *layout(["", ""], facts),
        "",
        *layout(["where the time goes", ""], [[name, f"{share:.1%}"] for name, share in found["shares"].items()]),
    ]


def _translation_lines(found: Mapping[str, Any]) -> list[str]:
    searches = found["searches"]

    def row(name: str, key: str, shown: Callable[[Any], str]) -> list[str]:
        return [name, *(shown(each[key]) for each in searches)]

    rows = [
        row("sentences a second", "sentences_per_second", rate),
        row("target tokens a second", "tokens_per_second", rate),
        row("seconds", "seconds", lambda value: f"{value:,.2f}"),
        row("time, greedy = 1", "times_greedy", lambda value: "" if value is None else f"{value:.2f}"),
        row("peak memory", "peak_memory", _bytes),
        row("matrix products a sentence", "flops_per_sentence", _flops),
        row("floor: sentences a second", "floor_sentences_per_second", rate),
        row("share of the floor", "ratio_to_floor", lambda value: f"{value:.1%}"),
    ]
    spent = [[name, *(f"{each['shares'][name]:.1%}" for each in searches)] for name in searches[0]["shares"]]
    names = [each["search"] for each in searches]
    return [
        *layout([f"{searches[0]['sentences']:,} sentences", *names], rows),
        "",
        *layout(["where the time goes", *names], spent),
        "",
        f"matrix products a second, at best: {_flops(found['gemm_flops_per_second'])}",
    ]


def _bytes(number: int | None) -> str:
    return "-" if number is None else f"{number / 1e6:,.0f} MB"


def _flops(number: float) -> str:
    size, name = next(each for each in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (0, "FLOP")) if number >= each[0])
    return f"{number / (size or 1):,.1f} {name}"
