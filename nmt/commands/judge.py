"""The command that judges translations: score.

numpy and the rest are imported inside the command, so that `--help` answers at once.
"""

from collections.abc import Iterator, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from nmt.errors import NmtError, UsageError
from nmt.limits import MOST_TEXTS, MOST_THREADS
from nmt.options import COMMON, OUTPUT, ConfigFile, Debug, Errors, Quiet, argument, option

if TYPE_CHECKING:
    from nmt.breakdown import Rarest
    from nmt.console import Console

FEW = 50
"""Lines: with fewer, one sentence that is better can look like a system that is."""

BREAKDOWN = "Breakdown"
"""A panel of the help page."""


def score(
    hypotheses: Annotated[list[str], argument("Translations; several are compared with the first.", "HYPOTHESIS")],
    reference: Annotated[
        list[str], option("Reference; repeat for several, an empty line where there is none.", "--reference", "-r", metavar="REF")
    ],
    metric: Annotated[
        list[str] | None,
        option("Metric, repeatable (default: bleu, chrf).", "--metric", "-m", metavar="bleu|chrf|chrf++|ter"),
    ] = None,
    tokenize: Annotated[str | None, option("BLEU's tokenizer (default: by language).", metavar="T")] = None,
    lowercase: Annotated[bool, option("Ignore case.", "--lowercase")] = False,
    target_lang: Annotated[str | None, option("Language of the text, as zh.", metavar="CODE")] = None,
    bootstrap: Annotated[
        int | None,
        option("Resamples for intervals and p-values; 0: none (default: 1000 of several).", metavar="N", least=0, most=MOST_TEXTS),
    ] = None,
    randomization: Annotated[
        int,
        option(
            "P-values by so many trials of approximate randomisation, usually 10000, not by the bootstrap.",
            metavar="N",
            least=0,
            most=MOST_TEXTS,
        ),
    ] = 0,
    seed: Annotated[
        int, option("Of random numbers; the default is sacreBLEU's.", metavar="N", least=0, variable="SACREBLEU_SEED")
    ] = 12345,
    sentence: Annotated[
        bool, option("A row a line; as text a column for each system and metric, in the order given.", "--sentence", panel=OUTPUT)
    ] = False,
    breakdown: Annotated[
        bool,
        option(
            "Where it fails: scores by kind of sentence, worst and best sentences, differences.", "--breakdown", panel=BREAKDOWN
        ),
    ] = False,
    source: Annotated[
        str | None, option("What was translated, for --breakdown.", "--source", "-s", panel=BREAKDOWN, metavar="SOURCE")
    ] = None,
    data: Annotated[
        str | None,
        option("What preprocess made: also by how often training saw the rarest word.", panel=BREAKDOWN, metavar="DATA"),
    ] = None,
    format: Annotated[Literal["text", "json"], option("Layout.", panel=OUTPUT, metavar="text|json")] = "text",
    output: Annotated[str, option("Where to write; -: stdout.", "--output", "-o", panel=OUTPUT, metavar="FILE")] = "-",
    errors: Errors = "strict",
    device: Annotated[
        str,
        option(
            "Where n-grams are counted and texts resampled; auto: a GPU if there is one.",
            panel=COMMON,
            metavar="auto|cpu|cuda|cuda:N",
        ),
    ] = "cpu",
    threads: Annotated[
        int | None, option("Processes that count (default: one a core).", panel=COMMON, metavar="N", least=1, most=MOST_THREADS)
    ] = None,
    config: ConfigFile = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Score translations: BLEU, chrF, TER, with sacreBLEU's numbers and signatures."""

    from nmt import score as scoring
    from nmt.breakdown import breakdown as break_down
    from nmt.console import Console, replaced
    from nmt.data.files import shown
    from nmt.data.text import check_inputs, check_output, open_text, read_lines
    from nmt.scoreboard import as_json, as_text, by_sentence, of_breakdown

    console = Console(quiet)
    metrics = list(dict.fromkeys(metric or ["bleu", "chrf"]))
    _check_metrics(metrics, tokenize)
    if sentence and (bootstrap or randomization):
        raise UsageError("--bootstrap and --randomization are about whole texts: they do not go with --sentence")
    if breakdown != (source is not None):
        raise UsageError("--breakdown and --source go together: sentences are told apart by what was translated")
    if data is not None and not breakdown:
        raise UsageError("--data is about --breakdown")
    if breakdown and (sentence or bootstrap or randomization):
        raise UsageError("--breakdown goes with none of --sentence, --bootstrap and --randomization")
    if bootstrap == 1:
        raise UsageError("--bootstrap 1 is no sample: 1000 is usual")
    if randomization and len(hypotheses) == 1:
        raise UsageError("--randomization compares systems: name more than one")
    if device != "cpu":
        from nmt.device import choose_device

        device = str(choose_device(device))
    paths = [*hypotheses, *reference, *([] if source is None else [source])]
    check_inputs(*paths)
    check_output(output)
    told: list[int] = []
    texts = [list(read_lines(path, errors, told.append)) for path in paths]
    _check_lengths(paths, texts, reference[0])
    if told:
        console.warn(replaced(len(told)))
    systems, references = texts[: len(hypotheses)], texts[len(hypotheses) :][: len(reference)]
    _tell_doubts(console, hypotheses, reference, systems, references, metrics, tokenize, lowercase, target_lang)
    parallel, fewer = scoring.without_empty(references)
    if fewer:
        lines_have = "line has" if fewer == 1 else "lines have"
        console.warn(f"{fewer:,} {lines_have} fewer references than {len(reference)}: an empty one among several is none")
    names = [shown(path) for path in hypotheses]
    how = (metrics, tokenize, lowercase, target_lang)
    as_they_are = format == "json"
    if breakdown:
        sources = texts[-1]
        known = None if data is None else _rarest(sources, data, console)
        parts = break_down(names, systems, parallel, sources, *how, known, device, threads)
        found = [dumps(parts, ensure_ascii=False, indent=1)] if as_they_are else of_breakdown(parts)
    elif sentence:
        rows = [scoring.sentence_scores(lines, parallel, *how, device=device, processes=threads) for lines in systems]
        found = by_sentence(names, rows, as_they_are)
    elif len(systems) == 1 and not bootstrap:
        found = (as_json if as_they_are else as_text)(names, [scoring.score(systems[0], parallel, *how, device=device)])
    else:
        made_up = (1000 if bootstrap is None else bootstrap, randomization, seed)
        if any(made_up[:2]) and len(texts[0]) < FEW:
            console.warn(f"{len(texts[0]):,} lines are few: intervals and p-values of less than {FEW} mean little")
        scores = scoring.compare(systems, parallel, *how, *made_up, device, threads)
        found = (as_json if as_they_are else as_text)(names, scores)
    with open_text(output) as writer:
        for line in found:
            for part in line.split("\n"):
                writer.write(part)


def _check_metrics(metrics: Sequence[str], tokenize: str | None) -> None:
    from nmt.measures import METRICS
    from nmt.tokenizers import check_tokenizer

    for name in metrics:
        if name not in METRICS:
            raise UsageError(f"--metric must be one of {', '.join(METRICS)}, not {name}")
    check_tokenizer(tokenize)


def _check_lengths(paths: Sequence[str], texts: Sequence[Sequence[str]], reference: str) -> None:
    """NmtError where a text has not as many lines as the (first) reference, or none."""
    from nmt.data.text import check_counts, display

    length = len(texts[paths.index(reference)])
    for path, lines in zip(paths, texts, strict=True):
        check_counts(display(path), len(lines), display(reference), length)
        if not lines:
            raise NmtError(f"{display(path)}: is empty: there is nothing to score")


def _tell_doubts(
    console: "Console",
    hypotheses: Sequence[str],
    reference: Sequence[str],
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    tokenize: str | None,
    lowercase: bool,
    target_lang: str | None,
) -> None:
    """Warn of what makes the scores less than they seem; files with one doubt together."""
    from nmt.data.text import display
    from nmt.doubts import about_hypothesis, about_reference
    from nmt.tokenizers import choose_tokenizer

    tokenizer = choose_tokenizer(tokenize, target_lang) if "bleu" in metrics else None
    doubts: dict[str, list[str]] = {}
    for path, lines in zip(hypotheses, systems, strict=True):
        for message in about_hypothesis(lines, references, lowercase):
            doubts.setdefault(message, []).append(path)
    for path, lines in zip(reference, references, strict=True):
        for message in about_reference(lines, systems, tokenizer, lowercase):
            doubts.setdefault(message, []).append(path)
    for message, paths in doubts.items():
        console.warn(f"{', '.join(map(display, paths))}: {message}")


def _rarest(sources: Sequence[str], data: str, console: "Console") -> "Rarest":
    """What training saw least of each line."""
    from nmt.breakdown import rarest
    from nmt.data.shards import Dataset
    from nmt.vocab import UNK

    opened = Dataset.open(Path(data))
    lines = opened.train.src
    with console.progress("counting words", "lines", len(lines)) as progress:

        def training() -> Iterator[list[int]]:
            for number in range(len(lines)):
                yield lines[number].tolist()
                progress.advance()

        return rarest(sources, training(), opened.source.encode, opened.source.decode, UNK)
