"""What comes of a line: its translations, the score of a given one, and the counts of a whole job.

Legend: T target pieces, S source pieces.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nmt.alignment import align


@dataclass(frozen=True)
class TextHypothesis:
    """One translation of one line. Numbers are sums over the pieces of a line that was split."""

    text: str
    score: float
    """What ranks: `log_prob` divided by the length penalty."""
    log_prob: float
    """Natural log, summed over `tokens`, and `</s>` where `finished`."""
    tokens: tuple[str, ...]
    """Pieces without the last `</s>`."""
    token_log_probs: tuple[float, ...]
    """One for each of `tokens`, then one for the last `</s>` where there is one."""
    finished: bool
    """False where the length limit cut it."""

    @property
    def exists(self) -> bool:
        """Whether a search found it; false of `ABSENT`."""
        return self.score != -math.inf

    def to_json(self, line: int, rank: int) -> dict[str, object]:
        """The object of `--format jsonl`: line and rank count from 0; `ABSENT` has null for both numbers."""
        return {
            "line": line,
            "rank": rank,
            "text": self.text,
            "score": self.score if self.exists else None,
            "logprob": self.log_prob if self.exists else None,
            "tokens": list(self.tokens),
            "finished": self.finished,
        }


EMPTY = TextHypothesis("", 0.0, 0.0, (), (), True)
"""The translation of a blank line, for which no model runs: certain."""

ABSENT = TextHypothesis("", -math.inf, -math.inf, (), (), False)
"""Fills up an n-best list where limits and constraints leave fewer translations than were asked for."""


@dataclass(frozen=True)
class Translation:
    """What came of one line."""

    hypotheses: tuple[TextHypothesis, ...]
    """Best first, `n_best` of them; where fewer exist, the last are `ABSENT`."""
    source: tuple[str, ...]
    """The pieces that the network read, `</s>` included; none where the line was blank."""
    truncated: bool
    """The line was longer than the limit and lost its end."""
    split: bool
    """The line was longer than the limit and was translated in pieces."""
    attention: NDArray[np.float32] | None = field(compare=False)
    """Of the best hypothesis, where asked for: one row for each of `token_log_probs`, one column for each of `source`."""

    @property
    def text(self) -> str:
        """The best translation, one line."""
        return self.hypotheses[0].text

    @property
    def cut(self) -> bool:
        """Whether the length limit ended the best translation."""
        return not self.hypotheses[0].finished

    def to_json(self, line: int) -> list[dict[str, object]]:
        """One object a hypothesis, best first; `line` counts from 0."""
        return [hypothesis.to_json(line, rank) for rank, hypothesis in enumerate(self.hypotheses)]

    def alignment(self) -> list[tuple[int, int]]:
        """Links (source word, target word) by attention, for which the options must have asked."""
        if self.attention is None:
            return []
        return align(self.source, self.hypotheses[0].tokens, self.attention)


@dataclass
class Statistics:
    """Counts of what a person should hear of at the end."""

    lines: int = 0
    cut: int = 0
    truncated: int = 0
    split: int = 0

    def add(self, translation: Translation) -> None:
        self.lines += 1
        self.cut += translation.cut
        self.truncated += translation.truncated
        self.split += translation.split

    def messages(self) -> list[str]:
        """One line for each kind of damage, none where there was none."""
        told = (
            (self.cut, "ended at the length limit without `</s>` (--max-length, --max-length-ratio)"),
            (self.truncated, "longer than --max-source lost the end (--overlong)"),
            (self.split, "longer than --max-source translated in pieces (--overlong)"),
        )
        return [f"{count:,} line{'s' if count > 1 else ''} {what}" for count, what in told if count]


@dataclass(frozen=True)
class ForcedScore:
    """The log-probability of a given translation."""

    log_prob: float
    """Natural log, summed over the tokens and `</s>`."""
    tokens: tuple[str, ...]
    """Target pieces, with `</s>`."""
    token_log_probs: tuple[float, ...]
    """One for each of `tokens`."""
