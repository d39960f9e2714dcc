"""A network without its cache: each step decodes the whole prefix anew, at a cost that grows with it.

Legend: B sentences, T target positions so far, R = K·B decoder rows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.models import base
from nmt.models.base import Seq2Seq


@dataclass
class Memory(base.Memory):
    """The network's own memory, and from what a prefix grows."""

    inner: base.Memory
    empty: Tensor
    """Ids (B, 0)."""


@dataclass
class State(base.State):
    """The prefix itself."""

    prefix: Tensor
    """Ids (R, T)."""


class Uncached(Seq2Seq):
    """Gives what `model` gives, to rounding; only the cost of `step` differs."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model
        self.start_token = model.start_token
        self.source_unit = model.source_unit

    def encode(self, src: Tensor, src_lengths: Tensor) -> Memory:
        return Memory(self.model.encode(src, src_lengths), src[:, :0])

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:  # type: ignore[override]  # of our own encode
        return self.model.decode(prefix, memory.inner)

    def start(self, memory: Memory) -> State:  # type: ignore[override]  # of our own encode
        return State(memory.empty)

    def step(self, token: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:  # type: ignore[override]  # of our own
        prefix = torch.cat([state.prefix, token.unsqueeze(1)], 1)
        return self.model.decode(prefix, memory.inner)[:, -1], State(prefix)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.model.logits(hidden)

    def log_probs(self, hidden: Tensor) -> Tensor:
        return self.model.log_probs(hidden)

    def attention(self, prefix: Tensor, memory: Memory) -> Tensor:  # type: ignore[override]  # of our own encode
        return self.model.attention(prefix, memory.inner)
