"""A network whose probabilities are written by hand: what a search should find can be computed without it.

Legend: B sentences, S source positions, T target positions, R decoder rows, V target vocabulary (also the hidden width).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import torch
from torch import Tensor

from nmt.models.base import Memory, Seq2Seq, State, fitted

Logits = Callable[[tuple[int, ...], tuple[int, ...]], Sequence[float]]
"""(source ids, target prefix without the start token) -> V logits of the next token."""


@dataclass
class ScriptedMemory(Memory):
    """The source ids: who mixes up memory rows gets another sentence's probabilities."""

    src: Tensor
    lengths: Tensor

    def join(self, other: Self) -> Self:
        size = max(self.src.shape[1], other.src.shape[1])
        return super(ScriptedMemory, self._fitted(size)).join(other._fitted(size))

    def _fitted(self, size: int) -> Self:
        return replace(self, src=fitted(self.src, -1, size))


@dataclass
class ScriptedState(State):
    """The prefix as this row remembers it: a state that was not reordered with its hypothesis remembers another's."""

    prefix: Tensor


class Scripted(Seq2Seq):
    """The logits are a function of source and prefix; hidden states are the logits themselves."""

    def __init__(self, vocabulary: int, logits: Logits, start_token: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.script = logits
        self.start_token = start_token
        self.rows: list[int] = []
        """Decoder rows of each step so far."""
        self.sentences: list[int] = []
        """Memory rows of each step so far."""

    def encode(self, src: Tensor, src_lengths: Tensor) -> ScriptedMemory:
        return ScriptedMemory(src, src_lengths)

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:
        assert isinstance(memory, ScriptedMemory)
        sources = sources_of(memory)
        width = rows_each(len(prefix), len(sources))
        rows = [
            [self.script(sources[row // width], tuple(ids[1:end])) for end in range(1, len(ids) + 1)]
            for row, ids in enumerate(prefix.tolist())
        ]
        return torch.tensor(rows).view(*prefix.shape, self.vocabulary)

    def start(self, memory: Memory) -> ScriptedState:
        assert isinstance(memory, ScriptedMemory)
        return ScriptedState(memory.src[:, :0])

    def step(self, token: Tensor, state: State, memory: Memory) -> tuple[Tensor, ScriptedState]:
        assert isinstance(state, ScriptedState)
        assert isinstance(memory, ScriptedMemory)
        self.rows.append(len(token))
        self.sentences.append(len(memory.src))
        prefix = torch.cat([state.prefix, token.unsqueeze(1)], dim=1)
        assert (prefix[:, 0] == self.start_token).all()
        sources = sources_of(memory)
        width = rows_each(len(token), len(sources))
        hidden = [self.script(sources[row // width], tuple(ids[1:])) for row, ids in enumerate(prefix.tolist())]
        return torch.tensor(hidden).view(len(token), self.vocabulary), ScriptedState(prefix)

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden

    def attention(self, prefix: Tensor, memory: Memory) -> Tensor:
        raise ValueError("a scripted network has no attention")


def sources_of(memory: ScriptedMemory) -> list[tuple[int, ...]]:
    """The source ids of each row, without padding."""
    return [tuple(ids[:length]) for ids, length in zip(memory.src.tolist(), memory.lengths.tolist(), strict=True)]


def rows_each(rows: int, sentences: int) -> int:
    """Decoder rows of each sentence."""
    assert rows % sentences == 0, "memory and state no longer belong together"
    return rows // sentences


def random_logits(vocabulary: int, seed: int = 0, spread: float = 1.5, ends: float = 0.0) -> Logits:
    """Normal logits, other ones for each source and prefix; `ends` is added to those of `</s>`."""

    @cache
    def logits(src: tuple[int, ...], prefix: tuple[int, ...]) -> tuple[float, ...]:
        generator = random.Random(f"{seed} {src} {prefix}")
        drawn = [generator.gauss(0, spread) for _ in range(vocabulary)]
        drawn[3] += ends
        return tuple(drawn)

    return logits


def pad(sentences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """src (B, S) and src_lengths (B,) of source ids, each given EOS."""
    longest = max(map(len, sentences)) + 1
    rows = [[*ids, 3, *[0] * (longest - len(ids) - 1)] for ids in sentences]
    return torch.tensor(rows), torch.tensor([len(ids) + 1 for ids in sentences])
