"""Counted FLOPs against what the sizes of the matrices say.

Legend: B sentences, S source positions, T target positions, V vocabulary, d width, e embedding, f inner units, G gates of a cell.
"""

import pytest
import torch

from nmt import floor, loss
from nmt.floor import FlopCounter, gemm_rate
from nmt.models.base import Seq2Seq
from tests.conftest import VOCABULARY as V
from tests.conftest import network, prefixes, sources
from tests.toys import CPU

B, S, T = 8, 5, 6  # eight rows: in evaluation nothing is filled up


def trained(model: Seq2Seq) -> int:
    """FLOPs of forward, loss and backward."""
    model.train()
    src, lengths = sources([S] * B)
    prefix = prefixes(model, B, T)
    with FlopCounter() as counter:
        hidden = model(src, lengths, prefix)
        loss.backward(model.logits, hidden, prefix, B * T, 0.1, 1.0)
    return counter.flops


def evaluated(model: Seq2Seq) -> int:
    """FLOPs of forward and logits as translation runs them."""
    src, lengths = sources([S] * B)
    with FlopCounter() as counter, torch.inference_mode():
        model.logits(model(src, lengths, prefixes(model, B, T)))
    return counter.flops


def test_a_product_and_its_gradients() -> None:
    left, right = torch.rand(3, 4, requires_grad=True), torch.rand(4, 5, requires_grad=True)
    with FlopCounter() as counter:
        product = left @ right
        assert counter.flops == 2 * 3 * 4 * 5
        product.sum().backward()
    assert counter.flops == 3 * 2 * 3 * 4 * 5


def test_a_transformer() -> None:
    d, f, layers = 32, 64, 2
    model = network("transformer", heads=1, feed_forward=f)
    encoder = B * S * (4 * d * d + 2 * d * f)
    decoder = B * T * (6 * d * d + 2 * d * f)
    memory = B * S * d * 2 * d * layers
    linear = layers * (encoder + decoder) + memory
    attention = layers * 2 * B * d * (S * S + T * T + T * S)
    output = B * T * d * V
    assert evaluated(model) == 2 * (linear + attention + output)
    # Of a linear layer the gradients of input and weight cost as much as itself each. Fused attention forms the weights again:
    # five products where there were two. The loss makes one row of logits to see how many there are.
    one_row = d * V
    assert trained(model) == 2 * (3 * linear + attention + attention * 5 // 2 + 3 * output + one_row)


@pytest.mark.parametrize(("cell", "gates", "parts"), [("rnn", 1, 1), ("gru", 3, 1), ("lstm", 4, 2)])
def test_a_recurrent_network(cell: str, gates: int, parts: int) -> None:
    d, e = 32, 16
    states = 2 * d
    model = network("rnn", layers=1, embedding=e, cell=cell)
    encoder = 2 * B * S * (e * gates * d + d * gates * d)
    begin = B * d * parts * d
    memory = B * S * states * (d + gates * d + e)
    attention = B * T * (d * d + S * d + S * (gates * d + e))
    decoder = B * T * (e * gates * d + d * gates * d + (d + e) * e)
    output = B * T * e * V
    linear = encoder + begin + memory + attention + decoder
    assert evaluated(model) == 2 * (linear + output)
    one_row = e * V
    no_gradient = 2 * B * d * gates * d  # the encoder's first states are constants
    assert trained(model) == 2 * (3 * (linear + output) + one_row - no_gradient)


def test_the_rate_is_that_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(floor.SIZE, "cpu", 10)
    clock = iter(range(10**6))
    monkeypatch.setattr(floor, "seconds", lambda: float(next(clock)))  # each look at it is a second later
    monkeypatch.setattr(floor, "LEAST_SECONDS", 0)
    assert gemm_rate(CPU, torch.float32) == gemm_rate(CPU, torch.bfloat16) == 2 * 10**3
