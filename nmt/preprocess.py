"""Preprocess: a parallel corpus becomes filtered, encoded shards, subword models, a validation set and a report.

Three passes over the text, each in memory that does not grow with it: survey (count, check, choose the validation set), train the
subword model on a sample, encode. The same text and seed give the same bytes, whatever the number of workers.
"""

import hashlib
import heapq
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Protocol

import nmt
from nmt.data.corpus import REASONS, Corpus, Drops, Pair, Pairs, TextFilter
from nmt.data.encode import Encoder, Split, write_train, write_valid
from nmt.data.files import check_directory, check_outside_runs, checksum, new_directory, read_json, sealed, write_json
from nmt.data.report import Report, SideStatistics
from nmt.data.shards import CONTENT, FORMAT, REPORT, SEAL
from nmt.data.subword import LONGEST_LINE, Kind, Normalization, NoTextError, Recipe, Subword, Trained, train_subword
from nmt.data.text import Errors, check_inputs
from nmt.errors import NmtError, UsageError
from nmt.limits import MOST_COUNTED, MOST_SUBWORDS, MOST_THREADS

VALID_SHARE = 100
"""Without other wish one pair in so many is set aside for validation …"""
VALID_MOST = 1000
"""… but no more than this."""

ROUND_TRIPS = 10_000
"""Lines of each side, about, that are encoded, decoded and compared."""


@dataclass(frozen=True)
class Options:
    """The command's options, under the names that it gives them. UsageError for values that cannot be."""

    source: str
    target: str
    output: str
    valid_source: str | None = None
    valid_target: str | None = None
    valid_size: int | None = None
    source_lang: str | None = None
    target_lang: str | None = None
    vocab_size: int = 8000
    tokenizer: Kind = "bpe"
    shared_vocab: bool = True
    lowercase: bool = False
    normalization: Normalization = "nmt_nfkc"
    character_coverage: float = 1.0
    byte_fallback: bool = False
    max_length: int = 250
    max_ratio: float | None = None
    dedup: bool = False
    """Drop repeated pairs: takes about 120 bytes of memory for each that is not, all else takes the same for any corpus."""
    vocab_from: str | None = None
    vocab_sample: int = 150_000
    """The most pairs that the subword trainer sees: with more its memory grows, and its result hardly changes."""
    workers: int | None = None
    """Threads; without, one for each core."""
    seed: int = 1
    errors: Errors = "strict"
    overwrite: bool = False

    def __post_init__(self) -> None:
        if (self.valid_source is None) != (self.valid_target is None):
            raise UsageError("--valid-source and --valid-target belong together")
        if self.valid_source is not None and self.valid_size is not None:
            raise UsageError("--valid-size sets pairs of the corpus aside; it does not go with --valid-source")
        bounds: dict[str, tuple[int, float]] = {
            "vocab_size": (1, MOST_SUBWORDS),
            "max_length": (1, math.inf),
            "max_ratio": (1, MOST_COUNTED),
            "vocab_sample": (1, math.inf),
            "workers": (1, MOST_THREADS),
            "valid_size": (0, math.inf),
        }
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UsageError(f"--{name.replace('_', '-')} must be at least {least}, not {value}")
            if value is not None and value > most:
                raise UsageError(f"--{name.replace('_', '-')} must be at most {most:,}, not {value}")
        if not 0 < self.character_coverage <= 1:
            raise UsageError(f"--character-coverage is a share above 0 and up to 1, not {self.character_coverage}")


class Advance(Protocol):
    """A progress bar, or what stands for it."""

    def advance(self, amount: int = 1) -> None: ...


class Voice(Protocol):
    """Where messages go; `nmt.console.Console` is one."""

    def say(self, message: str) -> None: ...

    def warn(self, message: str) -> None: ...

    def progress(self, label: str, unit: str, total: int | None = None) -> AbstractContextManager[Advance]: ...


@dataclass(frozen=True)
class Survey:
    """What the first pass found."""

    read: int
    text: int
    """Pairs that have text on both sides (and are new, with --dedup)."""
    sha256: tuple[str, str]
    """Of each side's lines as they were read, every one with its line feed."""
    candidates: list[Pair]
    """For validation, in the order of choice."""


@dataclass(frozen=True)
class Vocabulary:
    """The subword models, and how they were made."""

    source: Subword
    target: Subword
    shared: bool
    trained_on: int
    """Pairs; none where the models were there before."""
    skipped_lines: int
    """Lines of those that were too long for the trainer."""


def preprocess(options: Options, voice: Voice) -> Report:
    """Make the directory `options.output`; what it says of the corpus is also in its report.json.

    Raises NmtError where inputs cannot be read, do not belong together or leave nothing to train on, where the vocabulary is too
    small, or where the output exists. Then nothing is left behind.
    """
    valid_paths = [path for path in (options.valid_source, options.valid_target) if path is not None]
    check_inputs(options.source, options.target, *valid_paths)
    borrowed_from = [] if options.vocab_from is None else [options.vocab_from]
    check_outside_runs(options.output)
    check_directory(options.output, options.overwrite, [options.source, options.target, *valid_paths, *borrowed_from])
    borrowed = None if options.vocab_from is None else _borrow(Path(options.vocab_from), options, voice)
    with new_directory(options.output, options.overwrite) as directory:
        spool = directory / "spool"
        spool.mkdir()
        corpus = Corpus(options.source, options.target, options.errors, spool / "train")
        given = Corpus(valid_paths[0], valid_paths[1], options.errors, spool / "valid") if valid_paths else None
        survey = _survey(corpus, options, voice)
        replaced = 0
        if given is not None:
            replaced = _check_given(given, voice)
            reserved: list[Pair] = []
        else:
            reserved = survey.candidates[: _valid_size(survey, options, voice)]
        vocabulary = borrowed or _train_vocabulary(corpus, survey, {pair.number for pair in reserved}, options, voice)
        threads = options.workers or os.cpu_count() or 1
        encoder = Encoder(vocabulary.source, vocabulary.target, options.max_length, options.max_ratio, threads)
        if given is not None:
            aside: set[int] = set()
            valid, valid_pairs = write_valid(directory, (chunk.pairs for chunk in given.chunks()), encoder)
        else:
            held_out = _choose(survey.candidates, len(reserved), encoder)
            if len(held_out) < len(reserved):
                voice.warn(
                    f"{len(held_out):,} pairs are set aside for validation, not {len(reserved):,}: "
                    f"of the {len(survey.candidates):,} drawn for it, the others are empty or too long once they are subwords"
                )
            aside = set(held_out.numbers)
            valid, valid_pairs = write_valid(directory, [held_out], encoder)
        sides = _statistics(survey, vocabulary)
        with voice.progress("encoding", "pairs", survey.read) as progress:
            train, repeated = write_train(
                directory, corpus, TextFilter(options.dedup), aside, valid_pairs, encoder, sides, progress.advance
            )
        if not train.pairs:
            raise NmtError(
                f"{corpus.source.name} and {corpus.target.name}: no pairs left of {survey.read:,} to train on; "
                f"dropped: {train.drops}; --max-length is {options.max_length}"
            )
        _say_result(valid, repeated, options, voice)
        shutil.rmtree(spool)
        vocabulary.source.save(directory / "source.model")
        vocabulary.target.save(directory / "target.model")
        report = _report(survey, train, valid, replaced, repeated, sides, vocabulary, options)
        write_json(directory / REPORT, report.values)
        checksums = {path.name: checksum(path) for pattern in (*CONTENT, REPORT) for path in sorted(directory.glob(pattern))}
        config = {**_config(train, valid, vocabulary, options), "sha256": checksums}
        write_json(directory / "config.json", sealed(config, SEAL))
    return report


def _survey(corpus: Corpus, options: Options, voice: Voice) -> Survey:
    """Read everything once: both sides must have the same number of lines, and some of them text."""
    hashes = hashlib.sha256(), hashlib.sha256()
    chosen = random.Random(f"validation {options.seed}")
    # As many again as needed, for those that turn out to be too long once there are subwords.
    most = 0 if options.valid_source is not None else 2 * (VALID_MOST if options.valid_size is None else options.valid_size)
    heap: list[tuple[float, Pair]] = []  # those with the smallest random keys; keys negated: the largest of them is on top
    text_filter = TextFilter(options.dedup)
    read = text = 0
    with voice.progress("reading", "pairs") as progress:
        for chunk in corpus.chunks():
            for lines, digest in zip((chunk.pairs.source, chunk.pairs.target), hashes, strict=True):
                digest.update("\n".join([*lines, ""]).encode())
            kept = text_filter.keep(chunk)
            read += len(chunk.pairs)
            text += len(kept)
            for i in range(len(kept)):  # not of each pair: few become objects
                key = -chosen.random()
                if len(heap) < most:
                    heapq.heappush(heap, (key, kept[i]))
                elif most and key > heap[0][0]:
                    heapq.heapreplace(heap, (key, kept[i]))
            progress.advance(len(chunk.pairs))
    if not read:
        raise NmtError(f"{corpus.source.name} and {corpus.target.name} hold no lines")
    if not text:
        raise NmtError(f"{corpus.source.name} and {corpus.target.name}: no pairs left of {read:,}; dropped: {text_filter.drops}")
    candidates = [pair for _, pair in sorted(heap, reverse=True)]
    return Survey(read, text, (hashes[0].hexdigest(), hashes[1].hexdigest()), candidates)


def _check_given(given: Corpus, voice: Voice) -> int:
    """Read the validation files once, before the work: nothing of them is left out, but they must belong together.

    Returns the pairs in which bytes were replaced.
    """
    pairs = damaged = 0
    for chunk in given.chunks():
        pairs += len(chunk.pairs)
        damaged += len(chunk.damaged)
    if not pairs:
        raise NmtError(f"{given.source.name} and {given.target.name} hold no lines")
    if damaged:
        voice.warn(f"{given.source.name} and {given.target.name}: bytes that are not UTF-8 replaced in {damaged:,} pairs")
    return damaged


def _valid_size(survey: Survey, options: Options, voice: Voice) -> int:
    """Pairs to set aside, where no validation files are given."""
    if options.valid_size is not None:
        size = options.valid_size
    else:
        size = min(max(survey.text // VALID_SHARE, 1), VALID_MOST)
        voice.say(f"no validation set given: {size:,} of {survey.text:,} pairs are set aside (seed {options.seed})")
    if size >= survey.text:
        raise NmtError(
            f"{size:,} of {survey.text:,} pairs with text would be set aside for validation, so that none is left to train on; "
            "give --valid-size 0, or less, or --valid-source and --valid-target"
        )
    return size


def _borrow(path: Path, options: Options, voice: Voice) -> Vocabulary:
    """The subword models of a DATA or MODEL directory."""
    unused = ("vocab_size", "tokenizer", "shared_vocab", "lowercase", "normalization", "character_coverage", "byte_fallback")
    given = [field.name for field in fields(options) if field.name in unused and getattr(options, field.name) != field.default]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        voice.warn(f"the subword models come from {path} as they are: {names} not used")
    config = read_json(path / "config.json")
    try:
        shared = bool(config["vocabulary"]["shared"])
        files = {
            path / f"{side}.model": str(
                config["vocabulary"][f"{side}_sha256"] if config.get("kind") == "data" else config["checksums"][f"{side}.model"]
            )
            for side in ("source", "target")
        }
    except (KeyError, TypeError):
        raise NmtError(f"{path / 'config.json'}: does not say which vocabulary it is of; was it made by nmt?") from None
    for file, sha256 in files.items():
        if Subword.fingerprint_of(file) != sha256:
            raise NmtError(f"{file}: is damaged or belongs to another model: its checksum is not the one in {path / 'config.json'}")
    source, target = map(Subword.load, files)
    return Vocabulary(source, target, shared, trained_on=0, skipped_lines=0)


def _train_vocabulary(corpus: Corpus, survey: Survey, reserved: set[int], options: Options, voice: Voice) -> Vocabulary:
    """Subword models of a sample of the pairs that are not `reserved` for validation.

    The few that take the place of reserved ones too long for the limits may be in it: that shows only once there are subwords.
    """
    recipe = Recipe(
        options.tokenizer,
        options.vocab_size,
        options.normalization,
        options.lowercase,
        options.character_coverage,
        options.byte_fallback,
    )
    population = survey.text - len(reserved)
    size = min(options.vocab_sample, population)
    if size < population:
        voice.say(f"subwords are trained on {size:,} of {population:,} pairs (seed {options.seed}; --vocab-sample)")

    def trained(name: str, lines: Callable[[Pair], tuple[str, ...]]) -> Trained:
        with voice.progress(f"training {name}", "pairs", size) as progress:

            def text() -> Iterator[str]:
                for pair in _sample(corpus, reserved, size, population, options):
                    yield from lines(pair)
                    progress.advance()

            try:
                result = train_subword(text(), recipe, name)
            except NoTextError as error:
                raise NmtError(
                    f"{corpus.source.name} and {corpus.target.name}: no pairs left of {survey.read:,}: {error}, "
                    "there are only characters that are no text, and lines too long for it"
                ) from None
        if len(result.subword) < options.vocab_size:
            voice.warn(f"{name}: {len(result.subword):,} subwords are the most that the text supports, not {options.vocab_size:,}")
        if result.skipped:
            voice.warn(f"{name}: {result.skipped:,} lines of more than {LONGEST_LINE:,} bytes were not used to train it")
        return result

    if options.shared_vocab:
        both = trained("vocabulary", lambda pair: (pair.source, pair.target))
        return Vocabulary(both.subword, both.subword, True, size, both.skipped)
    source = trained("source vocabulary", lambda pair: (pair.source,))
    target = trained("target vocabulary", lambda pair: (pair.target,))
    return Vocabulary(source.subword, target.subword, False, size, source.skipped + target.skipped)


def _sample(corpus: Corpus, reserved: set[int], size: int, population: int, options: Options) -> Iterator[Pair]:
    """Exactly `size` of the `population` pairs that have text and are not reserved, each equally likely, in their order.

    Selection sampling: Knuth, The Art of Computer Programming, volume 2, algorithm S.
    """
    chosen = random.Random(f"vocabulary {options.seed}")
    text_filter = TextFilter(options.dedup)
    for chunk in corpus.chunks():
        kept = text_filter.keep(chunk).without(reserved)
        for i in range(len(kept)):
            if chosen.random() * population < size:
                yield kept[i]
                size -= 1
                if not size:
                    return
            population -= 1


def _choose(candidates: list[Pair], size: int, encoder: Encoder) -> Pairs:
    """The first `size` candidates that can be trained on, in the order of the corpus."""
    fit = encoder.fit(encoder.encode(Pairs.of(candidates)), Drops()).pairs
    return Pairs.of(sorted(fit[i] for i in range(min(size, len(fit)))))


def _statistics(survey: Survey, vocabulary: Vocabulary) -> tuple[SideStatistics, SideStatistics]:
    stride = max(survey.text // ROUND_TRIPS, 1)
    return SideStatistics(vocabulary.source, stride), SideStatistics(vocabulary.target, stride)


def _say_result(valid: Split, repeated: int, options: Options, voice: Voice) -> None:
    """What a person should not miss."""
    left_out = valid.pairs - valid.sizes["pairs"]
    if left_out and not valid.sizes["pairs"]:
        voice.warn(
            f"none of the {valid.pairs:,} validation pairs has 1 to {options.max_length} subwords on both sides: "
            "nothing will be validated in training"
        )
    elif left_out:
        voice.warn(
            f"{left_out:,} of {valid.pairs:,} validation pairs are empty or longer than {options.max_length} subwords: "
            "scores count them, the validation loss does not"
        )
    if repeated:
        voice.warn(f"{repeated:,} training pairs also stand in the validation set, word for word: its scores will flatter")


def _config(train: Split, valid: Split, vocabulary: Vocabulary, options: Options) -> dict[str, Any]:
    """What config.json holds: all that a reader needs. No file names: the same text gives the same bytes wherever it lies."""
    return {
        "kind": "data",
        "format": FORMAT,
        "version": nmt.__version__,
        "languages": [options.source_lang, options.target_lang],
        "vocabulary": {
            "source": len(vocabulary.source),
            "target": len(vocabulary.target),
            "shared": vocabulary.shared,
            "source_sha256": vocabulary.source.fingerprint,
            "target_sha256": vocabulary.target.fingerprint,
        },
        "splits": {"train": train.sizes, "valid": valid.sizes},
    }


PLACES = ("source", "target", "output", "valid_source", "valid_target", "vocab_from", "workers", "overwrite")
"""Options that say where and how fast, not what: no trace of them is in the directory."""


def _report(
    survey: Survey,
    train: Split,
    valid: Split,
    replaced: int,
    repeated: int,
    sides: tuple[SideStatistics, SideStatistics],
    vocabulary: Vocabulary,
    options: Options,
) -> Report:
    return Report(
        {
            "pairs": {"read": survey.read, "train": train.pairs, "valid": valid.pairs},
            "dropped": _dropped(train.drops),
            "validation": {
                "given": options.valid_source is not None,
                "invalid_utf8_replaced": replaced,
                "left_out": _dropped(valid.drops),
                "also_in_train": repeated,
            },
            "vocabulary": {
                "source": len(vocabulary.source),
                "target": len(vocabulary.target),
                "shared": vocabulary.shared,
                "borrowed": options.vocab_from is not None,
                "trained_on_pairs": vocabulary.trained_on,
                "of_pairs": survey.text,
                "skipped_lines": vocabulary.skipped_lines,
            },
            "source": sides[0].summary(),
            "target": sides[1].summary(),
            "sha256": {"source": survey.sha256[0], "target": survey.sha256[1]},
            "options": {field.name: getattr(options, field.name) for field in fields(options) if field.name not in PLACES},
            "versions": {"nmt": nmt.__version__, **{name: version_of(name) for name in ("sentencepiece", "numpy")}},
        }
    )


def _dropped(drops: Drops) -> dict[str, Any]:
    return {reason: {"count": drops.counts[reason], "first_lines": drops.lines[reason]} for reason in REASONS}
