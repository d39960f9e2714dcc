"""Attention as one function of query, key and value, with four scores; the masks of every network.

Additive: Bahdanau, Cho, Bengio 2014 (arXiv 1409.0473); dot and bilinear: Luong, Pham, Manning 2015 (1508.04025); scaled dot:
Vaswani et al. 2017 (1706.03762).

Legend: B sentences, ... any leading dimensions, T queries, S keys, q k v widths of a query, a key, a value. One convention for
every mask: True = may be seen.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt.models.activation import tanh
from nmt.models.base import Linear, fitted
from nmt.models.steps import batched, linear


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """lengths (B,) -> bool (B, size): True on the first `lengths[i]` positions of row i, the real ones."""
    return torch.arange(size, device=lengths.device) < lengths.unsqueeze(-1)


def causal_mask(size: int, device: torch.device) -> Tensor:
    """Bool (size, size): query t (row) may see keys 0 … t (columns)."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """scores (..., T, S) -> weights that sum to 1 over the keys that `mask`, broadcast, lets be seen; 0 elsewhere.

    A row that may see nothing is 0 everywhere, never NaN: the fill is finite (minus infinity alone in a row has no softmax) and
    of the scores' own type (-1e9 is infinite in float16).
    """
    hidden = ~mask
    return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(hidden, 0)


BLOCK = 16
"""Of so many positions each are sources and caches in translation: attention runs over whole blocks, hidden positions too.

Kernels take 16 numbers at a time, and what is left over one by one, which costs five times as much. A whole block of hidden ones
adds zeros to sums and changes no bit of them.
"""
NARROWEST = 28
"""torch multiplies small matrices (n · k · m < 400) of a batch by itself, and others in MKL, which rounds otherwise. One query of
at least this width makes one of the others with a block of keys, however many blocks there are."""
ALIGNED = 4
"""MKL rounds by whether a row begins at whole 16 bytes, which for other widths depends on the rows before it."""


def laid_out(vectors: Tensor) -> Tensor:
    """Keys or values (..., n) as they are kept for translation on a CPU: with zeros after the n numbers, where that lets each
    sentence's products run in one kernel whatever its company.
    """
    if torch.is_grad_enabled() or vectors.device.type != "cpu":
        return vectors
    size = vectors.shape[-1]
    return fitted(vectors, -1, max(NARROWEST, size + -size % ALIGNED))


def batched_product(left: Tensor, right: Tensor, bias: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """left (B, T, n) times right (B, n, S), times `scale` and with `bias` added where there is one; each pair's result is the same
    to the last bit whatever B, if keys and values are `laid_out` and positions come in whole blocks.

    left is filled up to right's n. A batch of one runs in another kernel than all others and rounds otherwise, so it is made two.
    """
    left = fitted(left, -1, right.shape[1])
    alone = len(left) == 1
    if alone:
        left, right = left.expand(2, -1, -1), right.expand(2, -1, -1)
    product = left @ right if bias is None else torch.baddbmm(bias, left, right, alpha=scale)
    return product[:1] if alone else product


class Score(nn.Module, ABC):
    """How well a query fits each key, in two parts so that what depends on the keys alone is computed once a sentence."""

    def __init__(self, query_width: int, key_width: int) -> None:
        """Raises ValueError where the score cannot compare the two widths."""
        super().__init__()

    @abstractmethod
    def prepare(self, key: Tensor) -> Tensor:
        """key (B, S, k) -> what `forward` needs of it (B, S, n)."""

    @abstractmethod
    def over(self, prepared: Tensor, steps: int) -> Callable[[Tensor], Tensor]:
        """`prepare(key)` -> what makes scores (B, T, S) of queries (B, T, q), for each step of a loop of so many."""


class Additive(Score):
    """`vᵀ tanh(query W + key U)`, as wide inside as the query (Bahdanau 2014, A.1.2)."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__(query_width, key_width)
        self.query = Linear(query_width, query_width, bias=False)
        self.key = Linear(key_width, query_width, bias=False)
        self.vector = Linear(query_width, 1, bias=False)

    def prepare(self, key: Tensor) -> Tensor:
        prepared: Tensor = self.key(key)
        return prepared

    def over(self, prepared: Tensor, steps: int) -> Callable[[Tensor], Tensor]:
        asked, keys = linear(self.query, steps), prepared.unsqueeze(1)

        def scores(query: Tensor) -> Tensor:
            compared: Tensor = self.vector(tanh(asked(query).unsqueeze(2) + keys))  # (B, T, S, 1)
            return compared.squeeze(-1)

        return scores


class Dot(Score):
    """`query · key`, of one width (Luong 2015, "dot")."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__(query_width, key_width)
        if query_width != key_width:
            raise ValueError(f"a dot product of a query of width {query_width} and a key of width {key_width}")

    def prepare(self, key: Tensor) -> Tensor:
        return laid_out(key)

    def over(self, prepared: Tensor, steps: int) -> Callable[[Tensor], Tensor]:
        return batched(batched_product, prepared.transpose(1, 2), steps)


class Bilinear(Score):
    """`query W keyᵀ` (Luong 2015, "general")."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__(query_width, key_width)
        self.key = Linear(key_width, query_width, bias=False)

    def prepare(self, key: Tensor) -> Tensor:
        return laid_out(self.key(key))

    def over(self, prepared: Tensor, steps: int) -> Callable[[Tensor], Tensor]:
        return batched(batched_product, prepared.transpose(1, 2), steps)


class ScaledDot(Dot):
    """`query · key / √k`: entries of variance 1 give scores of variance 1, whatever the width (Vaswani 2017, 3.2.1)."""

    def prepare(self, key: Tensor) -> Tensor:
        return laid_out(key / math.sqrt(key.shape[-1]))


SCORES: dict[str, type[Score]] = {"additive": Additive, "dot": Dot, "bilinear": Bilinear, "scaled-dot": ScaledDot}


def attend(
    scores: Callable[[Tensor], Tensor], query: Tensor, read: Callable[[Tensor], Tensor], mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Attention: (output (B, T, v), weights (B, T, S)).

    scores as of `Score.over`; query (B, T, q); read multiplies weights by values (B, S, v); mask broadcast to (B, T, S). Each row
    of weights sums to 1 over the keys it may see; a query that may see none gets output 0.
    """
    weights = masked_softmax(scores(query), mask)
    return read(weights), weights
