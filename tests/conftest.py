"""Small networks of every backend, and ids for them.

Legend: B sentences, S source positions, T target positions, R decoder rows.
"""

import signal
from collections.abc import Callable, Sequence

import hypothesis
import pytest
import torch
from torch import Tensor

from nmt.models import BACKENDS, build
from nmt.models.base import Seq2Seq
from nmt.vocab import EOS, PAD

VOCABULARY = 29

# How long an example takes says more of what else the machine does than of the code.
hypothesis.settings.register_profile("nmt", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("nmt")

# A shell has the jobs that it starts in the background ignore Ctrl-C, which tests send to themselves and to programs they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

Network = Callable[..., Seq2Seq]
"""Settings by name -> a network in evaluation mode, two layers, width 32, the same weights each time."""


def network(
    backend: str,
    /,
    src_vocab: int = VOCABULARY,
    tgt_vocab: int = VOCABULARY,
    shared: bool = True,
    seed: int = 0,
    **settings: object,
) -> Seq2Seq:
    torch.manual_seed(seed)
    chosen = BACKENDS[backend].settings(**{"layers": 2, "width": 32, "dropout": 0.0, **settings})
    return build(backend, chosen, src_vocab, tgt_vocab, shared).eval()


@pytest.fixture(params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    """The name of each backend in turn."""
    name: str = request.param
    return name


@pytest.fixture
def model(backend: str) -> Seq2Seq:
    """A small network of each backend in turn, dropout 0."""
    return network(backend)


ODD: list[tuple[str, dict[str, object]]] = [
    ("transformer", {"width": 50, "heads": 5}),
    ("transformer", {"width": 30, "heads": 6}),
    ("transformer", {"width": 62, "heads": 2}),
    ("rnn", {"width": 33, "embedding": 20}),
    ("rnn", {"width": 50, "embedding": 5, "cell": "lstm"}),
    ("rnn", {"width": 33, "embedding": 50, "attention": "bilinear"}),
    ("rnn", {"width": 35, "embedding": 9, "attention": "dot", "cell": "rnn"}),
    ("rnn", {"width": 16, "embedding": 16, "attention": "scaled-dot"}),
    ("rnn", {"width": 5, "embedding": 3, "attention": "dot"}),
]
"""Networks whose attention has rows that begin at no whole 16 bytes, or small products for short sources only."""


@pytest.fixture(params=ODD, ids=lambda each: "-".join([each[0], *map(str, each[1].values())]))
def odd(request: pytest.FixtureRequest) -> Seq2Seq:
    """A network of each of these shapes in turn."""
    backend, settings = request.param
    return network(backend, **settings)


def sources(lengths: Sequence[int], vocabulary: int = VOCABULARY, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Random src (B, S) of these lengths, EOS counted, and src_lengths (B,)."""
    generator = torch.Generator().manual_seed(seed)
    src = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(src, lengths, strict=True):
        row[:length] = torch.randint(EOS + 1, vocabulary, (length,), generator=generator)
        row[length - 1] = EOS
    return src, torch.tensor(lengths)


def prefixes(model: Seq2Seq, rows: int, size: int, vocabulary: int = VOCABULARY, seed: int = 2) -> Tensor:
    """Random prefix (R, T)."""
    prefix = torch.randint(EOS + 1, vocabulary, (rows, size), generator=torch.Generator().manual_seed(seed))
    prefix[:, 0] = model.start_token
    return prefix
