"""The command that measures: bench.

torch and the rest are imported inside the command, so that `--help` answers at once.
"""

from json import dumps
from pathlib import Path
from typing import Annotated, Literal

import typer

from nmt.errors import UsageError
from nmt.limits import MOST_SUBWORDS
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
    Quiet,
    Set,
    Size,
    Threads,
    argument,
    configuration,
    given,
    option,
)

CURVES = "Curves"
"""A panel of the help page."""

OF_NETWORK = ("backend", "size", "set", "seconds", "warmup", "batch_tokens")
OF_TRAINING = (*OF_NETWORK, "accumulate", "precision", "compile")
OF_CURVE = ("vocab_size", "plot")
SUBJECTS = {
    "data": ("data to train on", OF_TRAINING),
    "model": ("a model", ("search", "beam_size", "batch_tokens", "precision")),
    "training": ("a curve of training", (*OF_TRAINING, *OF_CURVE)),
    "decoding": ("the curve of decoding", (*OF_NETWORK, *OF_CURVE)),
}
"""What can be measured, in words, and the options of each that not all of them have."""

VARIED = {"batch-tokens": "batch_tokens", "vocabulary": "vocab_size"}
"""The option that would say what a curve varies."""


def bench(
    context: typer.Context,
    path: Annotated[
        str | None, argument("What preprocess made, to train on it; or a model, to translate with it.", "DATA|MODEL")
    ] = None,
    input: Annotated[str | None, argument("Text to translate, for a model; -: stdin.", "INPUT")] = None,
    backend: Backend = None,
    size: Size = None,
    set: Set = None,
    accumulate: Accumulate = None,
    compile: Compile = None,
    seconds: Annotated[
        float | None,
        option("Seconds that are measured (default: 30; of a curve, 3 a point).", panel=TRAINING, metavar="N", least=0, most=86400),
    ] = None,
    warmup: Annotated[int, option("Updates before them, or steps of decoding.", panel=TRAINING, metavar="N", least=0)] = 3,
    search: Annotated[
        Literal["beam", "greedy", "sample"] | None,
        option("How tokens are chosen (default: greedy, then beam).", panel=SEARCH, metavar="beam|greedy|sample"),
    ] = None,
    beam_size: BeamSize = 5,
    curve: Annotated[
        str | None,
        option(
            "How speed grows, on made-up tokens: training by batch-tokens, width, vocabulary or length; decoding, with and "
            "without cache, by target length. At N,N,... or at points of its own.",
            panel=CURVES,
            metavar="NAME[=N,N,...]",
        ),
    ] = None,
    plot: Annotated[
        str | None, option("Draw the curve there: .svg, .png or .pdf.", "--plot", "-o", panel=CURVES, metavar="FILE")
    ] = None,
    vocab_size: Annotated[
        int, option("Subwords of the made-up vocabulary.", panel=CURVES, metavar="N", least=5, most=MOST_SUBWORDS)
    ] = 8000,
    batch_tokens: Annotated[
        int | None,
        option(
            "Positions of an update (default: 4096), or source positions of a batch (4000).", panel=COMMON, metavar="N", least=1
        ),
    ] = None,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16", "float16", "int8"] | None,
        option(
            "Arithmetic (default: float32).",
            panel=COMMON,
            metavar="auto|float32|bfloat16|float16|int8",
        ),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    format: Annotated[Literal["text", "json"], option("A table, or one JSON object.", panel=OUTPUT, metavar="text|json")] = "text",
    config: ConfigFile = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure training on DATA, translation of INPUT by MODEL, or a --curve: speed, memory, and where the time goes."""
    flags = {"batch_tokens": batch_tokens, "accumulate": accumulate, "precision": None if precision == "int8" else precision}
    resolved = configuration(context, backend, size, set or (), flags)
    if given(context, "beam_size") and search not in (None, "beam"):
        raise UsageError(f"--beam-size is an option of --search beam, not of {search}")
    if (path is None) == (curve is None):
        raise UsageError("name either what to measure, DATA|MODEL, or a --curve, which is of a new network and made-up tokens")

    from nmt import bench as benchmark
    from nmt import curves
    from nmt.allocator import few_kernels, keep_freed_memory
    from nmt.checkpoint import resolve
    from nmt.console import Console
    from nmt.data.files import made_as
    from nmt.data.shards import Dataset
    from nmt.data.text import check_inputs, read_lines
    from nmt.device import choose_device, set_threads
    from nmt.pictures import check
    from nmt.plot import draw
    from nmt.preflight import compiled
    from nmt.search import STRATEGIES
    from nmt.tables import as_text

    wanted = None if curve is None else curves.Curve.parse(curve)
    if wanted is not None:
        for word in given(context, *([VARIED[wanted.axis]] if wanted.axis in VARIED else [])):
            raise UsageError(f"--curve {curve} and {word} are about one thing: leave {word} out")
        subject: str | None = "decoding" if wanted.axis == curves.DECODING else "training"
    else:
        subject = made_as(Path(str(path)))
    _refuse_misfits(context, subject, precision)
    if subject == "data" and input is not None:
        raise UsageError(f"{input}: INPUT is for a model to translate, and {path} is data to train on")
    if plot is not None and wanted is not None:
        check(plot)

    console = Console(quiet)
    place = choose_device(device)
    set_threads(threads)
    keep_freed_memory()
    few_kernels(training=subject in ("data", "training"))
    settings = resolved(None)
    if wanted is not None and subject == "decoding":
        found = curves.decoding(
            wanted,
            settings,
            console,
            vocabulary=vocab_size,
            batch_tokens=batch_tokens or 4000,
            device=place,
            length=3 if seconds is None else seconds,
            warmup=warmup,
        )
    elif wanted is not None:
        found = curves.training(
            wanted,
            settings,
            console,
            vocabulary=vocab_size,
            device=place,
            compile=compiled(settings, place, compile),
            length=3 if seconds is None else seconds,
            warmup=warmup,
        )
    elif subject == "data":
        found = benchmark.training(
            Dataset.open(Path(str(path))),
            settings,
            console,
            device=place,
            compile=compiled(settings, place, compile),
            length=30 if seconds is None else seconds,
            warmup=warmup,
        )
    else:
        model = resolve(Path(str(path)))
        if input is None:
            raise UsageError(f"{path} is a model: name a text for it to translate (INPUT), or - for stdin")
        check_inputs(input)
        chosen = ("greedy", "beam") if search is None else (search,)
        searches = {f"beam {beam_size}" if name == "beam" else name: STRATEGIES[name](**_size(name, beam_size)) for name in chosen}
        found = benchmark.translation(
            model,
            list(read_lines(input)),
            input,
            console,
            searches=searches,
            batch_tokens=batch_tokens or 4000,
            device=place,
            # auto and float16 have been refused.
            precision="float32" if precision is None or precision == "auto" or precision == "float16" else precision,
        )
    print(dumps(found, ensure_ascii=False, indent=2) if format == "json" else "\n".join(as_text(found)))
    if plot is not None and wanted is not None:
        draw(found, plot)


def _refuse_misfits(context: typer.Context, subject: str | None, precision: str | None) -> None:
    """UsageError for an option on the command line that is of other subjects; in a file it waits for one of them."""
    if subject not in SUBJECTS:
        return  # what the path names can only be told where it is opened
    name, theirs = SUBJECTS[subject]
    for key in dict.fromkeys(key for _, keys in SUBJECTS.values() for key in keys if key not in theirs):
        for word in given(context, key):
            others = " or ".join(other for other, keys in SUBJECTS.values() if key in keys)
            raise UsageError(f"{word} is for {others}, not for {name}")
    if subject == "model" and precision in ("auto", "float16"):
        raise UsageError(f"--precision {precision} is for training; a model translates in float32, bfloat16 or int8")
    if subject != "model" and precision == "int8":
        raise UsageError(f"--precision int8 is for a model, not for {name}")


def _size(search: str, beam_size: int) -> dict[str, int]:
    return {"size": beam_size} if search == "beam" else {}
