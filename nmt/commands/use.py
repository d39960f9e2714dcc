"""The commands that use models and look at them: translate, logprob, info.

torch and the rest are imported inside the commands, so that `--help` answers at once.
"""

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nmt import ranks
from nmt.errors import UsageError
from nmt.options import (
    COMMON,
    OUTPUT,
    SEARCH,
    TEXT,
    BeamSize,
    ConfigFile,
    Debug,
    Device,
    Errors,
    Overwrite,
    Quiet,
    Threads,
    argument,
    given,
    option,
)

if TYPE_CHECKING:
    from nmt.results import Translation

NOTED = (
    *("format", "n_best", "scores", "alignments", "search", "length_penalty", "no_repeat_ngram", "max_length", "max_length_ratio"),
    *("overlong", "max_source", "errors", "engine", "precision"),
)
"""Options of translate on which a line of output depends, but for those of one search: --continue goes on with the same."""

SAMPLING = ("temperature", "top_k", "top_p", "min_p")

MANY_PICTURES = 1000
"""More are drawn, but hardly meant: each takes longer than its translation."""


def translate(
    context: typer.Context,
    model: Annotated[str, argument("Run, checkpoint, or what average made.", "MODEL")],
    inputs: Annotated[list[str] | None, argument("Files to translate, in order; none or -: stdin.", "INPUT")] = None,
    output: Annotated[
        str,
        option("File for all, or directory for one file an input; -: stdout.", "--output", "-o", panel=OUTPUT, metavar="FILE|DIR"),
    ] = "-",
    format: Annotated[
        Literal["text", "jsonl"],
        option(
            "Lines, or one JSON object a hypothesis. A blank line has logprob 0: no model runs.", panel=OUTPUT, metavar="text|jsonl"
        ),
    ] = "text",
    n_best: Annotated[
        int,
        option(
            "Hypotheses a line, exactly; more than one needs jsonl. Where fewer exist, score and logprob of the last are null.",
            panel=OUTPUT,
            metavar="N",
            least=1,
        ),
    ] = 1,
    unique: Annotated[
        bool, option("Drop hypotheses whose text has come already: N or fewer a line.", "--unique", panel=OUTPUT)
    ] = False,
    scores: Annotated[
        bool, option("Add the score: a column after the text (jsonl has it anyway).", "--scores", panel=OUTPUT)
    ] = False,
    alignments: Annotated[
        bool, option("Add word links by attention, as 0-0 1-2: a column after the text.", "--alignments", panel=OUTPUT)
    ] = False,
    attention: Annotated[
        str | None, option("Draw the attention of each line there, line-000001.svg and so on.", panel=OUTPUT, metavar="DIR")
    ] = None,
    attention_format: Annotated[Literal["svg", "png"], option("Of these pictures.", panel=OUTPUT, metavar="svg|png")] = "svg",
    continue_: Annotated[bool, option("Go on with a stopped job; finished lines are kept.", "--continue", panel=OUTPUT)] = False,
    search: Annotated[
        Literal["beam", "greedy", "sample"], option("How tokens are chosen.", panel=SEARCH, metavar="beam|greedy|sample")
    ] = "beam",
    beam_size: BeamSize = 5,
    length_penalty: Annotated[
        float, option("A of the score: logprob / ((5+length)/6)^A; </s> counts in the length.", panel=SEARCH, metavar="A")
    ] = 0.0,
    no_repeat_ngram: Annotated[
        int, option("Write no sequence of N subwords twice; 0: may.", panel=SEARCH, metavar="N", least=0)
    ] = 0,
    max_length: Annotated[
        int | None, option("Most subwords of a translation (default: source + 50).", panel=SEARCH, metavar="N", least=1)
    ] = None,
    max_length_ratio: Annotated[float | None, option("The same, as a multiple of the source's.", panel=SEARCH, metavar="X")] = None,
    prefix: Annotated[
        str | None,
        option(
            "What translations must begin with: a line for each line, empty where it is free. "
            "After one that fills --max-length one subword more is allowed.",
            panel=SEARCH,
            metavar="FILE",
        ),
    ] = None,
    temperature: Annotated[
        float, option("Sampling: below 1 safer, above 1 more varied; 0 is greedy.", panel=SEARCH, metavar="T", least=0)
    ] = 1.0,
    top_k: Annotated[int, option("Sampling: among the K likeliest; 0: all.", panel=SEARCH, metavar="K", least=0)] = 0,
    top_p: Annotated[float, option("Sampling: among the likeliest that make up P.", panel=SEARCH, metavar="P")] = 1.0,
    min_p: Annotated[float, option("Sampling: among those at least P times the likeliest.", panel=SEARCH, metavar="P")] = 0.0,
    seed: Annotated[int, option("Sampling: seed.", panel=SEARCH, metavar="N", least=0)] = 1,
    ensemble: Annotated[
        list[str] | None, option("Another model to average with; repeatable.", panel=SEARCH, metavar="MODEL")
    ] = None,
    overlong: Annotated[
        Literal["truncate", "split", "error"], option("What becomes of longer lines.", panel=TEXT, metavar="truncate|split|error")
    ] = "truncate",
    max_source: Annotated[int, option("Longest line, in subwords.", panel=TEXT, metavar="N", least=1)] = 1000,
    errors: Errors = "strict",
    batch_tokens: Annotated[int, option("Source positions of a batch.", panel=COMMON, metavar="N", least=1)] = 4000,
    batch_lines: Annotated[
        int | None, option("Most lines read ahead; 1 answers each before the next is read.", panel=COMMON, metavar="N", least=1)
    ] = None,
    no_cache: Annotated[bool, option("Decode the whole prefix again at each step.", "--no-cache", panel=COMMON)] = False,
    engine: Annotated[
        Literal["nmt", "ctranslate2"],
        option(
            "What computes; ctranslate2, for Transformers: pip install 'nmt\\[ctranslate2]'.",
            panel=COMMON,
            metavar="nmt|ctranslate2",
        ),
    ] = "nmt",
    precision: Annotated[
        Literal["float32", "bfloat16", "int8"],
        option(
            "Arithmetic; faster, a little less exact: bfloat16 on a GPU, int8 on a CPU.",
            panel=COMMON,
            metavar="float32|bfloat16|int8",
        ),
    ] = "float32",
    device: Device = "auto",
    threads: Threads = None,
    config: ConfigFile = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Translate text line by line: n lines in, n lines out."""

    from nmt.console import Console, replaced
    from nmt.data.text import check_counts, check_inputs, display, read_lines
    from nmt.outputs import Job, Layout, Traffic, begun, check_same, count_lines, kept, make_directory, plan, repeatable, unfinished

    console = Console(quiet or ranks.rank() > 0, output)
    inputs = inputs or ["-"]
    if n_best > 1 and format == "text":
        raise UsageError("--n-best above 1 needs --format jsonl: as text each line in gives one line out")
    if unique and n_best == 1:
        raise UsageError("--unique is about --n-best above 1")
    if format == "jsonl" and given(context, "scores"):
        raise UsageError("--scores adds a column to text; with --format jsonl each object has its score")
    resumable = prefix is None and not unique and attention is None  # pictures are numbered from the first line of a process
    if continue_ and not resumable:
        raise UsageError("--continue goes with none of --prefix, --unique and --attention")
    _refuse_misfits(context, search)
    if engine == "ctranslate2":
        wanted = {
            "--search sample": search == "sample",
            "--length-penalty": length_penalty != 0,
            "--no-repeat-ngram": no_repeat_ngram > 0,
            "--prefix": prefix is not None,
            "--ensemble": bool(ensemble),
            "--alignments": alignments,
            "--attention": attention is not None,
            "--no-cache": no_cache,
        }
        if missing := [name for name, is_wanted in wanted.items() if is_wanted]:
            raise UsageError(f"--engine ctranslate2 has no {' and no '.join(missing)}; leave that out, or the engine")

    def planned() -> list[Job]:
        """What is to be done; all that can be wrong with inputs and outputs is found here."""
        if attention is not None:
            make_directory(attention)
        check_inputs(*inputs, *([] if prefix is None else [prefix]))
        jobs = plan(inputs, output, prefix)
        if continue_:
            jobs = unfinished(jobs, n_best, format == "jsonl")
            done = sum(job.done for job in jobs)
            if not jobs:
                console.say(f"{output} is whole already")
            elif done:
                console.say(f"{done:,} line{' is' if done == 1 else 's are'} done already")
        context.with_resource(begun(jobs))
        return jobs

    alone = ranks.size() == 1
    jobs = planned() if alone else []
    if alone and not jobs:
        return

    from nmt.allocator import few_kernels, keep_freed_memory
    from nmt.distributed import FOR_EVER, joined
    from nmt.results import Statistics
    from nmt.search import STRATEGIES
    from nmt.stream import arriving
    from nmt.translate import Options, Translator

    own: dict[str, dict[str, Any]] = {
        "beam": {"size": beam_size},
        "sample": {"seed": seed, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "samples": n_best},
    }
    options = Options(
        search=STRATEGIES[search](length_penalty=length_penalty, no_repeat_ngram=no_repeat_ngram, **own.get(search, {})),
        n_best=n_best,
        unique=unique,
        max_length=max_length,
        max_length_ratio=max_length_ratio,
        batch_tokens=batch_tokens,
        batch_lines=batch_lines,
        overlong=overlong,
        max_source=max_source,
        attention=alignments or attention is not None,
    )
    keep_freed_memory()
    few_kernels()
    with joined(Console(quiet).say, FOR_EVER) as team:
        if resumable and output != "-":
            team.remedy = "start all of them again, with --continue"
        with team.together():
            if team.leads:  # it reads and writes; the others need to reach the models only
                jobs = jobs if alone else planned()
                note = _note(context, [model, *(ensemble or ())], search)
                check_same(jobs, note)
                traffic = Traffic(jobs, errors, note)
                if prefix is not None and repeatable(prefix) and not traffic.streaming:
                    check_counts(display(prefix), count_lines([prefix]), " and ".join(map(display, inputs)), count_lines(inputs))
            place = str(team.device(device))
            translator = Translator.load(
                model, ensemble or (), place, threads, not no_cache, precision if engine == "nmt" else "float32"
            )
            if engine == "ctranslate2":
                from nmt.engine import CTranslate2

                size = beam_size if search == "beam" else 1
                other = CTranslate2.load(Path(model), size, options.positions(), translator.device, precision)
                options = replace(options, search=other)
        if not team.leads:
            team.serve(translator.work(options))
            return
        if not alone:
            translator.employ(team.crew, team.size)
        lines = arriving(traffic.lines()) if traffic.streaming else traffic.lines()
        prefixes = None if prefix is None else read_lines(prefix, errors)
        statistics = Statistics()
        unseen: set[str] = set()
        try:
            translations = translator.translate(lines, options, prefixes, traffic.place)
            with console.progress("translating", "lines", traffic.total()) as progress:
                for translation in traffic.write(translations, Layout(format == "jsonl", scores, alignments)):
                    statistics.add(translation)
                    if attention is not None:
                        picture = os.path.join(attention, f"line-{statistics.lines:06}.{attention_format}")
                        unseen.update(_draw(translation, picture))
                        if statistics.lines == MANY_PICTURES + 1:
                            console.warn(f"--attention has drawn {MANY_PICTURES:,} lines, and draws all that follow")
                    progress.advance()
        except (KeyboardInterrupt, SystemExit):
            if resumable and kept(jobs):
                console.warn("finished lines are kept, go on with --continue")
            raise
        finally:
            team.dismiss()
    for message in statistics.messages():
        console.warn(message)
    if unseen and attention_format == "png":  # in an SVG text stays text, and the viewer may have other fonts
        console.warn(f"no font here can show {''.join(sorted(unseen))}: the pictures have boxes in their place")
    if traffic.replaced:
        console.warn(replaced(traffic.replaced))


def _refuse_misfits(context: typer.Context, search: str) -> None:
    """UsageError for an option of another search on the command line; in a file it waits for its search."""
    for word in given(context, *(SAMPLING if search != "sample" else ()), *(("beam_size",) if search != "beam" else ())):
        raise UsageError(f"{word} is an option of --search {'beam' if word == '--beam-size' else 'sample'}, not of {search}")


def _note(context: typer.Context, models: list[str], search: str) -> dict[str, object]:
    """What a line of output depends on beside the line. Models are told by their weights: a run may get better ones."""
    from nmt.checkpoint import identity

    own = {"beam": ("beam_size",), "sample": ("seed", *SAMPLING), "greedy": ()}[search]
    first, *others = [identity(Path(each)) for each in models]
    options = {f"--{name.replace('_', '-')}": context.params[name] for name in (*NOTED, *own)}
    return {"MODEL": first, "--ensemble": others, **options}


def _draw(translation: "Translation", path: str) -> str:
    """The picture of one line's attention, none for a blank line; the characters that no font here can show."""
    from nmt.heatmap import draw
    from nmt.vocab import EOS, SYMBOLS

    if not translation.source or translation.attention is None:
        return ""
    best = translation.hypotheses[0]
    target = [*best.tokens, SYMBOLS[EOS]][: len(best.token_log_probs)]
    return draw(translation.source, target, translation.attention, path)


def _pairs(source: str, target: str, left: Iterator[str], right: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Lines side by side; NmtError with both counts where one file has more."""
    from nmt.data.text import check_counts, display

    for count, (first, second) in enumerate(itertools.zip_longest(left, right)):
        if first is None or second is None:
            rest = 1 + sum(1 for _ in (right if first is None else left))
            counts = (count, count + rest) if first is None else (count + rest, count)
            check_counts(display(source), counts[0], display(target), counts[1])
        else:
            yield first, second


def logprob(
    model: Annotated[str, argument("Run, checkpoint, or what average made.", "MODEL")],
    source: Annotated[str, argument("Source side.", "SOURCE")],
    target: Annotated[str, argument("Given translations: the same lines.", "TARGET")],
    output: Annotated[str, option("Where to write; -: stdout.", "--output", "-o", panel=OUTPUT, metavar="FILE")] = "-",
    format: Annotated[
        Literal["text", "jsonl"], option("Numbers, or JSON with token scores.", panel=OUTPUT, metavar="text|jsonl")
    ] = "text",
    ensemble: Annotated[list[str] | None, option("Another model to average with; repeatable.", metavar="MODEL")] = None,
    errors: Errors = "strict",
    overwrite: Overwrite = False,
    batch_tokens: Annotated[int, option("Positions of a batch.", panel=COMMON, metavar="N", least=1)] = 4000,
    device: Device = "auto",
    threads: Threads = None,
    config: ConfigFile = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Log-probability of given translations: natural log, summed over target tokens and </s>.

    Of an empty translation it is that of </s>, after an empty line too; translate writes 0 there, where it runs no model.
    """

    from nmt.console import Console, replaced
    from nmt.data.text import check_counts, check_inputs, check_output, display, open_text, read_lines, rereadable
    from nmt.outputs import count_lines

    check_inputs(source, target)
    check_output(output, overwrite)
    if rereadable(source) and rereadable(target):
        check_counts(display(source), count_lines([source]), display(target), count_lines([target]))

    from nmt.allocator import few_kernels, keep_freed_memory
    from nmt.translate import Translator

    keep_freed_memory()
    few_kernels()
    translator = Translator.load(model, ensemble or (), device, threads)
    console, told = Console(quiet, output), list[int]()
    pairs = _pairs(source, target, read_lines(source, errors, told.append), read_lines(target, errors, told.append))
    with open_text(output, overwrite) as writer, console.progress("scoring", "lines") as progress:
        for line, each in enumerate(translator.log_probs(pairs, batch_tokens)):
            if format == "jsonl":
                found = {"line": line, "logprob": each.log_prob, "tokens": each.tokens, "token_logprobs": each.token_log_probs}
                writer.write(dumps(found, ensure_ascii=False))
            else:
                writer.write(repr(each.log_prob))
            progress.advance()
    if told:
        console.warn(replaced(len(told)))


def info(
    path: Annotated[str, argument("Model, run or data.", "MODEL|RUN|DATA")],
    json: Annotated[bool, option("As JSON.", "--json")] = False,
    config: ConfigFile = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Show what is in a directory: settings, sizes, languages, scores."""
    from nmt.data.text import check_output
    from nmt.info import as_text, describe

    check_output("-")
    found = describe(Path(path))
    print(dumps(found, ensure_ascii=False, indent=2) if json else "\n".join(as_text(found)))
