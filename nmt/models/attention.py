"""Attention as one function of query, key and value, with four scores; the masks of every network.

Additive: Bahdanau, Cho, Bengio 2014 (arXiv 1409.0473); dot and bilinear: Luong, Pham, Manning 2015 (1508.04025); scaled dot:
Vaswani et al. 2017 (1706.03762).

Legend: ... any leading dimensions, T queries, S keys, d width. One convention for every mask: True = may be seen.
"""

import torch
from torch import Tensor


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
