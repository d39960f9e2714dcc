"""How speed grows with the size of the work: the figures of `bench` at several points of one axis.

No data and no model are needed: a new network works on made-up ids, so that the curve is one of machine and network and of no
corpus. Nothing is written: figures are returned, ready for JSON.

Legend: B sentences, S source positions, T target positions.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.bench import flops_per_token, number_of_parameters, rates, spread, surroundings, timed_updates
from nmt.config import Config, did_you_mean
from nmt.console import Console, seconds
from nmt.data.batching import Batch
from nmt.data.updates import Update
from nmt.errors import UsageError
from nmt.floor import FlopCounter, gemm_rate, wait_for
from nmt.learning import Training, initial, memory
from nmt.limits import MOST_POSITIONS, MOST_SUBWORDS
from nmt.models.base import Seq2Seq, Settings, State
from nmt.models.uncached import State as Prefix
from nmt.models.uncached import Uncached
from nmt.preflight import arithmetic
from nmt.vocab import EOS, SYMBOLS

LENGTH = 32
"""Positions of a made-up sentence on each side, `</s>` counted, where its length is not what varies."""

UNITS = ("width", "feed_forward", "embedding")
"""Settings of a network, where it has them, that grow together when it is made wider."""


@dataclass(frozen=True)
class Axis:
    """What varies."""

    label: str
    """With its unit."""
    points: tuple[int, ...]
    """Where nothing else is asked for."""
    least: int = 1
    most: int = MOST_POSITIONS


DECODING = "decoding"
AXES = {
    "batch-tokens": Axis("size of a batch, target tokens", (256, 512, 1024, 2048, 4096, 8192)),
    "width": Axis("model width, units", (64, 128, 256, 512, 1024)),
    "vocabulary": Axis("vocabulary, subwords", (1000, 2000, 4000, 8000, 16000, 32000), len(SYMBOLS) + 1, MOST_SUBWORDS),
    "length": Axis("sentence length, subwords", (8, 16, 32, 64, 128, 256)),
    DECODING: Axis("target length, subwords", (1, 32, 64, 96, 128, 160, 192, 224, 256)),
}
"""All but DECODING are of training."""


@dataclass(frozen=True)
class Curve:
    """An axis, and its points in ascending order."""

    axis: str
    points: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "Curve":
        """`width`, or `width=64,128` for other points than the axis has by itself. UsageError for anything else."""
        axis, equals, listed = text.partition("=")
        if axis not in AXES:
            raise UsageError(f"--curve {text}: is none of {', '.join(AXES)}{did_you_mean(axis, AXES)}")
        if not equals:
            return cls(axis, AXES[axis].points)
        try:
            points = {int(point) for point in listed.split(",")}
        except ValueError:
            raise UsageError(f"--curve {text}: points are whole numbers, as in {axis}=64,128") from None
        least, most = AXES[axis].least, AXES[axis].most
        for point in points:
            if not least <= point <= most:
                raise UsageError(f"--curve {text}: points are at least {least} and at most {most}")
        return cls(axis, tuple(sorted(points)))


@dataclass(frozen=True)
class Work:
    """What is measured at a point of a curve of training."""

    at: int
    config: Config
    vocabulary: int
    length: int


def works(curve: Curve, config: Config, vocabulary: int) -> list[Work]:
    """One for each point. UsageError for a point that cannot be."""
    return [_work(curve.axis, at, config, vocabulary) for at in curve.points]


def _work(axis: str, at: int, config: Config, vocabulary: int) -> Work:
    length = LENGTH
    if axis == "batch-tokens":
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, batch_tokens=at))
    elif axis == "width":
        try:
            config = dataclasses.replace(config, model=_widened(config.model, at))
        except ValueError as error:
            raise UsageError(f"--curve width={at}: {error}") from None
    elif axis == "vocabulary":
        vocabulary = at
    else:
        length = at
    check_fits(length, config.train.batch_tokens)
    return Work(at, config, vocabulary, length)


def _widened(settings: Settings, width: int) -> Settings:
    """The same network with layers of `width` units, of the same proportions; ValueError where it has no such."""
    sizes = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return dataclasses.replace(settings, **{name: sizes[name] * width // settings.width for name in UNITS if name in sizes})


def check_fits(length: int, batch_tokens: int) -> None:
    """UsageError where a batch is too small for one sentence."""
    if length > batch_tokens:
        raise UsageError(f"a sentence of {length} positions does not fit into a batch of {batch_tokens}")


def training(
    curve: Curve,
    config: Config,
    console: Console,
    *,
    vocabulary: int,
    device: torch.device,
    compile: bool,
    length: float,
    warmup: int,
) -> dict[str, Any]:
    """The figures of updates at each point: about `length` seconds' worth, one at least, after `warmup` of them.

    Raises UsageError, before anything is measured, for points that cannot be, and NmtError where memory runs out.
    """
    precision = arithmetic(config, device)
    planned = works(curve, config, vocabulary)
    speed = gemm_rate(device, precision)
    points = []
    for work in planned:
        if compile:
            torch.compiler.reset()  # after eight networks of one kind it would compile no more
        with memory(f"for the network itself at {curve.axis} {work.at}", "leave that point out"):
            model = initial(work.config, work.vocabulary, work.vocabulary, True).to(device)
        learner = Training(work.config, console, model, device, precision, compile)
        coming = made_up(work, model.start_token)
        windows = timed_updates(learner, coming, f"{curve.axis} {work.at}", length, warmup)
        figures = rates(windows, flops_per_token(learner, coming, 1), speed)
        points.append({"at": work.at, "parameters": number_of_parameters(model), **figures})
    return {
        **_described(curve, config, vocabulary, device, precision),
        "compiled": compile,
        "length": None if curve.axis == "length" else LENGTH,
        "batch_tokens": None if curve.axis == "batch-tokens" else config.train.batch_tokens,
        "gemm_flops_per_second": speed,
        "points": points,
    }


def made_up(work: Work, start_token: int) -> Iterator[Update]:
    """Updates without end, as full as the budget allows and without padding, all of one shape."""
    train = work.config.train
    random = torch.Generator().manual_seed(train.seed)
    pairs = train.batch_tokens // work.length
    while True:
        ids = _ids(random, work.vocabulary, pairs, 2, work.length - 1)
        parts = [_batch(part[:, 0], part[:, 1], start_token) for part in ids.tensor_split(min(train.accumulate, pairs))]
        positions = pairs * work.length
        yield Update(parts, tokens=positions, real=2 * positions, padded=2 * positions, last=False)


def _ids(random: torch.Generator, vocabulary: int, *shape: int) -> Tensor:
    """Of ordinary subwords."""
    return torch.randint(len(SYMBOLS), vocabulary, shape, generator=random)


def _batch(src: Tensor, tgt: Tensor, start_token: int) -> Batch:
    """Of ids (B, S-1) and (B, T-1) without `</s>`."""
    ended = F.pad(src, (0, 1), value=EOS)
    target = F.pad(tgt, (0, 1), value=EOS)
    return Batch(
        src=ended,
        src_lengths=torch.full(ended.shape[:1], ended.shape[1]),
        prefix=F.pad(tgt, (1, 0), value=start_token),
        target=target,
        tokens=target.numel(),
    )


Step = Callable[[Tensor, State], State]
Gauge = Callable[[Step, Tensor, State], tuple[State, float]]
"""Takes a step; the state after it, and an amount of what it needed."""


@torch.inference_mode()
def decoding(
    curve: Curve,
    config: Config,
    console: Console,
    *,
    vocabulary: int,
    batch_tokens: int,
    device: torch.device,
    length: float,
    warmup: int,
) -> dict[str, Any]:
    """What the step that writes the last subword of each target length costs, with and without the decoder's cache.

    A step is all that a search asks of the network for a token: the hidden states and their log-probabilities, for a batch of
    `batch_tokens` source positions. Both ways go through all lengths again and again, for about `length` seconds a point, once at
    least, after `warmup` times. Raises UsageError for a batch that holds no sentence, NmtError where memory runs out.
    """
    check_fits(LENGTH, batch_tokens)
    sentences = batch_tokens // LENGTH
    with memory(f"at target length {curve.points[-1]}, {sentences} sentences at once", "lower --batch-tokens, or leave it out"):
        model = initial(config, vocabulary, vocabulary, True).to(device).eval()
        random = torch.Generator().manual_seed(config.train.seed)
        source = F.pad(_ids(random, vocabulary, sentences, LENGTH - 1), (0, 1), value=EOS).to(device)
        prefix = F.pad(_ids(random, vocabulary, sentences, curve.points[-1] - 1), (1, 0), value=model.start_token).to(device)
        ways = {"with_cache": Cached(model, source), "without_cache": Recomputing(model, source)}

        def in_seconds(step: Step, token: Tensor, state: State) -> tuple[State, float]:
            wait_for(device)
            began = seconds()
            state = step(token, state)
            wait_for(device)
            return state, seconds() - began

        flops = {name: way.amounts(prefix, curve.points, in_flops) for name, way in ways.items()}
        for _ in range(warmup):
            for way in ways.values():
                way.amounts(prefix, curve.points, in_seconds)
        times: dict[str, list[list[float]]] = {name: [] for name in ways}
        end = seconds() + length * len(curve.points)
        with console.progress("decoding", "times", until=end) as shown:
            while not times["with_cache"] or seconds() < end:
                for name, way in ways.items():
                    times[name].append(way.amounts(prefix, curve.points, in_seconds))
                shown.advance()
    points = []
    for number, at in enumerate(curve.points):
        point: dict[str, Any] = {"at": at}
        for name in ways:
            milliseconds = spread([1000 * each[number] for each in times[name]])
            point[name] = {"milliseconds": milliseconds, "flops": flops[name][number]}
        point["times_as_long"] = point["without_cache"]["milliseconds"]["median"] / point["with_cache"]["milliseconds"]["median"]
        points.append(point)
    return {
        **_described(curve, config, vocabulary, device, next(model.parameters()).dtype),
        "parameters": number_of_parameters(model),
        "length": LENGTH,
        "batch_tokens": batch_tokens,
        "sentences": sentences,
        "times": len(times["with_cache"]),
        "points": points,
    }


def in_flops(step: Step, token: Tensor, state: State) -> tuple[State, float]:
    """A gauge."""
    with FlopCounter() as counter:
        state = step(token, state)
    return state, counter.flops


class Cached:
    """Step by step, as every search decodes."""

    def __init__(self, model: Seq2Seq, source: Tensor) -> None:
        """source (B, S), nothing padded."""
        self.model = model
        self.memory = model.encode(source, torch.full_like(source[:, 0], source.shape[1]))

    def amounts(self, prefix: Tensor, points: Sequence[int], gauge: Gauge) -> list[float]:
        """Of the steps that read the last of the first n tokens of `prefix` (B, T), for each n of `points`."""
        state = self.model.start(self.memory)
        found = {}
        for at, token in enumerate(prefix.unbind(1), 1):
            state, found[at] = gauge(self.step, token, state)
        return [found[at] for at in points]

    def step(self, token: Tensor, state: State) -> State:
        """One step."""
        hidden, state = self.model.step(token, state, self.memory)
        self.model.log_probs(hidden)
        return state


class Recomputing(Cached):
    """The whole prefix again at each step. What came before does not matter, so only the steps of the points are taken."""

    def __init__(self, model: Seq2Seq, source: Tensor) -> None:
        super().__init__(Uncached(model), source)

    def amounts(self, prefix: Tensor, points: Sequence[int], gauge: Gauge) -> list[float]:
        """As those of `Cached`."""
        return [gauge(self.step, prefix[:, at - 1], Prefix(prefix[:, : at - 1]))[1] for at in points]


def _described(curve: Curve, config: Config, vocabulary: int, device: torch.device, precision: torch.dtype) -> dict[str, Any]:
    return {
        "measured": "curve",
        "curve": curve.axis,
        "label": AXES[curve.axis].label,
        **surroundings(device, precision),
        "configuration": config.to_dict(),
        "vocabulary": None if curve.axis == "vocabulary" else vocabulary,
    }
