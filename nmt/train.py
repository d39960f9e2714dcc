"""The training loop: an update (see `learning`), then log, validate, save, stop?

What random numbers an update sees and which pairs it holds are functions of (seed, step) and (seed, epoch), so a checkpoint needs
no more than weights, optimizer and a few numbers, and a resumed run continues exactly.
"""

import dataclasses
import math
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from nmt import checkpoint
from nmt.board import Board
from nmt.config import Config
from nmt.console import Console, rate, seconds
from nmt.data.files import write_json
from nmt.data.shards import Dataset
from nmt.distributed import ALONE, Team
from nmt.errors import NmtError, NotNumbersError
from nmt.learning import Training, feed, memory, new_network
from nmt.models.base import Seq2Seq
from nmt.preflight import begun_from, check, describe, examined, initialise, updates_an_epoch, vocabulary
from nmt.run import LOG, REPORT, Interval, Log, State, opened
from nmt.signals import deferred
from nmt.validate import Validation, better


@dataclass(frozen=True)
class Result:
    """How training ended."""

    run: Path
    step: int
    reason: str
    best_score: float | None
    """By the metric of the configuration; None without validation data."""
    best_step: int | None


def train(
    dataset: Dataset,
    run: Path,
    config: Config,
    console: Console,
    *,
    resume: bool = False,
    init_from: Path | None = None,
    overwrite: bool = False,
    device: torch.device,
    compile: bool = False,
    team: Team = ALONE,
) -> Result:
    """Trains the network that `config` describes and leaves it in `run`, the best by validation in `run` itself.

    SIGINT and SIGTERM end training after the update in progress, with a checkpoint; then the signal acts as it would have before.
    Of several processes, those of `team`, each does its part of every update, on its own `device`; RUN and the data must be the
    same files for all, and only the leader writes.
    Raises UsageError and NmtError for all that can be known before the first update, and NmtError when memory runs out or
    the loss is no longer a number; checkpoints that stand are kept then.
    """
    with team.together():
        precision = check(dataset, run, config, device, resume, init_from, overwrite)
        data, report = examined(dataset, config)
        with memory("for the network itself", "choose a smaller --size, or model.width"):
            model = new_network(dataset, config).to(device)
        if init_from is not None:
            initialise(model, config, init_from, dataset)
        budget = math.ceil(config.train.batch_tokens / config.train.accumulate / team.size)
        validation = Validation.open(dataset, budget, config.train.valid_beam, device, team)
    if any(other != (data, config) for other in team.gather((data, config))):
        raise team.common("the processes of this training do not have the same data and settings: start all with one command")
    if validation is None:
        console.say(f"{dataset.path}: holds no pairs to validate with, so nothing is validated: the last model is the one kept")
    with ExitStack() as held:
        newest = None
        with team.together():
            if team.leads:
                held.enter_context(opened(run, resume, overwrite))  # deletes what stood there: nothing was found wrong
                newest = checkpoint.latest_checkpoint(run)
                if resume:
                    init_from = begun_from(run, newest, config, dataset, data)
        newest, init_from = team.share((newest, init_from))
        team.remedy = "start all of them again, with --resume"
        with team.together():
            if resume and init_from is not None and newest is None:
                initialise(model, config, init_from, dataset)
            place = os.path.relpath(os.path.realpath(dataset.path), os.path.realpath(run))  # the two may be moved together
            begun = {"init_from": str(init_from) if init_from else None, "trained_on": place}
            description = {**config.to_dict(), **vocabulary(dataset), **begun}
            if team.leads:
                checkpoint.write_config(run, description, dataset.source, dataset.target)
                write_json(run / REPORT, report)
            training = _Run(dataset, data, run, config, description, console, model, validation, device, precision, compile, team)
            training.begin(newest)
        return training.run()


class _Run(Training):
    """A training with its directory: begun or gone on with, logged, validated, saved, stopped.

    Of several processes all have the same weights and the same state after each step, and come to the same decisions.
    """

    def __init__(
        self,
        dataset: Dataset,
        data: str,
        run: Path,
        config: Config,
        description: dict[str, Any],
        console: Console,
        model: Seq2Seq,
        validation: Validation | None,
        device: torch.device,
        precision: torch.dtype,
        compile: bool,
        team: Team,
    ) -> None:
        super().__init__(config, console, model, device, precision, compile, team)
        self.dataset, self.feed = dataset, feed(dataset, config, model, run, team)
        self.data, self.path, self.description, self.validation = data, run, description, validation
        self.updates_an_epoch = updates_an_epoch(dataset, config)
        self.began = seconds()

    def begin(self, newest: Path | None) -> None:
        """From the checkpoint `newest`, or from the start."""
        if newest is not None:
            kept = checkpoint.load_checkpoint(newest, self.model, self.optimizer)
            self.state = State.from_dict(kept)
            self.check_best(newest)
            self.began -= self.state.seconds
            if self.scaler.is_enabled():
                self.scaler.load_state_dict(self.state.scaler)
            self.log = self.opened_log(kept["log"], kept.get("log_sha256"))
            self.console.say(f"going on after update {self.state.step:,} ({newest})")
        else:
            self.log = self.opened_log()
            if self.team.leads:
                self.save()
        facts = (self.dataset, self.config, self.model, self.device, self.precision, self.updates_an_epoch, self.team.size)
        self.console.say(describe(*facts))

    def check_best(self, newest: Path) -> None:
        """NmtError where the best model, which a resumed run is not to lose, is not in the run."""
        best, weights = self.state.best_step, self.path / checkpoint.WEIGHTS
        there = best is not None or (self.validation is None and self.state.step > 0)
        if there and not weights.exists():
            of = "" if best is None else f" of update {best:,}"
            raise NmtError(
                f"{weights}: no such file: it is the model{of} that the run keeps; put it back, or a copy of that in {newest}"
            )

    def opened_log(self, size: int = 0, sha256: str | None = None) -> Log | None:
        """The log, of which so many bytes are kept; None where another process writes it."""
        if not self.team.leads:
            return None
        return Log(self.path / LOG, size, sha256, Board(self.path, self.state.step) if self.settings.tensorboard else None)

    def note(self, event: Mapping[str, Any]) -> None:
        """A line of the log."""
        if self.log is not None:
            self.log.write(event)

    def run(self) -> Result:
        """The loop."""
        state, settings = self.state, self.settings
        due = False
        progress = self.console.progress("training", "updates", self.most_updates, state.step, self.until, speed=False)
        with (
            closing(self.feed.updates(state.epoch, state.position)) as coming,
            deferred(self.console.say) as caught,
            progress as shown,
        ):
            while not (signalled := self.signalled(caught)) and (reason := self.stop_reason()) is None:
                began = seconds()
                self.update(next(coming))
                state.interval.seconds += seconds() - began  # the wait for data is part of an update
                shown.advance(1, self.standing())
                if state.step % settings.log_every == 0:
                    self.log_interval()
                    state.interval = Interval()
                if self.validation is not None and state.step % settings.valid_every == 0:
                    self.validate(self.validation, lambda _: shown.advance(0, "validating"))
                due = due or state.step % settings.save_every == 0
                if due and not state.bad:  # else it is made up for once updates are no longer skipped
                    self.team.lead(self.save)
                    due = False
            if not state.bad:
                self.team.lead(lambda: self.save(stop=True))
            signalled = signalled or self.signalled(caught)
        if signalled:
            again = f", from {checkpoint.latest_checkpoint(self.path)}: the updates since were skipped" if state.bad else ""
            name = signal.Signals(signalled).name
            self.console.say(f"stopped by {name} after update {state.step:,}; go on with --resume{again}")
            signal.raise_signal(signalled)
        if state.finished != [state.step, settings.average_last]:
            self.finish()
        self.console.say(f"ended after update {state.step:,}: {reason}; the model is in {self.path}{self.best()}")
        return Result(self.path, state.step, str(reason), state.best_score, state.best_step)

    def signalled(self, caught: Sequence[int]) -> int:
        """The signal that has come to one of the processes, of those `caught` in each; 0 where none has."""
        return self.team.most(caught[0] if caught else 0)[0]

    @property
    def most_updates(self) -> int | None:
        """After which training stops in any case, as far as can be told."""
        settings = self.settings
        epochs = [] if settings.max_epochs is None else [settings.max_epochs * self.updates_an_epoch]
        return min([*epochs, *([] if settings.max_steps is None else [settings.max_steps])], default=None)

    def standing(self) -> str:
        """How it goes, in a few words: of the updates since the last line of the log, and of the validations so far."""
        state, report = self.state, self.state.interval.report()
        facts = [
            f"epoch {state.epoch + min(state.position / self.updates_an_epoch, 1):.2f}",
            f"loss {report['loss']:.3f}",
            *([] if state.best_score is None else [f"best {self.settings.metric} {state.best_score:.4g}"]),
            f"{rate(report['tokens_per_second'])} tokens/s",
        ]
        return ", ".join(facts)

    @property
    def until(self) -> float | None:
        """When, by `seconds()`, its minutes are over."""
        return None if self.settings.max_minutes is None else self.began + 60 * self.settings.max_minutes

    def skip(self) -> None:
        self.note({"event": "skipped", "step": self.state.step, "in_a_row": self.state.bad + 1})
        super().skip()

    def diverged(self, what: str) -> NoReturn:
        """NmtError that says from where and how to begin again, since a resumed run would go the same way."""
        # The newest checkpoint may hold the very weights that made the first bad update; those before it were used well.
        good = checkpoint.latest_checkpoint(self.path, before=self.state.step - self.state.bad)
        if good is None and self.state.best_step is not None:
            good = self.path
        again = (
            f"the last good model is {good}: begin another run with --init-from {good} and" if good else "begin another run with"
        )
        raise self.team.common(f"{what}: the training in {self.path} has diverged; {again} {self.remedy()}")

    def log_interval(self) -> None:
        state, report = self.state, self.state.interval.report()
        epoch = state.epoch + (state.position > 0)  # counted from 1 for people
        state.seconds = seconds() - self.began
        self.note(
            {
                "event": "train",
                "step": state.step,
                "epoch": epoch,
                **report,
                "lr": self.rate(),
                "skipped": state.skipped,
                "seconds": state.seconds,
            }
        )

    def validate(self, validation: Validation, advance: Callable[[int], None], event: str = "valid", count: bool = True) -> None:
        """Scores the model, logs that as `event`, keeps the model if it is the best.

        `count`: patience takes note of it. It must not of what only a stop asks for, or a run that goes on would end elsewhere.
        """
        state, metric = self.state, self.settings.metric
        began = seconds()
        self.check_finite()
        try:
            with memory(f"in the validation after update {state.step:,}"):
                scores = validation(self.model, advance)
        except NotNumbersError:
            self.diverged(f"in the validation after update {state.step:,} the network's probabilities are not numbers")
        improved = better(metric, scores[metric], state.best_score)
        if event == "valid":
            state.validated = state.step
        if count and better(metric, scores[metric], state.counted_score):
            state.counted_score, state.waited = scores[metric], 0
        elif count:
            state.waited += 1
        if improved:
            state.best_score, state.best_step = scores[metric], state.step
            self.team.lead(self.keep)
        details = {"best": improved, "beam": validation.beam, "seconds": seconds() - began}
        self.note({"event": event, "step": state.step, **scores, **details})
        told = ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
        self.console.say(f"{event} after update {state.step:,}: {told}{' (best)' if improved else ''}")

    def check_finite(self) -> None:
        """NmtError for weights that are not numbers, or an optimizer that remembers what is none."""
        moments = (moment for kept in self.optimizer.state.values() for moment in kept.values())
        for what, tensors in (("weights", self.model.parameters()), ("optimizer's moments", moments)):
            if not all(bool(tensor.isfinite().all()) for tensor in tensors):
                self.diverged(f"after update {self.state.step} the {what} are not finite numbers")

    def save(self, stop: bool = False) -> None:
        """A checkpoint of this step, if there is none, in place of the oldest. Weights that are not numbers are never saved.

        With `stop` only the end of training asks for it: the run of one that goes on is in the end as if it had not been.

        Not for the midst of skipped updates: what weights gave them may be of no use, and would take the place of good ones.
        """
        state = self.state
        newest = checkpoint.latest_checkpoint(self.path)
        if newest is None or newest.name != f"step-{state.step}":
            self.check_finite()
            if self.validation is None and state.step:
                self.keep()  # before the checkpoint: a process killed in between does this update again, and this too
            checkpoint.save_checkpoint(
                self.path,
                state.step,
                self.model,
                self.optimizer,
                {**self.kept(), "stop": stop},
                self.description,
                self.dataset.source,
                self.dataset.target,
            )
        checkpoint.remove_old(self.path, self.settings.keep_last)  # a kill may have come between the two

    def kept(self) -> dict[str, Any]:
        """The state as a checkpoint holds it."""
        self.state.scaler = self.scaler.state_dict()
        self.state.seconds = seconds() - self.began
        return {**dataclasses.asdict(self.state), "data": self.data, **(self.log.standing() if self.log else {})}

    def keep(self) -> None:
        """The model as it is becomes the run's."""
        self.check_finite()
        if self.log is not None:
            self.log.check_place()
        checkpoint.save_weights(self.path, self.model)

    def finish(self) -> None:
        """What is done once training has come to its end: the last model and the mean of the last ones compete too."""
        state, last = self.state, self.settings.average_last
        with self.console.progress("validation", "lines") as shown:
            if state.interval.norms:
                self.log_interval()  # and kept: a run that goes on logs the whole interval in its turn
            if self.validation is not None and state.validated != state.step:
                self.validate(self.validation, shown.advance, count=False)
            members = self.team.share(checkpoint.checkpoints(self.path)[-last:] if last else [])
            if members:
                with self.team.together():
                    checkpoint.assign(self.model, checkpoint.mean(members))
            if self.validation is None and (members or not state.bad):
                self.team.lead(self.keep)
            elif self.validation is not None and members:
                self.validate(self.validation, shown.advance, event="average", count=False)
        if not state.bad:  # else there is no checkpoint of this step: a resumed run comes here once more, the same way
            state.finished = [state.step, last]
            self.team.lead(lambda: checkpoint.rewrite_state(checkpoint.checkpoints(self.path)[-1], self.kept()))

    def stop_reason(self) -> str | None:
        """Why no other update is to follow; None while one is."""
        state, settings = self.state, self.settings
        if settings.max_steps is not None and state.step >= settings.max_steps:
            return f"{settings.max_steps:,} updates are done"
        if settings.max_epochs is not None and state.epoch >= settings.max_epochs:
            return f"{settings.max_epochs:,} epochs are done"
        if self.until is not None and any(self.team.most(seconds() >= self.until)):  # for all at the same update
            return f"{settings.max_minutes:g} minutes are over"
        if settings.patience and state.waited >= settings.patience:
            return f"no better {settings.metric} in {state.waited} validations"
        return None

    def best(self) -> str:
        state = self.state
        return (
            "" if state.best_score is None else f" (best {self.settings.metric} {state.best_score:.4g}, update {state.best_step:,})"
        )
