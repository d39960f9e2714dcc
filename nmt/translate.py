"""Lines to translations, in order, over any model and any search.

Legend: B sentences, S source positions, T target positions, R rows.
"""

import itertools
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.alignment import SPACE
from nmt.checkpoint import SavedModel, load_model
from nmt.data.subword import Subword
from nmt.device import Precision, choose_device, prepare, set_threads
from nmt.errors import NmtError, UsageError
from nmt.models.base import Seq2Seq, padded
from nmt.models.ensemble import Ensemble
from nmt.models.uncached import Uncached
from nmt.results import ABSENT, EMPTY, ForcedScore, TextHypothesis, Translation
from nmt.search import Beam
from nmt.search.base import Hypothesis, Search
from nmt.search.pool import LEAST_WIDTH
from nmt.stream import Sentence, TooLarge, in_order, input_line, within_memory
from nmt.vocab import EOS, PAD, SYMBOLS, UNK
from nmt.workers import Hire, crew

EXTRA_LENGTH = 50
"""Target subwords more than the source has, where no limit is given (Vaswani et al. 2017, section 6.1)."""

MOST_LENGTH = 100_000
"""No limit is above it: a search keeps a table of the penalty of each length."""

BATCHES = 4
"""A search is given so many batches' worth of sentences: what is left of one goes on with what is left of others."""

CHUNK = 1024
"""Target positions whose log-probabilities over the vocabulary exist at once in forced decoding."""


@dataclass(frozen=True)
class Options:
    """How to translate. An impossible value raises `UsageError`."""

    search: Search = field(default_factory=Beam)
    n_best: int = 1
    """Hypotheses a line, exactly, no more than the search makes; where fewer exist `results.ABSENT` fills up."""
    unique: bool = False
    """Drop hypotheses whose text has a better one already: fewer than `n_best` may be left."""
    max_length: int | None = None
    """The most target subwords of a sentence, `</s>` not counted; without either limit the source's number and 50 more."""
    max_length_ratio: float | None = None
    """The same, as a multiple of the source's subwords (rounded up)."""
    batch_tokens: int = 4000
    """The most source positions that run together, `</s>` counted, whatever the beam, and that wait midway beside them; a longer
    sentence runs alone, a short one counts as `LEAST_WIDTH`."""
    batch_lines: int | None = None
    """The most lines read ahead; 1 answers each line before the next is read."""
    overlong: Literal["truncate", "split", "error"] = "truncate"
    """What becomes of a line of more than `max_source` subwords."""
    max_source: int = 1000
    """No network here has a limit of its own: this one bounds time and memory, both quadratic in length."""
    attention: bool = False
    """Give the attention of the best hypothesis."""

    def __post_init__(self) -> None:
        for name in ("n_best", "max_length", "batch_tokens", "batch_lines", "max_source"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
        if self.max_length is not None and self.max_length_ratio is not None:
            raise UsageError("--max-length and --max-length-ratio exclude each other")
        if self.max_length_ratio is not None and not 0 < self.max_length_ratio < math.inf:
            raise UsageError(f"--max-length-ratio must be a number above 0, not {self.max_length_ratio}")
        if self.overlong not in ("truncate", "split", "error"):
            raise UsageError(f"--overlong must be truncate, split or error, not {self.overlong}")
        self.search.keeping(self.n_best)

    def limit(self, source: int, prefix: int) -> int:
        """The most target subwords for so many source subwords and forced ones."""
        if self.max_length is not None:
            return min(self.max_length, MOST_LENGTH)
        if self.max_length_ratio is not None:
            return math.ceil(min(self.max_length_ratio * source, MOST_LENGTH))
        return min(max(source, prefix) + EXTRA_LENGTH, MOST_LENGTH)

    def positions(self) -> int:
        """The most positions, on either side, that a sentence without a prefix can take; `</s>` and the start token counted."""
        return max(self.max_source, self.limit(self.max_source, 0)) + 1


@dataclass(frozen=True)
class _Found:
    hypotheses: list[Hypothesis]
    attention: NDArray[np.float32] | None


class Translator:
    """One model, or several whose probabilities are averaged, with the subword models that they were trained with."""

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        source: Subword,
        target: Subword,
        device: str | torch.device = "cpu",
        cache: bool = True,
        workers: int = 1,
    ) -> None:
        """`cache=False` decodes the whole prefix again at each step: slow, and a check of the cache. `workers` is how many
        processes, forked from this one, share the batches.

        The models are moved to `device`, and put into evaluation mode whenever they run: who trains on, calls `train()`.
        """
        self.device = choose_device(device) if isinstance(device, str) else device
        model = models[0] if len(models) == 1 else Ensemble(list(models))
        self._model = (model if cache else Uncached(model)).to(self.device)
        self._source = source
        self._target = target
        self._workers = workers
        self._hire: Hire = crew

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        ensemble: Sequence[str | PathLike[str]] = (),
        device: str = "auto",
        threads: int | None = None,
        cache: bool = True,
        precision: Precision = "float32",
    ) -> "Translator":
        """The model at `path` (a run, a checkpoint, an average), together with those of `ensemble`.

        On a CPU `threads` (all cores where it is None) work on so many batches at a time. With `precision` bfloat16 the weights are
        rounded to it, and all that the network computes, but log-probabilities remain float32; with int8 linear layers are computed
        in integers, on a CPU that has instructions for it.

        Raises `NmtError` where one is missing or damaged, where their subword models differ, or the device is not there or
        cannot compute so.
        """
        where = choose_device(device)
        set_threads(threads)
        first, *others = [_load(each, where) for each in (path, *ensemble)]
        for other in others:
            for side, ours, theirs in (("source", first.source, other.source), ("target", first.target, other.target)):
                if ours.fingerprint != theirs.fingerprint:
                    raise NmtError(
                        f"{other.path}: its {side} vocabulary ({len(theirs):,} subwords) is not that of {first.path} "
                        f"({len(ours):,}); models of an ensemble must share their subword models (preprocess --vocab-from)"
                    )
        for each in (first, *others):
            prepare(each.model, where, precision)
        try:
            models = [first.model, *(other.model for other in others)]
            workers = torch.get_num_threads() if where.type == "cpu" else 1
            return cls(models, first.source, first.target, where, cache, workers)
        except ValueError as error:
            raise NmtError(f"{path} and {', '.join(map(str, ensemble))}: {error}") from error

    def employ(self, hire: Hire, workers: int) -> None:
        """From now on the batches are shared by so many `workers` of another kind; each does `work`."""
        self._workers, self._hire = workers, hire

    def work(self, options: Options) -> Callable[[list[Sentence[_Found]]], list[_Found | TooLarge]]:
        """What a worker does with a batch, in a process that leads nobody."""
        return partial(within_memory, partial(self._search, options=options))

    def translate(
        self,
        lines: Iterable[str | None],
        options: Options | None = None,
        prefixes: Iterable[str] | None = None,
        where: Callable[[int], str] = input_line,
    ) -> Iterator[Translation]:
        """One translation a line, in the order of the lines; lines are read as they are needed, with or without line feeds.

        A None in `lines` (see `stream.arriving`) says that no more has arrived yet, and is no line. `prefixes`, one a line,
        are what each translation must begin with (empty: free). A line's translation depends on nothing but the line,
        its prefix and the options: on a CPU in float32, byte for byte. `where` is how messages name a line by its number.

        Raises `NmtError` for a line or prefix that cannot be, after the translations of all lines before it.
        """
        if isinstance(lines, str):
            raise TypeError("lines are a list or an iterator of lines, not one string: its characters would be the lines")
        options = options or Options()
        if options.attention:
            self._check_attention()

        parts = self._sentences(lines, options, prefixes, where)
        # One line at a time has all threads; of several batches, each has one.
        alone = options.batch_lines == 1 or (options.search.own_threads and self._hire is crew)
        workers = 1 if alone else self._workers
        work = partial(self._search, options=options)
        lines_in_order = in_order(parts, work, options.batch_tokens, options.batch_lines, where, workers, BATCHES, self._hire)
        return (self._translation(overlong, sentences, options) for overlong, sentences in lines_in_order)

    def log_probs(self, pairs: Iterable[tuple[str, str]], batch_tokens: int = 4000) -> Iterator[ForcedScore]:
        """Of each target given its source, both as their own encoding splits them; in the order of the pairs.

        `batch_tokens` bounds the positions of either side of a batch; the result does not depend on it to 1e-5.
        """
        ids = (
            (_encoded(self._source, source, f"source line {n}".format), _encoded(self._target, target, f"target line {n}".format))
            for n, (source, target) in enumerate(pairs, 1)
        )
        for target, log_probs in self.force(ids, batch_tokens):
            pieces = (*self._target.pieces(target), SYMBOLS[EOS])
            yield ForcedScore(math.fsum(log_probs), pieces, log_probs)

    def force(
        self, pairs: Iterable[tuple[Sequence[int], Sequence[int]]], batch_tokens: int = 4000
    ) -> Iterator[tuple[list[int], tuple[float, ...]]]:
        """Target ids with the log-probability of each, then of `</s>`, for pairs of ids without start token and `</s>`."""

        def sentences() -> Iterator[tuple[None, list[Sentence[tuple[float, ...]]]]]:
            for number, (source, target) in enumerate(pairs, 1):
                size = padded(self._model, len(source) + 1)
                yield None, [Sentence([*source, EOS], size, list(target), 0, max(size, len(target) + 1), number)]

        for _, (sentence,) in in_order(sentences(), self._force, batch_tokens, None, workers=self._workers):
            yield sentence.target, sentence.result

    def _sentences(
        self, lines: Iterable[str | None], options: Options, prefixes: Iterable[str] | None, where: Callable[[int], str]
    ) -> Iterator[tuple[bool, list[Sentence[_Found]]] | None]:
        """For each line: whether it was overlong, and what is to be translated of it."""
        forced = iter(prefixes) if prefixes is not None else itertools.repeat("")
        number = 0
        for line in lines:
            if line is None:
                yield None
                continue
            number += 1
            prefix_text = next(forced, None)
            if prefix_text is None:
                raise NmtError(f"{where(number)} has no prefix: there are {number - 1:,} prefixes; give one line for each")
            # Blank is what encodes to nothing: only the subword model knows which characters it drops.
            source = _encoded(self._source, line, partial(where, number))
            overlong = len(source) > options.max_source
            if overlong and options.overlong == "error":
                raise NmtError(
                    f"{where(number)} has {len(source):,} subwords, more than {options.max_source:,}; "
                    "raise --max-source, or choose --overlong truncate or split"
                )
            prefix = self._prefix(prefix_text, where, number) if source else []
            parts = self._split(source, options.max_source) if options.overlong == "split" else [source[: options.max_source]]
            sentences = []
            for part in filter(None, parts):
                limit = options.limit(len(part), len(prefix))
                if len(prefix) > limit:
                    raise NmtError(f"the prefix of {where(number)} has {len(prefix)} subwords, the limit is {limit}")
                size = padded(self._model, len(part) + 1)
                sentences.append(Sentence[_Found]([*part, EOS], size, prefix, limit, max(size, LEAST_WIDTH), number))
                prefix = []  # it begins the first part only
            yield overlong, sentences
        if prefixes is not None and next(forced, None) is not None:
            raise NmtError(f"there are more prefixes than the {number:,} input lines; give one for each")

    def _prefix(self, text: str, where: Callable[[int], str], number: int) -> list[int]:
        prefix = _encoded(self._target, text, lambda: f"the prefix of {where(number)}")
        if UNK in prefix:
            raise NmtError(f"the prefix of {where(number)} has characters that the model cannot write: {text!r}")
        return prefix

    def _split(self, source: list[int], most: int) -> list[list[int]]:
        """Parts of at most `most` ids, of like length, each cut before a word unless one word is longer than the part."""
        starts = [piece.startswith(SPACE) for piece in self._source.pieces(source)]
        cuts = [0]
        while (left := len(source) - cuts[-1]) > most:
            end = cuts[-1] + math.ceil(left / math.ceil(left / most))
            cuts.append(next((cut for cut in range(end, cuts[-1], -1) if starts[cut]), end))
        return [source[start:end] for start, end in itertools.pairwise([*cuts, len(source)])]

    def _sources(self, batch: list[Sentence[Any]]) -> tuple[Tensor, Tensor]:
        """src (B, S) and src_lengths (B,). S is a multiple of the network's unit, so that nothing about the company of a sentence
        reaches its arithmetic: another last bit would change text at near ties.
        """
        size = max(sentence.size for sentence in batch)
        sources = [sentence.source + [PAD] * (size - len(sentence.source)) for sentence in batch]
        lengths = [len(sentence.source) for sentence in batch]
        return torch.tensor(sources, device=self.device), torch.tensor(lengths, device=self.device)

    @torch.inference_mode()
    def _search(self, batch: list[Sentence[_Found]], options: Options) -> list[_Found]:
        self._model.eval()
        src, lengths = self._sources(batch)
        search = options.search if options.unique else options.search.keeping(options.n_best)
        limits, prefixes = [sentence.limit for sentence in batch], [sentence.target for sentence in batch]
        found = search(self._model, src, lengths, limits, prefixes, options.batch_tokens)
        weights: Sequence[NDArray[np.float32] | None] = [None] * len(batch)
        if options.attention:
            weights = self._attention(src, lengths, [best for best, *_ in found], options.batch_tokens)
        return [_Found(hypotheses, attention) for hypotheses, attention in zip(found, weights, strict=True)]

    def _attention(self, src: Tensor, lengths: Tensor, hypotheses: list[Hypothesis], positions: int) -> list[NDArray[np.float32]]:
        """(T, S) each. Those of one T and one padded S together, so that company reaches no bit, and few enough for `positions`."""
        rows: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        sizes = lengths.tolist()
        for row, hypothesis in enumerate(hypotheses):
            rows[len(hypothesis.token_log_probs), padded(self._model, sizes[row])].append(row)
        weights: dict[int, NDArray[np.float32]] = {}
        for (length, size), alike in rows.items():
            most = max(1, positions // max(length, size))
            for members in (alike[begin : begin + most] for begin in range(0, len(alike), most)):
                prefix = [[self._model.start_token, *hypotheses[row].tokens][:length] for row in members]
                index = torch.tensor(members, device=self.device)
                memory = self._model.encode(src[index, :size], lengths[index])
                attention = self._model.attention(torch.tensor(prefix, device=self.device), memory)
                for row, own in zip(members, attention.float().cpu().numpy(), strict=True):
                    weights[row] = own[:, : sizes[row]]
        return [weights[row] for row in range(len(hypotheses))]

    def _check_attention(self) -> None:
        with torch.inference_mode():
            one = torch.tensor([[EOS]], device=self.device)
            try:
                self._model.attention(one, self._model.encode(one, torch.ones_like(one[0])))
            except ValueError as error:
                raise NmtError(f"attention cannot be shown: {error}") from error

    @torch.inference_mode()
    def _force(self, batch: list[Sentence[tuple[float, ...]]]) -> list[tuple[float, ...]]:
        self._model.eval()
        src, lengths = self._sources(batch)
        labels = [torch.tensor([*sentence.target, EOS]) for sentence in batch]
        sizes = [len(each) for each in labels]
        target = pad_sequence(labels, batch_first=True, padding_value=PAD).to(self.device)
        prefix = target.roll(1, dims=1)
        prefix[:, 0] = self._model.start_token
        hidden = self._model(src, lengths, prefix)
        # A chunk of positions at a time: the (positions, vocabulary) matrix would be the largest of all.
        real = torch.arange(target.shape[1], device=self.device) < torch.tensor(sizes, device=self.device)[:, None]
        chunks = zip(torch.split(hidden[real], CHUNK), torch.split(target[real], CHUNK), strict=True)
        scores = torch.cat([self._model.log_probs(h).gather(1, t[:, None])[:, 0] for h, t in chunks])
        return [tuple(each.tolist()) for each in torch.split(scores.cpu(), sizes)]

    def _translation(self, overlong: bool, sentences: list[Sentence[_Found]], options: Options) -> Translation:
        if not sentences:
            attention = np.zeros((1, 0), np.float32) if options.attention else None
            return Translation((EMPTY,) * (1 if options.unique else options.n_best), (), False, False, attention)
        ranks = zip(*(sentence.result.hypotheses for sentence in sentences), strict=False)  # a search may find fewer for one part
        hypotheses: dict[object, TextHypothesis] = {}
        for rank, parts in enumerate(ranks):
            hypothesis = self._text(parts)
            hypotheses.setdefault(hypothesis.text if options.unique else rank, hypothesis)
            if len(hypotheses) == options.n_best:
                break
        found = tuple(hypotheses.values())
        return Translation(
            found if options.unique else found + (ABSENT,) * (options.n_best - len(found)),
            tuple(piece for sentence in sentences for piece in self._source.pieces(sentence.source)),
            truncated=overlong and options.overlong == "truncate",
            split=overlong and options.overlong == "split",
            attention=_diagonal([sentence.result.attention for sentence in sentences]),
        )

    def _text(self, parts: Sequence[Hypothesis]) -> TextHypothesis:
        """The hypotheses of a line's parts as one: inner `</s>` stay among its tokens, or its log_prob would not add up."""
        ids = [token for part in parts for token in (*part.tokens, *[EOS] * part.finished)]
        texts = [self._target.decode(part.tokens) for part in parts]
        return TextHypothesis(
            text=" ".join(filter(None, texts)),
            score=math.fsum(part.score for part in parts),
            log_prob=math.fsum(part.log_prob for part in parts),
            tokens=tuple(self._target.pieces(ids[:-1] if parts[-1].finished else ids)),
            token_log_probs=tuple(log_prob for part in parts for log_prob in part.token_log_probs),
            finished=all(part.finished for part in parts),
        )


def _load(path: str | PathLike[str], device: torch.device) -> SavedModel:
    if not os.fspath(path):  # for a Path it would be the working directory
        raise NmtError("the name of a model is empty")
    return load_model(Path(path), device)


def _encoded(subword: Subword, line: str, name: Callable[[], str]) -> list[int]:
    """The ids of a line as it was read; `name` is how messages call it."""
    bare = _bare(line)
    try:
        bare.encode()
    except UnicodeEncodeError:
        raise NmtError(f"{name()} holds a lone surrogate, which no text can: {line!r}") from None
    return subword.encode(bare)


def _bare(line: str) -> str:
    r"""A line without the `\n` or `\r\n` that a file opened in Python leaves at its end: in text it would be white space."""
    return line[:-1].removesuffix("\r") if line.endswith("\n") else line


def _diagonal(blocks: list[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    """The attention of a line out of that of its parts: no part looks into another."""
    known = [block for block in blocks if block is not None]
    if not known:
        return None
    whole = np.zeros(np.sum([block.shape for block in known], axis=0), np.float32)
    row = column = 0
    for block in known:
        rows, columns = block.shape
        whole[row : row + rows, column : column + columns] = block
        row, column = row + rows, column + columns
    return whole
