"""Where the time goes: shares of the wall time by category, from a pass under torch's profiler.

The program knows nothing of it: `marked` wraps some of its functions from outside for as long as the pass takes. Each moment
belongs to the innermost operation that runs then, and an operation to one category:

- A wrapped function (`Region`) or an operation of the table `OPERATIONS` gives its own to all within it, but where a category that
  is not `OPEN` was given already: in the encoder all is encoder, in the search a matrix product is a matrix product. A region of an
  open category opens again what it stands in.
- An operation of the backward pass belongs where the forward operation does that autograd made it for, and otherwise where its
  name says.
"""

import functools
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from nmt import loss
from nmt.data.batching import Batch
from nmt.data.subword import Subword
from nmt.floor import wait_for
from nmt.models import base, rnn, transformer
from nmt.models.base import Seq2Seq
from nmt.models.quantized import IntegerLinear
from nmt.search import Search

PRODUCTS, ATTENTION, OUTPUT, DROPOUT = "matrix products", "attention", "output layer and loss", "dropout"
OPTIMIZER, DATA = "optimizer", "data"
ENCODER, DECODER, LOGITS, SEARCH, TEXT = "encoder", "decoder matrix products", "output layer", "search", "text"
ELSE, IDLE = "everything else", "device idle"

TRAINING = (PRODUCTS, ATTENTION, OUTPUT, DROPOUT, OPTIMIZER, DATA, ELSE)
TRANSLATION = (ENCODER, DECODER, ATTENTION, LOGITS, SEARCH, TEXT, ELSE)

OPEN = (ELSE, SEARCH)
"""Categories within which others may begin."""

OPERATIONS = {
    "mkldnn::_linear_pointwise": PRODUCTS,
    "aten::mm": PRODUCTS,
    "aten::addmm": PRODUCTS,
    "aten::bmm": PRODUCTS,
    "aten::baddbmm": PRODUCTS,
    "aten::_cudnn_rnn*": PRODUCTS,  # fused layers: the products and what stands between them
    "aten::*scaled_dot_product*": ATTENTION,
    "aten::*flash_attention*": ATTENTION,
    "aten::*efficient_attention*": ATTENTION,
    "Optimizer.*": OPTIMIZER,  # marked so by torch itself
}
"""By the names that the profiler gives, `*` for any part of one. In translation PRODUCTS outside of the encoder are DECODER."""

_MARK, _WHOLE, _BACKWARD = "nmt: ", "nmt: whole", "autograd::engine::evaluate_function"


@dataclass(frozen=True)
class Region:
    """A function, as an attribute of a module, a class or an object, all of whose time is of one category unless that is open."""

    owner: Any
    name: str
    category: str


def training_regions(compiled: bool) -> list[Region]:
    """What is marked in an update. Within a compiled network nothing can be: there only the names of operations tell."""
    outside = [
        Region(loss, "backward", OUTPUT),
        Region(torch.autograd, "backward", ELSE),
        Region(torch.nn.utils, "clip_grad_norm_", OPTIMIZER),
        Region(Batch, "to", DATA),
    ]
    within = [
        Region(transformer.Heads, "attend", ATTENTION),
        Region(rnn, "attend", ATTENTION),
        Region(base.Dropout, "forward", DROPOUT),
    ]
    return outside if compiled else [*outside, *within]


def translation_regions(model: Seq2Seq, search: Search) -> list[Region]:
    """What is marked in a translation."""
    return [
        Region(type(search), "__call__", SEARCH),
        Region(model, "encode", ENCODER),
        Region(model, "step", ELSE),
        Region(model, "log_probs", LOGITS),
        Region(transformer, "_written_out", ATTENTION),
        Region(rnn, "attend", ATTENTION),
        Region(IntegerLinear, "forward", PRODUCTS),  # its scaling too: without the product there would be none
        *(Region(Subword, name, TEXT) for name in ("encode_batch", "decode", "pieces")),
    ]


def mark(category: str) -> Any:
    """A context whose time is of `category`, for what is no function."""
    return record_function(_MARK + category)


@contextmanager
def marked(regions: Sequence[Region]) -> Iterator[None]:
    """While it lasts, the profiler sees the regions."""
    with ExitStack() as undo:
        for region in regions:
            own = vars(region.owner).get(region.name)
            setattr(region.owner, region.name, _marking(getattr(region.owner, region.name), region.category))
            if own is None:  # an object's method, or one of a base class, was in the way of nothing
                undo.callback(delattr, region.owner, region.name)
            else:
                undo.callback(setattr, region.owner, region.name, own)
        yield


def _marking(function: Callable[..., Any], category: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:  # hands on whatever comes
        with mark(category):
            return function(*arguments, **named)

    return call


def profiled(work: Callable[[], object], regions: Sequence[Region], device: torch.device) -> dict[str, float]:
    """Seconds of each category that `work` takes, which runs once, slower than without a profiler: small operations look larger.

    They add up to the whole. On a GPU they are those of the device, and IDLE is when it had nothing to do.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    profiler = torch.profiler.profile(activities=activities)
    with marked(regions):
        with _silent():
            profiler.start()
        try:
            with record_function(_WHOLE):
                work()
                wait_for(device)
        finally:
            with _silent():
                profiler.stop()
    events = profiler.events()  # type: ignore[no-untyped-call]
    return attributed(events or [], device.type == "cuda")


@contextmanager
def _silent() -> Iterator[None]:
    """The profiler's library says on stderr that it starts and stops, and knows no way to ask it not to."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def attributed(events: Sequence[Any], on_device: bool = False) -> dict[str, float]:
    """Seconds of each category, by the profiler's events.

    On a CPU the backward pass runs in the thread that asked for it, within `whole`; that of a GPU has a thread of its own.
    """
    found: defaultdict[str, float] = defaultdict(float)
    made: dict[int, str] = {}  # by which category's forward operation a node of the backward pass was made
    whole = sum(event.cpu_time_total for event in events if event.name == _WHOLE) / 1e6
    begins = [event for event in events if (event.cpu_parent is None if on_device else event.name == _WHOLE)]
    waiting = [(event, ELSE, ELSE, False) for event in sorted(begins, key=_start, reverse=True)]
    while waiting:
        event, around, category, backward = waiting.pop()
        region = event.name.removeprefix(_MARK) if event.name.startswith(_MARK) and event.name != _WHOLE else None
        if event.name.startswith(_BACKWARD):
            around = category = made.get(event.sequence_nr, ELSE)
            backward = True
        elif region is not None and (category in OPEN or region in OPEN):
            around = category = region
        elif category in OPEN:
            category = _by_name(event.name) or category
        if not backward and event.sequence_nr >= 0:
            made[event.sequence_nr] = around  # the last operation to carry a number is the one that made the node
        found[category] += (event.self_device_time_total if on_device else event.self_cpu_time_total) / 1e6
        waiting.extend((child, around, category, backward) for child in sorted(event.cpu_children, key=_start, reverse=True))
    if on_device:
        found[IDLE] = max(0.0, whole - sum(found.values()))
    return dict(found)


def _start(event: Any) -> float:
    start: float = event.time_range.start
    return start


@functools.cache
def _by_name(name: str) -> str | None:
    return next((category for pattern, category in OPERATIONS.items() if fnmatchcase(name, pattern)), None)


def shares(seconds: dict[str, float], categories: Sequence[str]) -> dict[str, float]:
    """Of each of `categories`, in their order, and of IDLE where there is some; what is none of them is a decoder's products.

    They add up to 1.
    """
    named = {DECODER if DECODER in categories and name == PRODUCTS else name: value for name, value in seconds.items()}
    total = sum(named.values())
    return {name: named.get(name, 0.0) / total for name in (*categories, *([IDLE] if IDLE in named else []))}
