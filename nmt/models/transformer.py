"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017, arXiv 1706.03762), post-norm, with cached decoding.

Legend: B sentences, S source positions, T target positions, R = K·B decoder rows, d width, H heads, h = d/H, w what keys and values
are wide as they are kept (`laid_out`; else h), V vocabulary, L decoder layers, C positions a cache has room for.

The attention projections have no biases, as in the paper; on the keys it would change nothing (softmax ignores what all keys
share). Queries, keys and values of a layer are one matrix product; so are the memory's keys and values for all decoder layers.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.models import base
from nmt.models.attention import BLOCK, batched_product, causal_mask, laid_out, padding_mask
from nmt.models.base import Linear, fitted
from nmt.vocab import BOS, EOS, PAD


@dataclass(frozen=True)
class Settings(base.Settings):
    """Settings of the Transformer backend; the defaults are the paper's base model."""

    heads: Annotated[int, "attention heads; they share the width"] = 8
    feed_forward: Annotated[int, "inner units of the feed-forward sublayer"] = 2048
    attention_dropout: Annotated[float, "share of attention weights dropped in training; above 0 is slower"] = 0.0
    positions: Annotated[Literal["sinusoidal", "none"], "how the network knows the order of its input"] = "sinusoidal"

    def __post_init__(self) -> None:
        super().__post_init__()
        base.size("heads", self.heads)
        base.size("feed_forward", self.feed_forward)
        base.share("attention_dropout", self.attention_dropout)
        base.one_of(("sinusoidal", "none"), "positions", self.positions)
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be shared by {self.heads} heads; choose a multiple of the heads")
        if self.width % 2 and self.positions == "sinusoidal":
            raise ValueError(f"width {self.width} is odd; sinusoidal positions need an even one")


SIZES: dict[str, dict[str, object]] = {
    "tiny": {"layers": 4, "width": 128, "feed_forward": 256, "heads": 4, "dropout": 0.3},
    "small": {"layers": 6, "width": 512, "feed_forward": 1024, "heads": 4, "dropout": 0.3},
    "base": {"layers": 6, "width": 512, "feed_forward": 2048, "heads": 8, "dropout": 0.1},
    "big": {"layers": 6, "width": 1024, "feed_forward": 4096, "heads": 16, "dropout": 0.3},
}


def sinusoids(first: int, last: int, width: int) -> Tensor:
    """PE of positions first … last-1, (last-first, d): PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos of it (3.5).

    In float64 up to the last rounding: in float32 the angles of far positions have no digits left.
    """
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64, device="cpu") / width)
    angles = torch.arange(first, last, dtype=torch.float64, device="cpu").unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()


class Positions(nn.Module):
    """Sinusoids of any position; not part of a checkpoint."""

    READY = 1024  # kept in a table: enough for all but rare sentences
    table: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("table", sinusoids(0, self.READY, width), persistent=False)

    def forward(self, first: int, last: int) -> Tensor:
        """(last-first, d)."""
        return self.table[first:last] if last <= self.READY else sinusoids(first, last, self.width).to(self.table)


def _fused(x: Tensor, training: bool) -> bool:
    """Whether attention runs in torch's one kernel, which never stores the (T, S) weights.

    Not on a CPU in evaluation: there each thread works in buffers of its own, and few queries (1, 2, 3, 5 of them) are rounded
    otherwise in one thread than in another.
    """
    return training or x.device.type != "cpu"


def _bias(mask: Tensor | None, like: Tensor) -> Tensor:
    """What is added to scores so that the softmax of a key is exactly 0 where `mask` is False, and beside it others may be seen.

    Finite: a row of minus infinities has no softmax.
    """
    bias = like.new_zeros(1 if mask is None else mask.shape)
    return bias if mask is None else bias.masked_fill_(~mask, torch.finfo(like.dtype).min)


def _weights(query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
    """query (B, H, T, h), key (B, H, S, w), bias broadcast to (B·H, T, S) -> softmax(Q Kᵀ / √h + bias) (B·H, T, S)."""
    left, right = query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2)
    return batched_product(left, right, bias, query.shape[-1] ** -0.5).softmax(-1)


def _written_out(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    """Attention as two products and a softmax, (B, H, T, h). No bit of a sentence depends on its company."""
    read = batched_product(_weights(query, key, bias), value.flatten(0, 1))
    return fitted(read, -1, query.shape[-1]).view_as(query)


class Heads(nn.Module):
    """What self- and cross-attention share: splitting into heads, attending, joining and the output matrix."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.output = _xavier(Linear(width, width, bias=False))

    def split(self, x: Tensor) -> Tensor:
        """(B, T, H·n) -> (B, T, H, n)."""
        return x.view(*x.shape[:2], self.heads, -1)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool = False) -> Tensor:
        """query (B, H, T, h), key and value (B, H, S, w), mask as `Transformer._mask` gives it -> (B, H, T, h)."""
        if _fused(query, self.training):
            dropout = self.dropout if self.training else 0.0
            return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal=causal)
        if causal:
            mask = _bias(causal_mask(query.shape[2], query.device), query)
        return _written_out(
            query, laid_out(key), laid_out(value), _bias(None, query) if mask is None else mask.view(-1, *mask.shape[-2:])
        )

    def join(self, read: Tensor) -> Tensor:
        """(B, H, T, h) -> (B, T, d)."""
        output: Tensor = self.output(read.transpose(1, 2).flatten(2))
        return output


class SelfAttention(Heads):
    """Multi-head attention of a sequence to itself."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__(width, heads, dropout)
        # Rows are ordered head by head, each query, key, value: what a cache keeps of a position then lies side by side.
        self.inputs = _xavier(Linear(width, 3 * width, bias=False), blocks=3)

    def forward(self, x: Tensor, mask: Tensor | None, causal: bool = False) -> Tensor:
        """x (B, T, d) -> (B, T, d)."""
        query, key, value = (part.transpose(1, 2) for part in self.split(self.inputs(x)).chunk(3, -1))
        return self.join(self.attend(query, key, value, mask, causal))

    def step(self, x: Tensor, cache: Tensor, position: int, mask: Tensor | None) -> Tensor:
        """x (R, d) at `position`, which is written into cache (R, H, C, 2w); mask (1, C) of the positions so far -> (R, d)."""
        parts, size = self.inputs(x).view(len(x), self.heads, 3, -1), cache.shape[-1] // 2
        fused = fitted(parts, -1, size).view(len(x), self.heads, 1, -1)  # (R, H, 1, 3w): query, key, value, zeros after each
        cache[:, :, position : position + 1] = fused[..., size:]
        read = self.attend(fused[..., : parts.shape[-1]], cache[..., :size], cache[..., size:], mask)
        output: Tensor = self.output(read.reshape(x.shape))
        return output


class CrossAttention(Heads):
    """Multi-head attention to the memory; all K hypotheses of a sentence are queries to the same keys and values."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__(width, heads, dropout)
        self.query = _xavier(Linear(width, width, bias=False))

    def project(self, x: Tensor, sentences: int) -> Tensor:
        """x (R, T, d) or (R, d) -> query (B, H, K·T, h)."""
        return self.split(self.query(x).view(sentences, -1, x.shape[-1])).transpose(1, 2)

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """x (R, T, d) or (R, d), key and value (B, H, S, w) -> the same shape."""
        return self.join(self.attend(self.project(x, len(key)), key, value, mask)).view_as(x)

    def weights(self, x: Tensor, key: Tensor, real: Tensor) -> Tensor:
        """x (R, T, d), key (B, H, S, w), real (B, S) -> (R, T, S), the mean of the heads."""
        bias = _bias(real, x).repeat_interleave(self.heads, 0).unsqueeze(1)
        heads = _weights(self.project(x, len(key)), key, bias).view(*key.shape[:2], -1, key.shape[2])
        return heads.mean(1).view(*x.shape[:2], -1)


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (3.3)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.inner = _xavier(Linear(width, inner))
        self.outer = _xavier(Linear(inner, width))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.outer(torch.relu(self.inner(x)))
        return output


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))) (5.4)."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = base.Dropout(dropout)

    def forward(self, x: Tensor, change: Tensor) -> Tensor:
        """x and the sublayer's output (..., d) -> (..., d)."""
        output: Tensor = self.norm(x + self.dropout(change))
        return output


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.attention = SelfAttention(settings.width, settings.heads, settings.attention_dropout)
        self.after_attention = Residual(settings.width, settings.dropout)
        self.feed_forward = FeedForward(settings.width, settings.feed_forward)
        self.after_feed_forward = Residual(settings.width, settings.dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x (B, S, d), mask (B, H, 1, S) -> (B, S, d)."""
        x = self.after_attention(x, self.attention(x, mask))
        output: Tensor = self.after_feed_forward(x, self.feed_forward(x))
        return output


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and feed-forward."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.attention = SelfAttention(settings.width, settings.heads, settings.attention_dropout)
        self.after_attention = Residual(settings.width, settings.dropout)
        self.cross = CrossAttention(settings.width, settings.heads, settings.attention_dropout)
        self.after_cross = Residual(settings.width, settings.dropout)
        self.feed_forward = FeedForward(settings.width, settings.feed_forward)
        self.after_feed_forward = Residual(settings.width, settings.dropout)

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """All positions: x (R, T, d); key and value (B, H, S, w) and mask (B, H, 1, S) of the memory -> (R, T, d)."""
        return self._read(self._reflect(x), key, value, mask)

    def step(
        self, x: Tensor, cache: Tensor, position: int, past: Tensor | None, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> Tensor:
        """One position: x (R, d) -> (R, d); the earlier ones are in cache (R, H, C, 2w), where `past` (1, C) is their mask."""
        return self._read(self.after_attention(x, self.attention.step(x, cache, position, past)), key, value, mask)

    def weights(self, x: Tensor, key: Tensor, real: Tensor) -> Tensor:
        """Where `forward` looks in the memory: (R, T, S)."""
        return self.cross.weights(self._reflect(x), key, real)

    def _reflect(self, x: Tensor) -> Tensor:
        # The prefix is padded on the right: a real position sees only earlier ones, all real, and nobody uses the others' output.
        output: Tensor = self.after_attention(x, self.attention(x, None, causal=True))
        return output

    def _read(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        x = self.after_cross(x, self.cross(x, key, value, mask))
        output: Tensor = self.after_feed_forward(x, self.feed_forward(x))
        return output


@dataclass
class Memory(base.Memory):
    """The encoder's output as the decoder layers read it."""

    keys: list[Tensor]
    """(B, H, S, w) for each decoder layer."""
    values: list[Tensor]
    """(B, H, S, w) for each decoder layer."""
    real: Tensor
    """Bool (B, S): no padding."""
    mask: Tensor | None
    """(B, H, 1, S): the same as attention takes it; None where nothing is padded."""

    def join(self, other: Self) -> Self:
        """S is what the longest source needs, in whole blocks."""
        longest = max(int(each.real.sum(1).max()) for each in (self, other))
        size = -(-longest // BLOCK) * BLOCK
        return super(Memory, self._fitted(size)).join(other._fitted(size))

    def _fitted(self, size: int) -> Self:
        keys, values = ([fitted(each, -2, size) for each in part] for part in (self.keys, self.values))
        hidden = 0 if self.mask is None or self.mask.dtype == torch.bool else torch.finfo(self.mask.dtype).min
        mask = None if self.mask is None else fitted(self.mask, -1, size, hidden)
        return replace(self, keys=keys, values=values, real=fitted(self.real, -1, size), mask=mask)


@dataclass
class State(base.State):
    """Keys and values of the positions so far, side by side."""

    caches: list[Tensor]
    """(R, H, C, 2w) for each decoder layer; what stands at `position` and after is finite, and without meaning."""
    position: int


class Transformer(base.Seq2Seq):
    """The Transformer backend."""

    source_unit = BLOCK

    def __init__(self, settings: Settings, src_vocab: int, tgt_vocab: int, shared_vocab: bool) -> None:
        super().__init__()
        self.start_token = EOS if settings.start == "eos" else BOS
        self.scale = math.sqrt(settings.width)
        width = settings.width
        self.src_embedding = _embedding(src_vocab, width)
        self.tgt_embedding = _embedding(tgt_vocab, width)
        self.output = Linear(width, tgt_vocab, bias=False)
        nn.init.normal_(self.output.weight, std=width**-0.5)
        if settings.tie_embeddings:
            self.output.weight = self.tgt_embedding.weight
            if shared_vocab:
                self.src_embedding.weight = self.tgt_embedding.weight
        self.positions = Positions(width) if settings.positions == "sinusoidal" else None
        self.dropout = base.Dropout(settings.dropout)
        encoder_layers, decoder_layers = settings.depths
        self.encoder = nn.ModuleList(EncoderLayer(settings) for _ in range(encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(settings) for _ in range(decoder_layers))
        _soften(self.encoder)
        _soften(self.decoder)
        # Layer by layer, keys then values.
        self.memory = _xavier(Linear(width, decoder_layers * 2 * width, bias=False), blocks=2 * decoder_layers)
        self.heads = settings.heads

    def encode(self, src: Tensor, src_lengths: Tensor) -> Memory:
        size = src.shape[1]
        real = padding_mask(src_lengths, size)
        x = self._embed(self.src_embedding(src), 0, size)
        mask = self._mask(real[:, None, None].expand(-1, self.heads, -1, -1), x)
        for layer in self.encoder:
            x = layer(x, mask)
        parts = self.memory(x).chunk(2 * len(self.decoder), -1)
        heads = [part.view(len(src), size, self.heads, -1).transpose(1, 2) for part in parts]
        if not self.training:  # each step reads them, so they are laid out for it once
            heads = [laid_out(part).contiguous() for part in heads]
        return Memory(heads[::2], heads[1::2], real, mask)

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:  # type: ignore[override]  # of our own encode
        x = self._embed(self.tgt_embedding(prefix), 0, prefix.shape[1])
        for layer, key, value in zip(self.decoder, memory.keys, memory.values, strict=True):
            x = layer(x, key, value, memory.mask)
        return x

    def start(self, memory: Memory) -> State:  # type: ignore[override]  # of our own encode
        rows, heads, _, size = memory.keys[0].shape
        return State([key.new_zeros(rows, heads, BLOCK, 2 * size) for key in memory.keys], 0)

    def step(self, token: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:  # type: ignore[override]  # of our own
        position, caches = state.position, state.caches
        if position == caches[0].shape[2]:
            caches = [F.pad(cache, (0, 0, 0, BLOCK)) for cache in caches]
        x = self._embed(self.tgt_embedding(token), position, 1)
        past = self._mask((torch.arange(caches[0].shape[2], device=x.device) <= position).unsqueeze(0), x)
        for layer, cache, key, value in zip(self.decoder, caches, memory.keys, memory.values, strict=True):
            x = layer.step(x, cache, position, past, key, value, memory.mask)  # type: ignore[operator]  # a ModuleList forgets its type
        return x, State(caches, position + 1)

    def logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.output(hidden)
        return logits

    def attention(self, prefix: Tensor, memory: Memory) -> Tensor:  # type: ignore[override]  # of our own encode
        """The mean of the heads of the last layer but one, which aligns best (Garg et al. 2019, arXiv 1909.02074)."""
        chosen = max(len(self.decoder) - 2, 0)
        x = self._embed(self.tgt_embedding(prefix), 0, prefix.shape[1])
        for layer, key, value in zip(self.decoder[:chosen], memory.keys, memory.values, strict=False):
            x = layer(x, key, value, memory.mask)
        weights: Tensor = self.decoder[chosen].weights(x, memory.keys[chosen], memory.real)  # type: ignore[operator]  # as in `step`
        return weights

    def _mask(self, seen: Tensor, x: Tensor) -> Tensor | None:
        """`seen`, True = may be seen, as `Heads.attend` takes it."""
        if not _fused(x, self.training):
            return _bias(seen, x)
        # Without a mask the kernel is faster, but only a CPU can be asked without waiting for it.
        return None if seen.device.type == "cpu" and bool(seen.all()) else seen

    def _embed(self, embedded: Tensor, first: int, size: int) -> Tensor:
        """Word vectors (B, T, d) of `size` positions from `first` on, or (B, d) of one -> what the first layer reads (3.4, 3.5)."""
        x = embedded * self.scale
        if self.positions is not None:
            x = x + self.positions(first, first + size)
        output: Tensor = self.dropout(x)
        return output


def _embedding(vocabulary: int, width: int) -> nn.Embedding:
    embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    nn.init.zeros_(embedding.weight[PAD])
    return embedding


def _soften(stack: nn.ModuleList) -> None:
    """Let each of a stack's n sublayers add 1/√n of what it would (Radford et al. 2019, GPT-2, 2.3), to begin with.

    Then the words themselves reach the end of a post-norm stack, and cross-attention has something to tell apart: on Multi30k the
    nll after 1,000 updates is 2.9 with this, and 3.9, that of a language model that hardly looks at the source, without.
    """
    outputs = [part for name, part in stack.named_modules() if name.rpartition(".")[2] in ("output", "outer")]
    with torch.no_grad():
        for output in outputs:
            output.weight.mul_(len(outputs) ** -0.5)


def _xavier(linear: Linear, blocks: int = 1) -> Linear:
    """Xavier's uniform distribution, for each of the `blocks` matrices that are fused in one; biases zero."""
    bound = math.sqrt(6 / (linear.in_features + linear.out_features // blocks))
    nn.init.uniform_(linear.weight, -bound, bound)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear
