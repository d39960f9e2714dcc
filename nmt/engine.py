"""Translation by CTranslate2, an engine of its own, as a search: `nmt translate --engine ctranslate2`.

The engine holds a copy of the network and searches by itself; of the protocol's arguments it uses ids and limits only. What it
finds it scores in one more pass, since while it searches it leaves out the probability of what may not be produced.

Legend: B sentences, S source positions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from nmt.checkpoint import load_model
from nmt.errors import NmtError
from nmt.export import import_ctranslate2, pieces, write_ctranslate2
from nmt.models.base import Seq2Seq
from nmt.search.base import Hypothesis, check_n_best, hypothesis
from nmt.vocab import BOS, EOS, PAD, SYMBOLS, UNK

PAD_MULTIPLE = 8
"""On a GPU the engine may fill sentences up to a multiple of it."""

SCORED = 1024
"""Target positions that are scored at once: each has a whole vocabulary of log-probabilities."""


@dataclass(frozen=True)
class CTranslate2:
    """Greedy search (`size` 1) or beam search by the engine, best first, under no length penalty.

    The search is like ours, and on most lines finds the same, never better: of the candidates of a step it lets only the first
    `size` end, and it stops when the best one has ended, so that the rest of an n-best list may be others. A line's translation
    may depend on the batch in its last bits, and with them at near ties.
    """

    own_threads: ClassVar[bool] = True

    translator: Any
    """`ctranslate2.Translator`."""
    source: tuple[str, ...]
    """The engine's name of each source id."""
    target: dict[str, int]
    """The target id of each of the engine's names."""
    workers: int
    """Parts of a batch that are translated at the same time."""
    size: int = 5
    """Hypotheses kept for each sentence."""
    n_best: int | None = None
    """Hypotheses returned; all `size` where not said."""

    @classmethod
    def load(cls, path: Path, size: int, positions: int, device: torch.device, precision: str = "float32") -> Self:
        """The engine with the model at `path`, for sentences of up to `positions` tokens, `</s>` and start token counted, in one of
        its own precisions.

        On a CPU each of torch's threads translates a part of a batch by itself. Raises NmtError where the package is not
        installed, the model is none for it, or the device cannot be used.
        """
        package = import_ctranslate2()
        saved = load_model(path)
        workers = torch.get_num_threads() if device.type == "cpu" else 1
        with TemporaryDirectory(prefix="nmt-") as place:  # what is there is read whole, once
            write_ctranslate2(saved, Path(place), positions + PAD_MULTIPLE)
            try:
                translator = package.Translator(
                    place,
                    device.type,
                    device_index=device.index or 0,
                    compute_type=precision,
                    inter_threads=workers,
                    intra_threads=1,
                )
            except (RuntimeError, ValueError) as error:
                raise NmtError(f"--engine ctranslate2 cannot use {device} in {precision}: {error}") from error
        target = {piece: id for id, piece in enumerate(pieces(saved.target, path))}
        return cls(translator, tuple(pieces(saved.source, path)), target, workers, size)

    def __call__(
        self,
        model: Seq2Seq,
        src: Tensor,
        src_lengths: Tensor,
        max_lengths: Sequence[int],
        prefixes: Sequence[Sequence[int]] = (),
        positions: int | None = None,
    ) -> list[list[Hypothesis]]:
        """As in `Search`, whatever `model` is, and all at once; ValueError for prefixes."""
        if any(prefixes):
            raise ValueError("the engine forces no prefixes")
        ids = zip(src.tolist(), src_lengths.tolist(), strict=True)
        sources = [[self.source[id] for id in row[: length - 1]] for row, length in ids]  # the engine adds </s>
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for limit in set(max_lengths):  # one at a time is all that the engine takes
            rows = [row for row, each in enumerate(max_lengths) if each == limit]
            for row, found in zip(rows, self._search([sources[row] for row in rows], limit), strict=True):
                results[row] = found
        return results

    def keeping(self, count: int) -> Self:
        """As in `Search`."""
        check_n_best(count, self._count)
        return replace(self, n_best=count)

    @property
    def _count(self) -> int:
        return self.n_best or self.size

    def _search(self, sources: list[list[str]], limit: int) -> list[list[Hypothesis]]:
        """The hypotheses of each source, of up to `limit` tokens."""
        # With a step more than the limit the engine finds which hypotheses of that length end by themselves.
        found = self._translate(sources, limit, limit + 1)
        short = [row for row, each in enumerate(found) if len(each) < self._count]
        if short:  # some of the others differed in the token after the limit only
            again = self._translate([sources[row] for row in short], limit, limit)
            for row, each in zip(short, again, strict=True):
                found[row] = each
        return self._score(sources, found)

    def _translate(self, sources: list[list[str]], limit: int, steps: int) -> list[dict[tuple[str, ...], bool]]:
        """Of each source the tokens of its hypotheses, cut at `limit`, and whether `</s>` came within `steps`."""
        results = self.translator.translate_batch(
            sources,
            max_batch_size=math.ceil(len(sources) / self.workers),
            beam_size=self.size,
            num_hypotheses=self._count,
            length_penalty=0,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=steps,
            suppress_sequences=[[SYMBOLS[id]] for id in (PAD, UNK, BOS)],
        )
        found: list[dict[tuple[str, ...], bool]] = []
        for result in results:
            found.append({})
            for tokens in result.hypotheses:
                found[-1].setdefault(tuple(tokens[:limit]), len(tokens) < steps)
        return found

    def _score(self, sources: list[list[str]], found: list[dict[tuple[str, ...], bool]]) -> list[list[Hypothesis]]:
        """The hypotheses `found` with the network's own log-probabilities, best first."""
        pairs = [(source, tokens) for source, each in zip(sources, found, strict=True) for tokens in each]
        scored = iter(
            self.translator.score_batch(
                [source for source, _ in pairs],
                [list(tokens) for _, tokens in pairs],
                max_batch_size=SCORED,
                batch_type="tokens",
                max_input_length=0,
            )
        )
        results = []
        for each in found:
            hypotheses = []
            for (tokens, finished), result in zip(each.items(), scored, strict=False):
                ids = [*(self.target[token] for token in tokens), *[EOS] * finished]
                values = result.log_probs[: len(ids)]  # an </s> that did not come was scored all the same
                hypotheses.append(hypothesis(ids, values, math.fsum(values), 0.0))
            results.append(sorted(hypotheses, key=lambda hypothesis: -hypothesis.score))
        return results
