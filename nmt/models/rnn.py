"""Recurrent encoder-decoder, with attention (Bahdanau, Cho, Bengio 2014, arXiv 1409.0473) or without (Sutskever, Vinyals, Le
2014, 1409.3215; Cho et al. 2014, 1406.1078).

Legend: B sentences, S source positions, T target positions, R = K·B decoder rows, d width, e embedding, c width of an encoder
state (d for each direction), G gates of a cell, P parts of its state (LSTM: output and memory cell, others: output), V vocabulary.

The attention decoder is the paper's but for this: the gated unit is torch's (the reset gate acts after the product); the output
layer is `tanh` of one linear layer of s_t, E y_{t-1} and c_t, as wide as the embedding so that the output matrix can be tied to
it, in place of a maxout of pairs. Of several layers the first attends and the others stand on it, as in GNMT (1609.08144): what
the last state cannot change is then computed for all steps at once.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

import torch
from torch import Tensor, nn

from nmt.models import base, steps
from nmt.models.activation import tanh
from nmt.models.attention import BLOCK, SCORES, attend, batched_product, laid_out, padding_mask
from nmt.models.base import Linear, fitted
from nmt.models.recurrent import CELLS, Recurrent, orthogonal
from nmt.vocab import BOS, EOS


@dataclass(frozen=True)
class Settings(base.Settings):
    """Settings of the recurrent backend."""

    layers: Annotated[int, "layers of the encoder and of the decoder"] = 1
    width: Annotated[int, "units of a layer (d), in each direction"] = 512
    dropout: Annotated[float, "share of activations dropped in training"] = 0.2
    embedding: Annotated[int, "size of the word vectors"] = 256
    cell: Annotated[Literal["rnn", "gru", "lstm"], "the recurrent unit"] = "gru"
    bidirectional: Annotated[bool, "the encoder reads in both directions"] = True
    initial_state: Annotated[Literal["zero", "learned"], "what the encoder starts from"] = "zero"
    attention: Annotated[Literal["additive", "dot", "bilinear", "scaled-dot", "none"], "the score of the attention"] = "additive"
    context: Annotated[Literal["initial", "every-step"], "without attention: where the decoder sees the source"] = "every-step"

    def __post_init__(self) -> None:
        super().__post_init__()
        base.size("embedding", self.embedding)


SIZES: dict[str, dict[str, object]] = {
    "tiny": {"layers": 1, "width": 256, "embedding": 256, "dropout": 0.3},
    "small": {"layers": 1, "width": 512, "embedding": 256, "dropout": 0.2},
    "base": {"layers": 1, "width": 1000, "embedding": 620, "dropout": 0.0},  # the paper's
    "big": {"layers": 2, "width": 1024, "embedding": 512, "dropout": 0.2},
}


class Encoder(nn.Module):
    """Reads the source in one or two directions."""

    def __init__(self, settings: Settings, layers: int) -> None:
        super().__init__()
        cell = CELLS[settings.cell]
        directions = 1 + settings.bidirectional
        self.recurrent = Recurrent(cell, settings.embedding, settings.width, layers, settings.bidirectional, settings.dropout)
        self.directions = directions
        initial = torch.zeros(layers * directions, cell.parts, settings.width)
        if settings.initial_state == "learned":
            self.initial = nn.Parameter(initial)
        else:
            self.register_buffer("initial", initial, persistent=False)

    def forward(self, embedded: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """embedded (B, S, e) -> states (B, S, c), h_j = [→h_j ; ←h_j], and the last of each direction (B, c), [→h_S ; ←h_1]."""
        state = self.initial.expand(len(embedded), -1, -1, -1)
        states, last = self.recurrent.padded(embedded, lengths, state)
        return states, last[:, -self.directions :, 0].flatten(1)


@dataclass
class Memory(base.Memory):
    """What every decoder keeps of the source."""

    context: Tensor
    """(B, ·): what the first state is made of."""


@dataclass
class AttentionMemory(Memory):
    """All encoder states, in the two forms in which the decoder reads them."""

    keys: Tensor
    """(B, S, n): `Score.prepare` of the states."""
    values: Tensor
    """(B, S, Gd + e, or more: `laid_out`): the states times every matrix that reads c_t."""
    mask: Tensor
    """Bool (B, 1, S): real positions."""

    def join(self, other: Self) -> Self:
        size = max(self.mask.shape[-1], other.mask.shape[-1])
        return super(AttentionMemory, self._fitted(size)).join(other._fitted(size))

    def _fitted(self, size: int) -> Self:
        keys, values = (fitted(each, -2, size) for each in (self.keys, self.values))
        return replace(self, keys=keys, values=values, mask=fitted(self.mask, -1, size))


@dataclass
class State(base.State):
    """What the decoder remembers of a hypothesis."""

    layers: Tensor
    """(R, layers, P, d)."""


M = TypeVar("M", bound=Memory)


class Decoder(nn.Module, ABC, Generic[M]):
    """Makes hidden states of word vectors and a memory."""

    def __init__(self, settings: Settings, layers: int, context: int) -> None:
        super().__init__()
        self.cell = CELLS[settings.cell]
        self.shape = (layers, self.cell.parts, settings.width)
        self.begin = Linear(context, layers * self.cell.parts * settings.width)

    def start(self, memory: M) -> Tensor:
        """(B, layers, P, d): s_0 = tanh(W context)."""
        return tanh(self.begin(memory.context)).view(-1, *self.shape)

    @abstractmethod
    def remember(self, states: Tensor, last: Tensor, lengths: Tensor) -> M:
        """What the encoder gives -> what this decoder needs of it."""

    @abstractmethod
    def run(self, embedded: Tensor, state: Tensor, memory: M) -> tuple[Tensor, Tensor]:
        """embedded (R, T, e), state (R, layers, P, d) before -> hidden (R, T, e), state after. One step is T = 1."""

    @abstractmethod
    def weights(self, embedded: Tensor, state: Tensor, memory: M) -> Tensor:
        """The attention (R, T, S) of `run`. Raises ValueError where there is none."""


class ContextDecoder(Decoder[Memory]):
    """Without attention: the source is one vector, the encoder's last state, seen in s_0 only or at each step as well."""

    def __init__(self, settings: Settings, layers: int, states: int) -> None:
        super().__init__(settings, layers, context=states)
        self.every_step = settings.context == "every-step"
        context = states if self.every_step else 0
        self.recurrent = Recurrent(self.cell, settings.embedding + context, settings.width, layers, False, settings.dropout)
        self.readout = Linear(settings.width + settings.embedding + context, settings.embedding)

    def remember(self, states: Tensor, last: Tensor, lengths: Tensor) -> Memory:
        return Memory(context=last)

    def run(self, embedded: Tensor, state: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        inputs = embedded
        if self.every_step:
            context = memory.context.repeat_interleave(len(embedded) // len(memory.context), 0)
            inputs = torch.cat([embedded, context.unsqueeze(1).expand(-1, embedded.shape[1], -1)], -1)
        outputs, state = self.recurrent(inputs, state)
        return tanh(self.readout(torch.cat([outputs, inputs], -1))), state

    def weights(self, embedded: Tensor, state: Tensor, memory: Memory) -> Tensor:
        raise ValueError("the model has no attention (attention = none)")


class AttentionDecoder(Decoder[AttentionMemory]):
    """Looks at all encoder states anew at each step. c_t is never formed: all that reads it is linear in it, so the states go
    through those matrices once a sentence and the weighted sum is taken of what comes out.
    """

    def __init__(self, settings: Settings, layers: int, states: int) -> None:
        super().__init__(settings, layers, context=settings.width)
        width, embedding, gates = settings.width, settings.embedding, self.cell.gates * settings.width
        # A dot product needs keys of the state's width, so the two directions are added up.
        self.adds_directions = settings.attention in ("dot", "scaled-dot")
        self.score = SCORES[settings.attention](width, width if self.adds_directions else states)
        self.values = Linear(states, gates + embedding, bias=False)
        self.inputs = Linear(embedding, gates)
        self.hidden = Linear(width, gates)
        orthogonal(self.hidden.weight, width)
        self.upper = Recurrent(self.cell, width, width, layers - 1, False, settings.dropout) if layers > 1 else None
        self.dropout = base.Dropout(settings.dropout)
        self.readout = Linear(width + embedding, embedding)

    def remember(self, states: Tensor, last: Tensor, lengths: Tensor) -> AttentionMemory:
        width = self.shape[-1]
        keys = states.view(*states.shape[:2], -1, width).sum(-2) if self.adds_directions else states
        return AttentionMemory(
            context=last[:, -width:],  # ←h_1, or →h_S where there is one direction
            keys=self.score.prepare(keys),
            values=laid_out(self.values(states)),
            mask=padding_mask(lengths, states.shape[1]).unsqueeze(1),
        )

    def _attending_layer(self, embedded: Tensor, state: Tensor, memory: AttentionMemory) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """state (R, P, d) -> s (R, T, d), the readout's share of c (R, T, e), weights (R, T, S), state after the last."""
        width = self.shape[-1]
        shares = [self.cell.gates * width, embedded.shape[-1]]
        sentences = len(memory.keys)
        size = embedded.shape[1]
        scores = self.score.over(memory.keys, size)
        read = steps.batched(batched_product, memory.values, size)
        hidden = steps.linear(self.hidden, size)
        parts = state.unbind(1)
        outputs, contexts, weights = [], [], []
        for inputs in self.inputs(embedded.transpose(0, 1)).unbind(0):
            query = parts[0].reshape(sentences, -1, width)  # (B, K, d): K hypotheses are K queries
            context, weight = attend(scores, query, read, memory.mask)
            to_gates, to_readout = torch.split(fitted(context, -1, sum(shares)).flatten(0, 1), shares, -1)
            parts = self.cell.advance(inputs + to_gates, hidden(parts[0]), parts)
            outputs.append(parts[0])
            contexts.append(to_readout)
            weights.append(weight.flatten(0, 1))
        return torch.stack(outputs, 1), torch.stack(contexts, 1), torch.stack(weights, 1), torch.stack(parts, 1)

    def run(self, embedded: Tensor, state: Tensor, memory: AttentionMemory) -> tuple[Tensor, Tensor]:
        outputs, contexts, _, first = self._attending_layer(embedded, state[:, 0], memory)
        after = first.unsqueeze(1)
        if self.upper is not None:
            outputs, upper = self.upper(self.dropout(outputs), state[:, 1:])
            after = torch.cat([after, upper], 1)
        return tanh(self.readout(torch.cat([outputs, embedded], -1)) + contexts), after

    def weights(self, embedded: Tensor, state: Tensor, memory: AttentionMemory) -> Tensor:
        return self._attending_layer(embedded, state[:, 0], memory)[2]


class Rnn(base.Seq2Seq):
    """The recurrent backend. `hidden` is e wide: what the output matrix reads."""

    source_unit = BLOCK

    def __init__(self, settings: Settings, src_vocab: int, tgt_vocab: int, shared_vocab: bool) -> None:
        super().__init__()
        self.start_token = EOS if settings.start == "eos" else BOS
        encoder_layers, decoder_layers = settings.depths
        self.src_embedding = nn.Embedding(src_vocab, settings.embedding)
        self.tgt_embedding = nn.Embedding(tgt_vocab, settings.embedding)
        self.output = Linear(settings.embedding, tgt_vocab)
        nn.init.normal_(self.src_embedding.weight, std=settings.embedding**-0.5)
        nn.init.normal_(self.tgt_embedding.weight, std=settings.embedding**-0.5)
        nn.init.zeros_(self.output.bias)
        if settings.tie_embeddings:
            self.output.weight = self.tgt_embedding.weight
            if shared_vocab:
                self.src_embedding.weight = self.tgt_embedding.weight
        self.dropout = base.Dropout(settings.dropout)
        self.encoder = Encoder(settings, encoder_layers)
        states = settings.width * self.encoder.directions
        decoder = ContextDecoder if settings.attention == "none" else AttentionDecoder
        self.decoder: Decoder[Any] = decoder(settings, decoder_layers, states)

    def encode(self, src: Tensor, src_lengths: Tensor) -> Memory:
        states, last = self.encoder(self.dropout(self.src_embedding(src)), src_lengths)
        memory: Memory = self.decoder.remember(states, last, src_lengths)
        return memory

    def _begin(self, prefix: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        state = self.decoder.start(memory).repeat_interleave(len(prefix) // len(memory.context), 0)
        return self.dropout(self.tgt_embedding(prefix)), state

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:  # type: ignore[override]  # of our own encode
        embedded, state = self._begin(prefix, memory)
        hidden, _ = self.decoder.run(embedded, state, memory)
        return self.dropout(hidden)  # type: ignore[no-any-return]

    def start(self, memory: Memory) -> State:  # type: ignore[override]  # of our own encode
        return State(self.decoder.start(memory))

    def step(self, token: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:  # type: ignore[override]  # of our own encode
        embedded = self.dropout(self.tgt_embedding(token)).unsqueeze(1)
        hidden, layers = self.decoder.run(embedded, state.layers, memory)
        return self.dropout(hidden.squeeze(1)), State(layers)

    def logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.output(hidden)
        return logits

    def attention(self, prefix: Tensor, memory: Memory) -> Tensor:  # type: ignore[override]  # of our own encode
        embedded, state = self._begin(prefix, memory)
        return self.decoder.weights(embedded, state, memory)
