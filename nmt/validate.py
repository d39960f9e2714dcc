"""How good a model is: forced decoding of the validation pairs, and translation of the validation text."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from nmt import loss
from nmt.data.batching import batches, collate
from nmt.data.shards import Dataset
from nmt.data.text import read_lines
from nmt.distributed import ALONE, Team
from nmt.errors import NmtError, NotNumbersError
from nmt.models.base import Seq2Seq
from nmt.score import validation_scores
from nmt.search import Beam
from nmt.tokenizers import choose_tokenizer
from nmt.translate import Options, Translator

Metric = Literal["bleu", "chrf", "nll", "ppl", "accuracy"]

SMALLER_IS_BETTER = ("nll", "ppl")


def better(metric: Metric, score: float, best: float | None) -> bool:
    """Whether `score` beats `best` (None: nothing yet). What is not a number beats nothing."""
    if not math.isfinite(score):
        return False
    if best is None:
        return True
    return score < best if metric in SMALLER_IS_BETTER else score > best


@dataclass(frozen=True)
class Validation:
    """The validation set, read once. Always float32 and uncompiled, as `nmt translate` runs: its scores are these."""

    dataset: Dataset
    budget: int
    beam: int
    device: torch.device
    source: list[str]
    reference: list[str]
    team: Team
    """Of these processes each does its part; all have the same scores in the end."""

    @classmethod
    def open(cls, dataset: Dataset, budget: int, beam: int, device: torch.device, team: Team = ALONE) -> "Validation | None":
        """None where the data has no validation set, or one without a pair within training's limits. NmtError for one that is
        damaged, or that cannot be scored.

        `budget` bounds the padded positions of a batch, `beam` is the search's width (1: greedy).
        """
        if not len(dataset.valid):
            return None
        source, reference = _lines(dataset.valid_source), _lines(dataset.valid_target)
        if len(source) != len(reference):
            raise NmtError(
                f"{dataset.valid_source} has {len(source):,} lines, {dataset.valid_target} {len(reference):,}: "
                "run nmt preprocess again"
            )
        choose_tokenizer(None, dataset.languages[1])  # says now, not after hours, that one is not installed
        return cls(dataset, max(budget, int(dataset.valid.lengths.max())), beam, device, source, reference, team)

    def __call__(self, model: Seq2Seq, advance: Callable[[int], None]) -> dict[str, float]:
        """nll, ppl and accuracy per target token, `</s>` included; bleu and chrf of the translation. Leaves the mode as it was.

        `advance` is told of each line translated. NotNumbersError where the network's numbers are not numbers.
        """
        training = model.training
        model.eval()
        try:
            return {**self._forced(model), **self._translated(model, advance)}
        finally:
            model.train(training)

    @torch.no_grad()
    def _forced(self, model: Seq2Seq) -> dict[str, float]:
        data = self.dataset.valid
        total = loss.nothing(self.device)
        for indices in batches(data.lengths, self.budget, seed=0, epoch=0)[self.team.rank :: self.team.size]:
            batch = collate(data, np.sort(indices), model.start_token).to(self.device)
            hidden = model(batch.src, batch.src_lengths, batch.prefix)
            total = total + loss.evaluate(model.logits, hidden, batch.target, batch.tokens, smoothing=0.0)
        figures = torch.stack((total.nll, total.correct))
        self.team.add(figures)
        tokens = int(data.lengths[:, 1].sum())
        nll, accuracy = (figures / tokens).tolist()
        if not math.isfinite(nll):
            raise NotNumbersError("the nll is not a finite number")
        return {"nll": nll, "ppl": math.exp(nll) if nll < 700 else math.inf, "accuracy": accuracy}

    def _translated(self, model: Seq2Seq, advance: Callable[[int], None]) -> dict[str, float]:
        translator = Translator([model], self.dataset.source, self.dataset.target, self.device)
        team, texts = self.team, list[str]()
        own = range(team.rank, len(self.source), team.size)
        with team.together():
            for line, found in zip(
                own, translator.translate([self.source[line] for line in own], Options(Beam(self.beam))), strict=True
            ):
                texts.append(found.text)
                advance(min(team.size, len(self.source) - line))
        hypotheses = [""] * len(self.source)
        for rank, part in enumerate(team.gather(texts)):
            hypotheses[rank :: team.size] = part
        bleu, chrf = validation_scores(hypotheses, self.reference, self.dataset.languages[1])
        return {"bleu": bleu, "chrf": chrf}


def _lines(path: Path) -> list[str]:
    def refuse(line: int) -> None:
        raise NmtError(f"{path}, line {line}: is damaged: not valid UTF-8; run nmt preprocess again")

    return list(read_lines(path, "replace", refuse))
