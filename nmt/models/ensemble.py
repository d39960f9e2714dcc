"""Several networks as one: at each step the mean of their probabilities. The backends may differ.

Legend: B sentences, T target positions, R decoder rows, d width of a member, D sum of the members' widths, V target vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn

from nmt.models import base
from nmt.models.base import Seq2Seq
from nmt.vocab import EOS


@dataclass
class Memory(base.Memory):
    """One memory a member."""

    members: list[base.Memory]


@dataclass
class State(base.State):
    """One state a member."""

    members: list[base.State]


class Ensemble(Seq2Seq):
    """log p = log of the arithmetic mean of the members' p. A network beside itself gives what it gives alone, bit by bit.

    `hidden` is the members' hidden side by side, (..., D). `logits` are log-probabilities already.
    """

    def __init__(self, members: Sequence[Seq2Seq]) -> None:
        """Raises ValueError for no members, and for members that start otherwise or write in vocabularies of other sizes."""
        super().__init__()
        if not members:
            raise ValueError("an ensemble needs at least one model")
        self.members = nn.ModuleList(members)
        starts = {member.start_token for member in members}
        if len(starts) > 1:
            raise ValueError(f"models of an ensemble must have one start token; these start from {sorted(starts)}")
        self.start_token = members[0].start_token
        self.source_unit = math.lcm(*(member.source_unit for member in members))
        shapes = [_shapes(member) for member in members]
        self.widths = [width for width, _ in shapes]
        vocabularies = {vocabulary for _, vocabulary in shapes}
        if len(vocabularies) > 1:
            raise ValueError(f"models of an ensemble must have one target vocabulary; these have {sorted(vocabularies)} entries")

    def encode(self, src: Tensor, src_lengths: Tensor) -> Memory:
        return Memory([member.encode(src, src_lengths) for member in self._each()])

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:  # type: ignore[override]  # of our own encode
        return torch.cat([member.decode(prefix, own) for member, own in zip(self._each(), memory.members, strict=True)], -1)

    def start(self, memory: Memory) -> State:  # type: ignore[override]  # of our own encode
        return State([member.start(own) for member, own in zip(self._each(), memory.members, strict=True)])

    def step(self, token: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:  # type: ignore[override]  # of our own
        hidden, states = [], []
        for member, own_state, own_memory in zip(self._each(), state.members, memory.members, strict=True):
            vectors, after = member.step(token, own_state, own_memory)
            hidden.append(vectors)
            states.append(after)
        return torch.cat(hidden, -1), State(states)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.log_probs(hidden)

    def log_probs(self, hidden: Tensor) -> Tensor:
        parts = torch.split(hidden, self.widths, -1)
        each = [member.log_probs(part.contiguous()) for member, part in zip(self._each(), parts, strict=True)]
        # m + log(mean(exp(l - m))): for equal l it is l itself, as exp(0) = 1 and log(1) = 0 are exact.
        most = reduce(torch.maximum, each)
        total = reduce(torch.add, [(log_probs - most).exp() for log_probs in each])
        return most + (total / len(each)).log()

    def attention(self, prefix: Tensor, memory: Memory) -> Tensor:  # type: ignore[override]  # of our own encode
        """The mean of those members that have attention. Raises ValueError where none has."""
        found = []
        for member, own in zip(self._each(), memory.members, strict=True):
            try:
                found.append(member.attention(prefix, own))
            except ValueError:
                continue
        if not found:
            raise ValueError("no model of the ensemble has attention")
        return torch.stack(found).mean(0)

    def _each(self) -> list[Seq2Seq]:
        return list(self.members)  # type: ignore[arg-type]  # a ModuleList forgets the type


@torch.no_grad()
def _shapes(model: Seq2Seq) -> tuple[int, int]:
    """Width of `hidden` and size of the target vocabulary, asked of the network itself."""
    one = torch.full((1, 1), EOS, device=next(model.parameters()).device)
    hidden = model(one, torch.ones_like(one[0]), torch.full_like(one, model.start_token))
    return hidden.shape[-1], model.logits(hidden).shape[-1]
