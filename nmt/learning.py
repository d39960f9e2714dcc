"""A network under training, and what an update is: batch, forward, loss, backward (for each micro-batch), clip, finite check, step.

What random numbers an update sees is a function of (seed, step). Each micro-batch has dropout's random numbers of its own: but for
these, how many an update is split into changes rounding only. Of several processes each has some of the micro-batches, and N of
them with A each do what one does with N·A.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from nmt import loss
from nmt.allocator import out_of_memory, return_fragments
from nmt.config import Config, TrainConfig
from nmt.console import Console
from nmt.data.batching import Batch
from nmt.data.seeds import Use, mixed
from nmt.data.shards import Dataset
from nmt.data.updates import Feed, Update
from nmt.distributed import ALONE, Team
from nmt.errors import NmtError
from nmt.models import build
from nmt.models.base import Seq2Seq, mixed_prefix
from nmt.run import State
from nmt.schedule import learning_rate, paper_rate, teacher_forcing

RETURN_EVERY = 200
"""Updates after which a CPU's memory is put in order."""

BAD_UPDATES = 10
"""Updates in a row whose loss or gradient is not finite, after which there is no hope."""


def new_network(dataset: Dataset, config: Config) -> Seq2Seq:
    """The network that a run begins with: its weights are a function of the configuration."""
    return initial(config, len(dataset.source), len(dataset.target), dataset.shared)


def initial(config: Config, source: int, target: int, shared: bool) -> Seq2Seq:
    """The network of `config` with its first weights, which its seed decides, for vocabularies of these sizes."""
    torch.manual_seed(mixed(Use.WEIGHTS, config.train.seed))
    return build(config.backend, config.model, source, target, shared)


def feed(dataset: Dataset, config: Config, model: Seq2Seq, directory: Path, team: Team = ALONE) -> Feed:
    """The updates that `model` is trained with. Nothing is written but the files without names of BPE-dropout, in `directory`."""
    settings = config.train
    return Feed(
        dataset,
        model.start_token,
        settings.batch_tokens,
        settings.accumulate,
        config.data.bpe_dropout,
        settings.seed,
        directory=directory,
        rank=team.rank,
        size=team.size,
    )


def optimizer(model: Seq2Seq, settings: TrainConfig) -> torch.optim.Optimizer:
    """What makes a step of the gradients of all weights of `model`; its rate is set before each step."""
    if settings.optimizer == "adadelta":
        return torch.optim.Adadelta(model.parameters(), rho=settings.adadelta_rho, eps=settings.adadelta_epsilon)
    betas = (settings.adam_beta1, settings.adam_beta2)
    return torch.optim.Adam(model.parameters(), betas=betas, eps=settings.adam_epsilon, fused=True)


def peak_rate(config: Config) -> float:
    """The learning rate that warm-up leads to: the one given, else that of the optimizer's paper."""
    settings = config.train
    if settings.learning_rate is not None:
        return settings.learning_rate
    return 1.0 if settings.optimizer == "adadelta" else paper_rate(config.model.width, settings.warmup)


class Training:
    """A network while it is trained, update by update, wherever these come from; in several processes the same at all times."""

    def __init__(
        self,
        config: Config,
        console: Console,
        model: Seq2Seq,
        device: torch.device,
        precision: torch.dtype,
        compile: bool,
        team: Team = ALONE,
    ) -> None:
        self.config, self.settings, self.console = config, config.train, console
        self.model, self.device, self.precision = model.train(), device, precision
        self.compile, self.team = compile, team
        self.forward: Callable[..., Tensor] = torch.compile(model, dynamic=True) if compile else model
        self.gradient: loss.Gradient = torch.compile(loss.gradient) if compile else loss.gradient
        self.optimizer = optimizer(model, self.settings)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == torch.float16)
        self.peak = peak_rate(config)
        self.state = State()

    def update(self, update: Update) -> None:
        """One step of the optimizer, or none where the loss or the gradient is not finite."""
        state, settings = self.state, self.settings
        self.optimizer.zero_grad(set_to_none=True)
        weight = self.scaler.scale(torch.full((), 1 / update.tokens, device=self.device))
        sums = loss.nothing(self.device)
        for part, batch in enumerate(update.parts, update.first):
            torch.manual_seed(mixed(Use.DROPOUT, settings.seed, state.step, part))
            with memory(_work(state.step, [batch])):
                here = batch.to(self.device).twice() if settings.r_drop else batch.to(self.device)
                with self.autocast():
                    hidden = self.hidden(here, part)
                sums = sums + loss.backward(
                    self.logits, hidden, here.target, batch.tokens, settings.label_smoothing, weight, self.gradient, settings.r_drop
                )
        figures = torch.stack((sums.loss, sums.nll))
        self.team.add(figures)
        self.team.add_gradients(self.model.parameters())
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip_norm or math.inf)
        total, nll, size = torch.cat((figures, norm.double()[None])).tolist()  # the one wait for the device in an update
        state.step += 1
        state.epoch, state.position = (state.epoch + 1, 0) if update.last else (state.epoch, state.position + 1)
        interval = state.interval
        if math.isfinite(total) and math.isfinite(size):
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate()
            with memory(_work(state.step - 1, update.parts[-1:])):  # the first step makes the moments
                self.scaler.step(self.optimizer)
            interval.loss, interval.nll, interval.tokens = (
                interval.loss + total,
                interval.nll + nll,
                interval.tokens + update.tokens,
            )
            state.bad = 0
        else:
            self.skip()
        self.scaler.update()
        interval.norms.append(size if math.isfinite(size) else None)
        interval.real, interval.padded = interval.real + update.real, interval.padded + update.padded
        if self.device.type == "cpu" and state.step % RETURN_EVERY == 0:
            return_fragments()

    def hidden(self, batch: Batch, part: int) -> Tensor:
        """What the decoder makes of true tokens, or with scheduled sampling of some that it predicted itself.

        `batch` is micro-batch number `part` of the next update, counted over all processes.
        """
        share = self.teacher_forcing()
        if share == 1:
            if self.compile:  # sizes that happen to be equal in the first batch are not taken for one size, to be told apart later
                for ids in (batch.src, batch.src_lengths, batch.prefix):
                    torch._dynamo.maybe_mark_dynamic(ids, [*range(ids.dim())])
            return self.forward(batch.src, batch.src_lengths, batch.prefix)
        memory = self.model.encode(batch.src, batch.src_lengths)
        # Autocast keeps its copies of weights: before torch mended it (issue 112583), those made here without gradient served
        # `decode` too, and the weights learned nothing.
        with self.autocast(cache=False):
            coins = torch.Generator().manual_seed(mixed(Use.TEACHER_FORCING, self.settings.seed, self.state.step, part))
            prefix = mixed_prefix(self.model, batch.prefix, memory, share, coins)
        return self.model.decode(prefix, memory)

    def teacher_forcing(self) -> float:
        settings = self.settings
        return teacher_forcing(self.state.step, settings.teacher_forcing, settings.teacher_forcing_end, settings.max_steps)

    def rate(self) -> float:
        """The learning rate of the update just counted."""
        settings = self.settings
        return learning_rate(self.state.step - 1, settings.schedule, self.peak, settings.warmup, settings.max_steps)

    def autocast(self, cache: bool = True) -> torch.autocast:
        low = self.precision != torch.float32
        return torch.autocast(self.device.type, dtype=self.precision, enabled=low, cache_enabled=cache)

    def logits(self, hidden: Tensor) -> Tensor:
        with self.autocast():
            return self.model.logits(hidden)

    def skip(self) -> None:
        """Counts and says that an update was left out; NmtError when there were too many in a row."""
        state = self.state
        state.skipped, state.bad = state.skipped + 1, state.bad + 1
        self.console.warn(f"update {state.step:,} is skipped: its loss or gradient is not a finite number")
        if state.bad >= BAD_UPDATES:
            self.diverged(f"{state.bad} updates in a row had a loss or gradient that is not a finite number")

    def diverged(self, what: str) -> NoReturn:
        """NmtError that says `what`, and what may help."""
        raise NmtError(f"{what}: try {self.remedy()}")

    def remedy(self) -> str:
        """Settings that a training which has diverged may do better with."""
        way = "train.precision bfloat16, " if self.precision == torch.float16 else ""
        warmup = "" if self.settings.optimizer == "adadelta" else ", a longer train.warmup"
        return f"{way}a lower train.learning_rate{warmup} or a smaller train.clip_norm"


@contextmanager
def memory(work: str, remedy: str = "raise --accumulate, or lower --batch-tokens") -> Iterator[None]:
    """Out of memory becomes an NmtError that says in what."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise NmtError(f"out of memory {work}: {remedy}") from error


def _work(step: int, batches: list[Batch]) -> str:
    """An update and the shapes of batches, as messages name them."""
    sizes = [(*batch.src.shape, batch.prefix.shape[1]) for batch in batches]
    told = (f", with {pairs} pairs of {source} source and {target} target positions at once" for pairs, source, target in sizes)
    return f"in update {step + 1:,}{''.join(told)}"
