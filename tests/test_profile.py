"""Where the time goes: every moment has one category, and the categories those that the work says."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt import profile
from nmt.models.base import Dropout
from nmt.profile import (
    ATTENTION,
    DATA,
    DECODER,
    DROPOUT,
    ELSE,
    ENCODER,
    IDLE,
    OPTIMIZER,
    OUTPUT,
    PRODUCTS,
    SEARCH,
    TRAINING,
    TRANSLATION,
    Region,
    attributed,
    mark,
    marked,
    profiled,
    shares,
    training_regions,
    translation_regions,
)
from nmt.search import Beam
from tests.conftest import network
from tests.toys import CPU

BACKWARD = "autograd::engine::evaluate_function: "


class Event:
    """What `attributed` reads of an event; times in seconds."""

    def __init__(self, name: str, own: float, *children: "Event", number: int = -1, device: float = 0.0) -> None:
        self.name, self.cpu_children, self.sequence_nr = name, list(children), number
        self.self_cpu_time_total, self.self_device_time_total = own * 1e6, device * 1e6
        self.cpu_time_total = self.self_cpu_time_total + sum(child.cpu_time_total for child in children)
        self.cpu_parent: Event | None = None
        self.time_range = SimpleNamespace(start=0.0)
        for place, child in enumerate(children):
            child.cpu_parent, child.time_range = self, SimpleNamespace(start=float(place))


def everything(event: Event) -> list[Event]:
    return [event, *(each for child in event.cpu_children for each in everything(child))]


def test_an_operation_belongs_to_what_it_stands_in() -> None:
    whole = Event(
        "nmt: whole",
        1,
        Event(f"nmt: {DATA}", 2, Event("aten::mm", 4)),  # of data all is data
        Event("aten::linear", 8, Event("aten::t", 16), Event("aten::addmm", 32, Event("aten::copy_", 64))),
        Event("aten::scaled_dot_product_attention", 128, Event("aten::bmm", 256)),
        Event(f"nmt: {SEARCH}", 512, Event("aten::topk", 1024), Event("aten::mm", 2048), Event(f"nmt: {ELSE}", 4096)),
        Event(f"nmt: {ENCODER}", 8192, Event(f"nmt: {ATTENTION}", 16384)),
        Event("Optimizer.step#Adam.step", 32768, Event("aten::_fused_adam_", 65536)),
    )
    elsewhere = Event("aten::mm", 10**6)  # another thread's
    assert attributed([*everything(whole), elsewhere]) == {
        DATA: 2 + 4,
        PRODUCTS: 32 + 64 + 2048,
        ATTENTION: 128 + 256,
        SEARCH: 512 + 1024,
        ENCODER: 8192 + 16384,
        OPTIMIZER: 32768 + 65536,
        ELSE: 1 + 8 + 16 + 4096,
    }


def test_backward_belongs_where_forward_does() -> None:
    whole = Event(
        "nmt: whole",
        0,
        Event(f"nmt: {DROPOUT}", 0, Event("aten::ge", 1, number=7), Event("aten::mul", 2, number=7)),
        Event("aten::addmm", 4, number=8),
        Event(
            f"nmt: {OUTPUT}",
            8,
            Event("aten::mm", 16, number=9),
            Event(
                f"nmt: {ELSE}",
                32,
                Event(f"{BACKWARD}MmBackward0", 64, Event("aten::mm", 128), number=9),
                Event(f"{BACKWARD}AddmmBackward0", 256, Event("aten::mm", 512), number=8),
                Event(f"{BACKWARD}MulBackward0", 1024, Event("aten::mul", 2048), number=7),
                Event(f"{BACKWARD}torch::autograd::AccumulateGrad", 4096),
            ),
        ),
    )
    assert attributed(everything(whole)) == {
        DROPOUT: 1 + 2 + 1024 + 2048,
        PRODUCTS: 4 + 512,
        OUTPUT: 8 + 16 + 64 + 128,
        ELSE: 32 + 256 + 4096,
    }


def test_on_a_gpu_the_device_counts_and_its_rest() -> None:
    whole = Event("nmt: whole", 1, Event("aten::mm", 9, device=3), Event(f"nmt: {DATA}", 0, device=1))
    other = Event(f"{BACKWARD}MmBackward0", 2, Event("aten::mm", 2, device=2))  # the thread of the backward pass
    assert attributed([*everything(whole), *everything(other)], on_device=True) == {PRODUCTS: 5, DATA: 1, ELSE: 0, IDLE: 4}


def test_shares_add_up_and_name_a_decoders_products() -> None:
    found = shares({PRODUCTS: 1.0, ELSE: 2.0, DATA: 1.0}, TRAINING)
    assert list(found) == list(TRAINING) and found[PRODUCTS] == 0.25 and sum(found.values()) == 1
    found = shares({PRODUCTS: 1.0, ENCODER: 2.0, IDLE: 1.0}, TRANSLATION)
    assert list(found) == [*TRANSLATION, IDLE] and found[DECODER] == 0.25 and sum(found.values()) == 1


def counted(work: Callable[[], Any], regions: list[Region], monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Operations of each category, in place of their time."""

    def count(events: Any, on_device: bool) -> dict[str, float]:
        for event in events:
            event.__class__ = Counted
        return attributed(events, on_device)

    monkeypatch.setattr(profile, "attributed", count)
    return {name: round(number * 1e6) for name, number in profiled(work, regions, CPU).items()}


class Counted(torch.autograd.profiler_util.FunctionEvent):
    @property
    def self_cpu_time_total(self) -> float:
        return float(self.name.startswith("aten::"))


def test_the_profilers_own_events_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, dropout = torch.rand(8, 8, requires_grad=True), Dropout(0.5).train()

    def product() -> None:
        torch.mm(weight, weight).sum().backward()

    def dropped() -> None:
        dropout(weight).backward(torch.ones(8, 8))

    alone = counted(product, [], monkeypatch)
    assert set(alone) == {PRODUCTS, ELSE} and alone[PRODUCTS] >= 3  # the product and two gradients
    found = counted(dropped, training_regions(compiled=False), monkeypatch)
    assert found[DROPOUT] > 5 and PRODUCTS not in found
    # Forward is all within the module; of backward only what is no node of the dropout is left.
    assert counted(dropped, [], monkeypatch)[ELSE] == found[DROPOUT] + found[ELSE]


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_marked_exists_and_is_left_as_it_was(backend: str, compiled: bool) -> None:
    model = network(backend)
    regions = [*training_regions(compiled), *translation_regions(model, Beam())]
    before = [vars(region.owner).get(region.name) for region in regions]
    with marked(regions):
        assert all(vars(region.owner)[region.name] is not own for region, own in zip(regions, before, strict=True))
    assert [vars(region.owner).get(region.name) for region in regions] == before


def test_an_error_passes_and_leaves_no_trace(capfd: pytest.CaptureFixture[str]) -> None:
    def fails(x: Tensor) -> None:
        raise ZeroDivisionError

    owner = SimpleNamespace(work=fails)
    with pytest.raises(ZeroDivisionError):
        profiled(lambda: owner.work(torch.ones(1)), [Region(owner, "work", DATA)], CPU)
    assert owner.work is fails
    with mark(DATA):
        assert sum(profiled(lambda: torch.ones(1) + 1, [], CPU).values()) > 0
    assert capfd.readouterr() == ("", "")
