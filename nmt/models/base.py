"""The protocol between networks and everything else: `encode`, `decode`, `start`, `step`, `logits`.

Legend: B sentences, S source positions, T target positions, R decoder rows (hypotheses), d width, V target vocabulary.

Nothing outside `models` knows which backend runs. A search sees hidden states, log-probabilities, `Memory` and `State`,
and moves rows with `select`. Decoder rows are sentence-major: with R = K·B rows, rows iK … iK+K-1 belong to memory row i,
so the memory is never copied for each hypothesis of a beam.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.limits import MOST_UNITS
from nmt.models import product


@dataclass(frozen=True)
class Settings:
    """Settings that every backend understands; a backend adds its own in its own file.

    `Annotated[type, help]` is the one description of a key: `train --list-options` and the type check read it.
    """

    layers: Annotated[int, "layers of the encoder and of the decoder"] = 6
    encoder_layers: Annotated[int | None, "layers of the encoder, where they differ from `layers`"] = None
    decoder_layers: Annotated[int | None, "layers of the decoder, where they differ from `layers`"] = None
    width: Annotated[int, "units of a layer (d)"] = 512
    dropout: Annotated[float, "share of activations dropped in training"] = 0.1
    tie_embeddings: Annotated[bool, "target embedding is the output matrix; the source's too, with one vocabulary"] = True
    start: Annotated[Literal["bos", "eos"], "the decoder starts from <s> or from </s>"] = "bos"

    def __post_init__(self) -> None:
        """Raises ValueError for a value that no network can have."""
        encoder_layers, decoder_layers = self.depths
        size("layers", self.layers)
        size("encoder_layers", encoder_layers)
        size("decoder_layers", decoder_layers)
        size("width", self.width)
        share("dropout", self.dropout)
        one_of(("bos", "eos"), "start", self.start)

    @property
    def depths(self) -> tuple[int, int]:
        """Layers of the encoder and of the decoder."""
        return (
            self.layers if self.encoder_layers is None else self.encoder_layers,
            self.layers if self.decoder_layers is None else self.decoder_layers,
        )


def size(name: str, value: int) -> None:
    """Raises ValueError for a number of units or layers below 1, or so large that torch could not even say that it is."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
    if value > MOST_UNITS:
        raise ValueError(f"{name} must be at most {MOST_UNITS:,}, not {value}")


def share(name: str, value: float) -> None:
    """Raises ValueError for a dropout outside 0 … 1, and for 1: it would drop everything."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and less than 1, not {value}")


def one_of(choices: Sequence[str], name: str, value: str) -> None:
    """Raises ValueError for a setting that is none of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def chosen(value: Any, index: Tensor) -> Any:
    """Rows `index` (N,) of a field of a `Batched`."""
    if isinstance(value, Tensor):
        return value.index_select(0, index)
    if isinstance(value, Batched):
        return value.select(index)
    if isinstance(value, list):
        return [chosen(item, index) for item in value]
    return value  # a number or a flag common to all rows


def _join(value: Any, other: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.cat([value, other])
    if isinstance(value, Batched):
        return value.join(other)
    if isinstance(value, list):
        return [_join(*pair) for pair in zip(value, other, strict=True)]
    return value


def fitted(value: Tensor, dim: int, size: int, fill: float = 0) -> Tensor:
    """`value` with `size` places in dimension `dim` < 0: the first of them, or all, and after them `fill`."""
    missing = size - value.shape[dim]
    if missing == 0:
        return value
    return value.narrow(dim, 0, size) if missing < 0 else F.pad(value, (0, 0) * (-dim - 1) + (0, missing), value=fill)


@dataclass
class Batched:
    """Tensors (or lists of them, or other `Batched`) whose dimension 0 is the batch."""

    def join(self, other: Self) -> Self:
        """The rows of self, then those of `other`."""
        return replace(self, **{field.name: _join(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)})

    def select(self, index: Tensor) -> Self:
        """Rows `index` (N,), in that order: repeat for the beam, reorder, shrink. The result shares no rows with self."""
        return replace(self, **{field.name: chosen(getattr(self, field.name), index) for field in fields(self)})


@dataclass
class Memory(Batched):
    """What the encoder leaves for the decoder, one row a sentence; constant while the sentence is translated.

    Memories of sources padded to other S can be joined.
    """


@dataclass
class State(Batched):
    """What the decoder remembers between steps, one row a hypothesis; only states after as many steps can be joined."""


class Seq2Seq(nn.Module, ABC):
    """A network that gives p(target | source) one token at a time."""

    start_token: int
    """The id before the first target token: BOS, or EOS if the settings say so."""
    source_unit: int = 1
    """Sources of any lengths may share a batch without touching each other's bits on a CPU, if S is a multiple of this."""

    @abstractmethod
    def encode(self, src: Tensor, src_lengths: Tensor) -> Memory:
        """src (B, S) ids ending in EOS, padded with PAD on the right; src_lengths (B,) counts EOS, each at least 1."""

    @abstractmethod
    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Teacher forcing: prefix (R, T) ids that begin with `start_token` -> hidden (R, T, d); position t sees prefix[:t+1]."""

    @abstractmethod
    def start(self, memory: Memory) -> State:
        """The state before the first step, one row a sentence."""

    @abstractmethod
    def step(self, token: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """token (R,) -> hidden (R, d) and the next state. `decode` one position at a time; `state` may not be used again."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """hidden (..., d) -> logits (..., V)."""

    @abstractmethod
    def attention(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Cross-attention weights (R, T, S) of `decode(prefix, memory)`; row t is used to predict the token after prefix[t].

        Raises ValueError where the network has no attention.
        """

    def log_probs(self, hidden: Tensor) -> Tensor:
        """hidden (..., d) -> normalised log-probabilities (..., V), float32 or wider."""
        logits = self.logits(hidden)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)

    def forward(self, src: Tensor, src_lengths: Tensor, prefix: Tensor) -> Tensor:
        return self.decode(prefix, self.encode(src, src_lengths))


def padded(model: Seq2Seq, length: int) -> int:
    """The positions that a source of so many, `</s>` counted, takes in a batch: whole units."""
    return -(-length // model.source_unit) * model.source_unit


def mixed_prefix(model: Seq2Seq, prefix: Tensor, memory: Memory, teacher_forcing: float, generator: torch.Generator) -> Tensor:
    """The decoder input (B, T) of scheduled sampling (Bengio et al. 2015, 1506.03099): at each position after the first, the
    token of `prefix` with probability `teacher_forcing`, else the model's most probable one after the mixed tokens so far.

    `decode` of it then gives as many positions as ever: an `</s>` that the model predicts is an input like any other. The
    prediction is a choice that has no gradient, so the pass that makes it needs none; any backend can be the model.
    """
    mixed = prefix.clone()
    forced = torch.rand(prefix.shape, generator=generator).to(prefix.device) < teacher_forcing
    with torch.no_grad():
        state = model.start(memory)
        for position in range(1, prefix.shape[1]):
            hidden, state = model.step(mixed[:, position - 1], state, memory)
            predicted = model.logits(hidden).argmax(-1)
            mixed[:, position] = torch.where(forced[:, position], prefix[:, position], predicted)
    return mixed


class Linear(nn.Linear):
    """A linear layer; on a CPU in evaluation no row of its output depends, to the last bit, on how many others there are."""

    def forward(self, input: Tensor) -> Tensor:
        alone = not self.training and input.device.type == "cpu"
        return (product.by_rows if alone else product.linear)(input, self.weight, self.bias)


def replace_linear(model: nn.Module, replacement: Callable[[Linear], nn.Module]) -> None:
    """Put what `replacement` makes of it in the place of each linear layer of `model` but those with one input or one output.

    These multiply no matrices; torch's integer product of one input is even wrong (2.13).
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Linear) and min(child.in_features, child.out_features) > 1:
                setattr(parent, name, replacement(child))


class Dropout(nn.Module):
    """In training each activation is 0 with probability `share`, and the others are scaled up to keep the mean.

    `F.dropout` on a CPU draws one number after another and costs as much as a layer's matrix products. Here every activation
    takes 16 bits of a stream of random words, a seventh of the time; `share` is met to 2⁻¹⁶, the scale is that of what is met.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.dropped = round(share * 2**16)  # of the 2^16 values of 16 bits

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.dropped == 0:
            return input
        if input.device.type != "cpu":
            return F.dropout(input, self.share)
        size = input.numel()
        words = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = words.view(torch.int16)[:size].view(input.shape) >= self.dropped - 2**15
        return input * kept.to(input.dtype).mul_(2**16 / (2**16 - self.dropped))

    def extra_repr(self) -> str:
        return f"share={self.share}"
