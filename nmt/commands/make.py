"""The commands that make models: preprocess, train, average, export.

torch and the rest are imported inside the commands, so that `--help` answers at once.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from nmt import ranks
from nmt.errors import UsageError
from nmt.limits import MOST_SUBWORDS, MOST_THREADS
from nmt.options import (
    COMMON,
    MODEL,
    OUTPUT,
    TEXT,
    TRAINING,
    Accumulate,
    Backend,
    Compile,
    ConfigFile,
    Debug,
    Device,
    Overwrite,
    Precision,
    Quiet,
    Set,
    Size,
    Threads,
    argument,
    configuration,
    list_settings,
    option,
)


def preprocess(
    source: Annotated[str, argument("Source side: one sentence a line; .gz and .xz too.", "SOURCE")],
    target: Annotated[str, argument("Target side: the same lines.", "TARGET")],
    output: Annotated[str, option("Directory to make.", "--output", "-o", panel=OUTPUT, metavar="DATA")],
    valid_source: Annotated[str | None, option("Validation set, source side.", panel="Validation", metavar="FILE")] = None,
    valid_target: Annotated[str | None, option("Validation set, target side.", panel="Validation", metavar="FILE")] = None,
    valid_size: Annotated[
        int | None,
        option(
            "Pairs to set aside for it instead (default: one in a hundred, at most 1000).", panel="Validation", metavar="N", least=0
        ),
    ] = None,
    source_lang: Annotated[str | None, option("Language code, as en.", panel=TEXT, metavar="CODE")] = None,
    target_lang: Annotated[
        str | None, option("Language code, as de; scoring picks its tokenizer by it.", panel=TEXT, metavar="CODE")
    ] = None,
    lowercase: Annotated[bool, option("Lowercase all text.", "--lowercase", panel=TEXT)] = False,
    normalization: Annotated[
        Literal["nmt_nfkc", "nfkc", "identity"], option("Unicode normalisation.", panel=TEXT, metavar="nmt_nfkc|nfkc|identity")
    ] = "nmt_nfkc",
    tokenizer: Annotated[
        Literal["bpe", "unigram", "char", "word"],
        option("Kind of subword model.", panel="Vocabulary", metavar="bpe|unigram|char|word"),
    ] = "bpe",
    vocab_size: Annotated[
        int, option("Subwords, of each vocabulary.", panel="Vocabulary", metavar="N", least=1, most=MOST_SUBWORDS)
    ] = 8000,
    shared_vocab: Annotated[
        bool, option("One vocabulary for both sides, or one each.", "--shared-vocab/--separate-vocabs", panel="Vocabulary")
    ] = True,
    character_coverage: Annotated[
        float, option("Share of characters to cover; rarer ones become <unk>.", panel="Vocabulary", metavar="X")
    ] = 1.0,
    byte_fallback: Annotated[
        bool, option("Spell rare characters as bytes: no <unk>.", "--byte-fallback", panel="Vocabulary")
    ] = False,
    vocab_from: Annotated[
        str | None, option("Take the subword models from there.", panel="Vocabulary", metavar="DATA|MODEL")
    ] = None,
    max_length: Annotated[int, option("Drop pairs with more subwords on a side.", panel="Filters", metavar="N", least=1)] = 250,
    max_ratio: Annotated[
        float | None, option("Drop pairs one side of which is R times longer.", panel="Filters", metavar="R", least=1)
    ] = None,
    dedup: Annotated[bool, option("Drop repeated pairs; takes memory by the number of pairs.", "--dedup", panel="Filters")] = False,
    errors: Annotated[
        Literal["strict", "replace"],
        option(
            "Invalid UTF-8: stop, or count and drop the pair (in a validation set: put U+FFFD).",
            panel=TEXT,
            metavar="strict|replace",
        ),
    ] = "strict",
    vocab_sample: Annotated[
        int, option("Pairs that the subword trainer sees, at most.", panel="Vocabulary", metavar="N", least=1)
    ] = 150_000,
    overwrite: Overwrite = False,
    workers: Annotated[
        int | None, option("Threads (default: one a core).", panel=COMMON, metavar="N", least=1, most=MOST_THREADS)
    ] = None,
    seed: Annotated[int, option("Seed of the choice of validation pairs.", panel=COMMON, metavar="N", least=0)] = 1,
    config: ConfigFile = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Turn raw parallel text into subword models and binarised data."""
    from nmt.console import Console
    from nmt.preprocess import Options
    from nmt.preprocess import preprocess as run

    console = Console(quiet)
    options = Options(
        source=source,
        target=target,
        output=output,
        valid_source=valid_source,
        valid_target=valid_target,
        valid_size=valid_size,
        source_lang=source_lang,
        target_lang=target_lang,
        vocab_size=vocab_size,
        tokenizer=tokenizer,
        shared_vocab=shared_vocab,
        lowercase=lowercase,
        normalization=normalization,
        character_coverage=character_coverage,
        byte_fallback=byte_fallback,
        max_length=max_length,
        max_ratio=max_ratio,
        dedup=dedup,
        vocab_from=vocab_from,
        vocab_sample=vocab_sample,
        workers=workers,
        seed=seed,
        errors=errors,
        overwrite=overwrite,
    )
    for table in run(options, console).tables():
        console.table(table.title, table.columns, table.rows)


def train(
    context: typer.Context,
    data: Annotated[str, argument("Directory that preprocess made.", "DATA")],
    output: Annotated[
        str, option("Directory of the run: checkpoints, log, best model.", "--output", "-o", panel=OUTPUT, metavar="RUN")
    ],
    backend: Backend = None,
    size: Size = None,
    set: Set = None,
    list_options: Annotated[
        bool,
        typer.Option(
            "--list-options",
            help="Show all settings and exit.",
            metavar="",
            rich_help_panel=MODEL,
            is_eager=True,
            callback=list_settings,
        ),
    ] = False,
    max_steps: Annotated[int | None, option("Stop after N updates (default: 100000).", panel=TRAINING, metavar="N")] = None,
    max_epochs: Annotated[int | None, option("Stop after N passes over the data.", panel=TRAINING, metavar="N")] = None,
    max_minutes: Annotated[float | None, option("Stop after so much time, over all resumes.", panel=TRAINING, metavar="N")] = None,
    batch_tokens: Annotated[
        int | None, option("Positions of an update, each side, padding counted (default: 4096).", panel=TRAINING, metavar="N")
    ] = None,
    accumulate: Accumulate = None,
    precision: Precision = None,
    compile: Compile = None,
    resume: Annotated[bool, option("Go on with the run, exactly where it stopped.", "--resume", panel=OUTPUT)] = False,
    init_from: Annotated[str | None, option("Begin with the weights of this model.", panel=OUTPUT, metavar="MODEL")] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    threads: Threads = None,
    seed: Annotated[int | None, option("Seed of all randomness (default: 1).", panel=COMMON, metavar="N")] = None,
    config: ConfigFile = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train a model; the best by validation is what translate uses."""
    if resume and (overwrite or init_from):
        raise UsageError(f"--resume and {'--overwrite' if overwrite else '--init-from'} exclude each other")
    if ranks.restarted() and not resume:  # the same words again would delete what there is, or stumble over it
        raise UsageError("torchrun has started this again, which only --resume can bear: go on with that, by hand")
    flags: dict[str, object] = {
        "max_steps": max_steps,
        "max_epochs": max_epochs,
        "max_minutes": max_minutes,
        "batch_tokens": batch_tokens,
        "accumulate": accumulate,
        "precision": precision,
        "seed": seed,
    }
    resolved = configuration(context, backend, size, set or (), flags)  # wrong usage comes first, whatever the files hold

    from nmt.allocator import few_kernels, keep_freed_memory
    from nmt.console import Console
    from nmt.data.shards import Dataset
    from nmt.device import set_threads
    from nmt.distributed import joined
    from nmt.preflight import compiled, settings_of
    from nmt.train import train as run

    with joined(Console(quiet).say) as team:
        with team.together():
            place = team.device(device)
            set_threads(threads)
            keep_freed_memory()
            few_kernels(training=True)
            dataset = Dataset.open(Path(data))
            settings = resolved(settings_of(Path(output)) if resume else None)
        team.connect(place)
        run(
            dataset,
            Path(output),
            settings,
            Console(quiet or not team.leads),
            resume=resume,
            init_from=Path(init_from) if init_from else None,
            overwrite=overwrite,
            device=place,
            compile=compiled(settings, place, compile),
            team=team,
        )


def average(
    inputs: Annotated[list[str], argument("Runs and checkpoints.", "RUN|CHECKPOINT")],
    output: Annotated[str, option("Model directory to make.", "--output", "-o", panel=OUTPUT, metavar="MODEL")],
    last: Annotated[int | None, option("Of each run, its N newest checkpoints (default: all).", metavar="N", least=1)] = None,
    overwrite: Overwrite = False,
    config: ConfigFile = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Average the weights of checkpoints into one model."""
    from nmt.checkpoint import average as average_checkpoints
    from nmt.console import Console

    members = average_checkpoints([Path(path) for path in inputs], Path(output), last, overwrite)
    Console(quiet).say(f"averaged {len(members)}: {', '.join(map(str, members))}")


def export(
    model: Annotated[str, argument("Run, checkpoint, or what average made: a Transformer.", "MODEL")],
    format: Annotated[Literal["ctranslate2"], option("What is to read it.", panel=OUTPUT, metavar="ctranslate2")],
    output: Annotated[str, option("Directory to make.", "--output", "-o", panel=OUTPUT, metavar="DIR")],
    overwrite: Overwrite = False,
    config: ConfigFile = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write a model in the format of another program, with its subword models and a README on their use.

    CTranslate2 (pip install 'nmt\\[ctranslate2]') serves it fast, in int8 too, and from C++.
    """
    from nmt.console import Console
    from nmt.export import FORMATS
    from nmt.export import export as write

    size = write(Path(model), format, Path(output), overwrite)
    load = FORMATS[format].load.format(output)
    Console(quiet).say(f"exported to {output}, {size / 1e6:,.1f} MB; {load} loads it, its README.md says more")
