"""The networks behind one protocol (`models.base`): a new backend is one file and one line of `BACKENDS`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nmt.models import rnn, transformer
from nmt.models.base import Seq2Seq, Settings


@dataclass(frozen=True)
class Backend:
    """What a backend's file exports."""

    settings: type[Settings]
    sizes: dict[str, dict[str, object]]
    """`--size` -> settings that differ from the defaults."""
    network: Callable[[Any, int, int, bool], Seq2Seq]
    """Of settings, source vocabulary, target vocabulary, and whether they are one."""
    compiles: bool
    """Whether `torch.compile` makes one program of it for all lengths; of a loop over positions it makes one for each length."""


BACKENDS = {
    "transformer": Backend(transformer.Settings, transformer.SIZES, transformer.Transformer, compiles=True),
    "rnn": Backend(rnn.Settings, rnn.SIZES, rnn.Rnn, compiles=False),
}


def build(backend: str, settings: Settings, src_vocab: int, tgt_vocab: int, shared_vocab: bool) -> Seq2Seq:
    """A new network, its parameters drawn from torch's global generator.

    Raises ValueError where `shared_vocab` and the sizes of the two vocabularies contradict each other.
    """
    if shared_vocab and src_vocab != tgt_vocab:
        raise ValueError(f"one vocabulary for both sides cannot have {src_vocab} and {tgt_vocab} entries")
    return BACKENDS[backend].network(settings, src_vocab, tgt_vocab, shared_vocab)
