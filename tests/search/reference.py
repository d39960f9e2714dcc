"""The searches once more, in plain Python: one hypothesis at a time, no tensors but for the network's log-softmax.

They read the same float32 log-probabilities and add them up in the same order, so their results can be compared with `==`.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import torch

from nmt.search import Hypothesis
from nmt.vocab import EOS
from tests.fakes import Logits

Path = tuple[tuple[int, ...], tuple[float, ...], float]
"""Tokens, their log-probabilities, the sum."""
START: Path = ((), (), 0.0)


class Reference:
    """What may follow a prefix, for one sentence."""

    def __init__(self, logits: Logits, src: Sequence[int], prefix: Sequence[int] = (), no_repeat_ngram: int = 0) -> None:
        self.logits = logits
        self.src = (*src, EOS)
        self.prefix = tuple(prefix)
        self.ngram = no_repeat_ngram

    def log_probs(self, tokens: tuple[int, ...]) -> list[float]:
        return torch.tensor(self.logits(self.src, tokens)).log_softmax(-1).tolist()

    def allowed(self, tokens: tuple[int, ...], vocabulary: int) -> list[int]:
        if len(tokens) < len(self.prefix):
            return [self.prefix[len(tokens)]]
        return [token for token in range(EOS, vocabulary) if token == EOS or not self.repeats((*tokens, token))]

    def repeats(self, tokens: tuple[int, ...]) -> bool:
        if not self.ngram:
            return False
        ngrams = list(zip(*(tokens[start:] for start in range(self.ngram)), strict=False))
        return ngrams[-1:] != [] and ngrams[-1] in ngrams[:-1]

    def continuations(self, path: Path) -> Iterator[tuple[float, int, Path]]:
        """(total, token, path with it), in the order of ids."""
        tokens, values, total = path
        log_probs = self.log_probs(tokens)
        for token in self.allowed(tokens, len(log_probs)):
            value = log_probs[token]
            yield total + value, token, ((*tokens, token), (*values, value), total + value)

    def at_limit(self, path: Path) -> Path:
        """The path with `</s>` if that is what follows best, else as it is: cut."""
        _, token, longer = max(self.continuations(path), key=lambda found: found[0])
        return longer if token == EOS else path


def hypothesis(path: Path, alpha: float) -> Hypothesis:
    tokens, values, total = path
    finished = tokens[-1:] == (EOS,)
    score = total / ((5 + len(tokens)) / 6) ** alpha
    return Hypothesis(tokens[:-1] if finished else tokens, total, score, finished, values)


def ranked(paths: Sequence[Path], alpha: float) -> list[Hypothesis]:
    return sorted((hypothesis(path, alpha) for path in paths), key=lambda found: -found.score)


def greedy(reference: Reference, limit: int, alpha: float = 0.0) -> list[Hypothesis]:
    path = START
    while path[0][-1:] != (EOS,) and len(path[0]) < limit:
        path = max(reference.continuations(path), key=lambda found: found[0])[2]
    return [hypothesis(path if path[0][-1:] == (EOS,) else reference.at_limit(path), alpha)]


def textbook_beam(reference: Reference, limit: int, size: int, alpha: float) -> list[Hypothesis]:
    """Beam search with 2K candidates, live and finished sets, that never stops before the limit."""
    live, finished = [START], []
    for _ in range(limit):
        candidates = [found for path in live for found in reference.continuations(path)]
        candidates.sort(key=lambda found: -found[0])
        candidates = candidates[: 2 * size]
        finished += [path for _, token, path in candidates if token == EOS]
        live = [path for _, token, path in candidates if token != EOS][:size]
    finished += [reference.at_limit(path) for path in live]
    return ranked(finished, alpha)[:size]


def all_hypotheses(reference: Reference, symbols: Sequence[int], limit: int, alpha: float) -> list[Hypothesis]:
    """All hypotheses there are, best first: sequences of `symbols` shorter than the limit ended, those at it ended or cut."""

    def score(tokens: Sequence[int]) -> Path:
        values = [reference.log_probs(tuple(tokens[:place]))[token] for place, token in enumerate(tokens)]
        return tuple(tokens), tuple(values), math.fsum(values)

    shorter = [score((*tokens, EOS)) for length in range(limit) for tokens in itertools.product(symbols, repeat=length)]
    full = [reference.at_limit(score(tokens)) for tokens in itertools.product(symbols, repeat=limit)]
    return ranked(shorter + full, alpha)


def left_places(left: int) -> int:
    """How many of 9 places a pool keeps when so many sentences are left; the places of the others are given up a few at a time."""
    return min((places for places in (1, 2, 3, 4, 6, 8) if places >= left), default=9)
