"""The command that measures: bench.

torch and the rest are imported inside the command, so that `--help` answers at once.
"""

from json import dumps
from pathlib import Path
from typing import Annotated, Literal

import typer

from nmt.errors import UsageError
from nmt.options import (
    COMMON,
    OUTPUT,
    SEARCH,
    TRAINING,
    Accumulate,
    Backend,
    BeamSize,
    Compile,
    ConfigFile,
    Debug,
    Device,
    Precision,
    Quiet,
    Set,
    Size,
    Threads,
    argument,
    configuration,
    given,
    option,
)

OF_DATA = ("backend", "size", "set", "accumulate", "precision", "compile", "seconds", "warmup")
OF_MODEL = ("search", "beam_size")
"""The options that only one of the two subjects has."""


def bench(
    context: typer.Context,
    path: Annotated[str, argument("What preprocess made, to train on it; or a model, to translate with it.", "DATA|MODEL")],
    input: Annotated[str | None, argument("Text to translate, for a model; -: stdin.", "INPUT")] = None,
    backend: Backend = None,
    size: Size = None,
    set: Set = None,
    accumulate: Accumulate = None,
    precision: Precision = None,
    compile: Compile = None,
    seconds: Annotated[float, option("Seconds of training that are measured.", panel=TRAINING, metavar="N", least=0)] = 30,
    warmup: Annotated[int, option("Updates before them.", panel=TRAINING, metavar="N", least=0)] = 3,
    search: Annotated[
        Literal["beam", "greedy", "sample"] | None,
        option("How tokens are chosen (default: greedy, then beam).", panel=SEARCH, metavar="beam|greedy|sample"),
    ] = None,
    beam_size: BeamSize = 5,
    batch_tokens: Annotated[
        int | None,
        option(
            "Positions of an update (default: 4096), or source positions of a batch (4000).", panel=COMMON, metavar="N", least=1
        ),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    format: Annotated[Literal["text", "json"], option("A table, or one JSON object.", panel=OUTPUT, metavar="text|json")] = "text",
    config: ConfigFile = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure training on DATA, or translation of INPUT by MODEL: speed, memory, and where the time goes."""
    flags = {"batch_tokens": batch_tokens, "accumulate": accumulate, "precision": precision}
    resolved = configuration(context, backend, size, set or (), flags)
    if given(context, "beam_size") and search not in (None, "beam"):
        raise UsageError(f"--beam-size is an option of --search beam, not of {search}")

    from nmt.data.files import made_as

    subject = made_as(Path(path))
    for word in given(context, *(OF_MODEL if subject == "data" else OF_DATA if subject == "model" else ())):
        raise UsageError(f"{word} is for {'a model' if subject == 'data' else 'data to train on'}, and {path} is not")
    if subject == "data" and input is not None:
        raise UsageError(f"{input}: INPUT is for a model to translate, and {path} is data to train on")

    from nmt import bench as benchmark
    from nmt.allocator import keep_freed_memory
    from nmt.checkpoint import resolve
    from nmt.console import Console
    from nmt.data.shards import Dataset
    from nmt.data.text import check_inputs, read_lines
    from nmt.preflight import compiled
    from nmt.search import STRATEGIES
    from nmt.translate import choose_device, set_threads

    console = Console(quiet)
    place = choose_device(device)
    set_threads(threads)
    keep_freed_memory()
    if subject == "data":
        settings = resolved(None)
        found = benchmark.training(
            Dataset.open(Path(path)),
            settings,
            console,
            device=place,
            compile=compiled(settings, place, compile),
            length=seconds,
            warmup=warmup,
        )
    else:
        model = resolve(Path(path))
        if input is None:
            raise UsageError(f"{path} is a model: name a text for it to translate (INPUT), or - for stdin")
        check_inputs(input)
        chosen = ("greedy", "beam") if search is None else (search,)
        searches = {f"beam {beam_size}" if name == "beam" else name: STRATEGIES[name](**_size(name, beam_size)) for name in chosen}
        found = benchmark.translation(
            model, list(read_lines(input)), input, console, searches=searches, batch_tokens=batch_tokens or 4000, device=place
        )
    print(dumps(found, ensure_ascii=False, indent=2) if format == "json" else "\n".join(benchmark.as_text(found)))


def _size(search: str, beam_size: int) -> dict[str, int]:
    return {"size": beam_size} if search == "beam" else {}
