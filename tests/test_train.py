"""Training: what it learns, that it goes on exactly where it stopped, when it stops, what it refuses."""

import itertools
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nmt import checkpoint, loss
from nmt.checkpoint import checkpoints, load_model
from nmt.cli import main
from nmt.console import Console, Progress
from nmt.data.batching import batches
from nmt.data.files import sealed, write_json
from nmt.data.shards import Dataset
from nmt.data.text import read_lines
from nmt.errors import NmtError, UsageError
from nmt.info import describe
from nmt.learning import optimizer
from nmt.models import BACKENDS
from nmt.models.base import Memory, Seq2Seq
from nmt.models.rnn import Rnn
from nmt.run import opened
from nmt.score import validation_scores
from nmt.search import Beam
from nmt.train import train
from nmt.translate import Options, Translator
from nmt.validate import Validation
from tests.conftest import network
from tests.toys import CPU, QUIET, config, dataset, events, reversed_digits, run, words


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset(tmp_path_factory.mktemp("digits") / "corpus", reversed_digits(300, seed=1), valid=20)


@pytest.fixture(scope="module")
def subwords(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset(tmp_path_factory.mktemp("words") / "corpus", words(200, seed=1), valid=10, tokenizer="bpe", vocab_size=60)


ADADELTA: dict[str, Any] = {"optimizer": "adadelta", "learning_rate": None, "schedule": "constant", "warmup": 0}


def tensors(directory: Path, name: str = "model.safetensors") -> dict[str, torch.Tensor]:
    return load_file(directory / name)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("backend", "model", "settings"),
    [
        ("rnn", {"width": 64, "embedding": 32}, {"max_steps": 250}),
        (
            "transformer",
            {"layers": 2, "width": 64, "heads": 4, "feed_forward": 128},
            {"max_steps": 800, "learning_rate": 0.002, "warmup": 100},
        ),
    ],
)
def test_both_backends_learn_to_reverse_digits(
    backend: str, model: dict[str, object], settings: dict[str, object], tmp_path: Path
) -> None:
    data = dataset(tmp_path / "corpus", reversed_digits(3000, seed=2), valid=100)
    settings = {"batch_tokens": 512, "learning_rate": 0.005, "warmup": 50, "valid_every": 1000, "log_every": 50, **settings}
    run(data, tmp_path / "run", config(backend, model, **settings))
    (last,) = events(tmp_path / "run", "valid")
    assert last["accuracy"] > 0.97 and last["bleu"] > 90
    logged = events(tmp_path / "run", "train")
    assert logged[-1]["loss"] < 0.5 * logged[0]["loss"]


@pytest.mark.parametrize(
    ("backend", "more"), [*((backend, {}) for backend in BACKENDS), ("rnn", {"r_drop": 5.0}), ("rnn", ADADELTA)]
)
def test_a_resumed_run_is_the_uninterrupted_one(backend: str, more: dict[str, Any], subwords: Dataset, tmp_path: Path) -> None:
    """Dropout, accumulation, BPE-dropout, a stop in the middle of an epoch and of a log interval."""
    settings = {"max_steps": 31, "valid_every": 9, "save_every": 5, "log_every": 4, "accumulate": 2, "metric": "nll", **more}

    def trained(place: Path, steps: int, resume: bool) -> None:
        run(subwords, place, config(backend, {"dropout": 0.2}, 0.1, **{**settings, "max_steps": steps}), resume=resume)

    trained(tmp_path / "whole", 31, resume=False)
    for stop, resume in ((7, False), (18, True), (31, True)):
        trained(tmp_path / "parts", stop, resume=resume)
    whole, parts = tmp_path / "whole" / "checkpoints" / "step-31", tmp_path / "parts" / "checkpoints" / "step-31"
    assert same(tensors(whole), tensors(parts))
    assert same(tensors(whole, "optimizer.safetensors"), tensors(parts, "optimizer.safetensors"))
    # A stop has a line for what it cut short, and a validation of its own; all others are the same.
    logged = {kind: [event for event in events(tmp_path / "parts", kind) if event["step"] != 7] for kind in ("train", "valid")}
    assert events(tmp_path / "whole", "train") == [event for event in logged["train"] if event["step"] != 18]
    assert [event["nll"] for event in events(tmp_path / "whole", "valid")] == [event["nll"] for event in logged["valid"]]
    assert {event["epoch"] for event in events(tmp_path / "whole", "train")} >= {1, 2}


KILLER = """
import os, random, signal, sys
from pathlib import Path
import torch
from nmt.data.shards import Dataset
from nmt.run import Log
from tests.toys import config, run

data, place, lives = Dataset.open(Path(sys.argv[1])), Path(sys.argv[2]), random.Random(int(sys.argv[3]))
torch.set_num_threads(1)
settings = config("rnn", {"dropout": 0.2}, 0.1, max_steps=20, valid_every=7, save_every=3, log_every=2, keep_last=2, metric="nll")


def mortal(write, left):
    def killed(*arguments):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(*arguments)

    return killed


kills = 0
while True:
    left = [lives.randint(1, 50)]
    child = os.fork()  # this process has computed nothing, so its children may
    if child == 0:
        os.replace, os.rename, Log.write = (mortal(write, left) for write in (os.replace, os.rename, Log.write))
        try:
            run(data, place, settings, resume=place.exists())
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != -signal.SIGKILL:
        print(kills)
        sys.exit(status)
    kills += 1
"""


def test_a_run_killed_between_any_two_writes_ends_as_if_it_had_not_been(subwords: Dataset, tmp_path: Path) -> None:
    """Each life ends by kill -9 before one of its next writes, until one lives to the end."""
    settings = config(
        "rnn", {"dropout": 0.2}, 0.1, max_steps=20, valid_every=7, save_every=3, log_every=2, keep_last=2, metric="nll"
    )
    run(subwords, tmp_path / "whole", settings)
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(subwords.path), str(tmp_path / "killed"), "1"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 3, "hardly ever killed"
    for directory in (Path(), Path("checkpoints", "step-20"), Path("checkpoints", "step-18")):
        assert same(tensors(tmp_path / "whole" / directory), tensors(tmp_path / "killed" / directory))
    assert events(tmp_path / "whole") == events(tmp_path / "killed")
    assert sorted(os.listdir(tmp_path / "whole")) == sorted(os.listdir(tmp_path / "killed"))
    assert sorted(os.listdir(tmp_path / "whole/checkpoints")) == sorted(os.listdir(tmp_path / "killed/checkpoints"))


def test_a_run_killed_before_it_removed_an_old_checkpoint_removes_it_when_it_ends(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config("rnn", max_steps=3, save_every=1, keep_last=2)
    renamed = os.rename

    def killed(old: Path, new: Path) -> None:
        if Path(new).name == ".step-1.removed":
            raise KeyboardInterrupt
        renamed(old, new)

    with monkeypatch.context() as patched:
        patched.setattr("os.rename", killed)
        with pytest.raises(KeyboardInterrupt):
            run(digits, tmp_path / "run", settings)
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["step-1", "step-2", "step-3"]
    run(digits, tmp_path / "run", settings, resume=True)
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["step-2", "step-3"]


class Interrupting(Console):
    """Sends this process a signal when so many updates are done."""

    def __init__(self, number: int, after: int) -> None:
        super().__init__(quiet=True)
        self.number, self.after = number, after

    def progress(
        self, label: str, unit: str, total: int | None = None, start: int = 0, until: float | None = None, speed: bool = True
    ) -> Any:
        outer = self

        class Shown(Progress):
            def __enter__(self) -> "Shown":
                return self

            def __exit__(self, *problem: object) -> None:
                pass

            def advance(self, amount: int = 1, note: str | None = None) -> None:
                outer.after -= amount if label == "training" else 0
                if outer.after == 0 and amount:
                    signal.raise_signal(outer.number)

        return Shown(self, label, unit, total, start, until, speed, None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_training_with_a_checkpoint(number: signal.Signals, digits: Dataset, tmp_path: Path) -> None:
    def die(received: int, frame: object) -> None:
        raise SystemExit(128 + received)

    before = signal.signal(number, die)
    try:
        with pytest.raises(SystemExit) as ended:
            train(digits, tmp_path / "run", config("rnn"), Interrupting(number, after=4), device=CPU)
        assert signal.getsignal(number) is die
    finally:
        signal.signal(number, before)
    assert ended.value.code == 128 + number
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["step-4"]
    run(digits, tmp_path / "run", config("rnn"), resume=True)
    run(digits, tmp_path / "whole", config("rnn"))
    assert same(tensors(tmp_path / "run"), tensors(tmp_path / "whole"))


@pytest.mark.parametrize("metric", ["bleu", "chrf", "nll", "ppl", "accuracy"])
def test_patience_counts_validations_after_the_best(metric: str, digits: Dataset, tmp_path: Path) -> None:
    """With a rate that moves nothing, the first validation is the best and the second and third are the last."""
    frozen = config("rnn", learning_rate=1e-30, patience=2, valid_every=2, max_steps=50, metric=metric)
    result = run(digits, tmp_path / "run", frozen)
    assert (result.step, result.best_step) == (6, 2)
    assert [event["best"] for event in events(tmp_path / "run", "valid")] == [True, False, False]
    assert run(digits, tmp_path / "run", frozen, resume=True).step == 6  # there is nothing left to do


def scripted(monkeypatch: pytest.MonkeyPatch, **scores: list[float]) -> None:
    """Gives each validation in turn these scores, whatever the model; those of other metrics stay at 1."""
    turns = itertools.count()

    def validated(self: Validation, model: Seq2Seq, advance: Callable[[int], None]) -> dict[str, float]:
        turn = next(turns)
        return {name: 1.0 for name in ("nll", "ppl", "accuracy", "bleu", "chrf")} | {name: scores[name][turn] for name in scores}

    monkeypatch.setattr(Validation, "__call__", validated)


@pytest.mark.parametrize(
    ("metric", "scores", "best"),
    [
        ("nll", [4.0, 2.0, 3.0, 1.0, math.nan, 2.0], 4),
        ("ppl", [4.0, 2.0, 2.0, 5.0, 3.0, math.inf], 2),
        ("accuracy", [0.1, 0.4, 0.5, math.nan, 0.5, 0.2], 3),
        ("bleu", [7.0, 9.0, 8.0, 3.0, 30.0, 1.0], 5),
        ("chrf", [0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 1),
    ],
)
def test_the_best_model_is_the_one_the_metric_says(
    metric: str, scores: list[float], best: int, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that are alike the first; what is not a number is never the best."""
    scripted(monkeypatch, **{metric: scores})
    settings = config("rnn", max_steps=6, valid_every=1, save_every=1, keep_last=6, metric=metric)
    result = run(digits, tmp_path / "run", settings)
    assert (result.best_step, result.best_score) == (best, scores[best - 1])
    kept = tensors(tmp_path / "run")
    assert [step for step in range(1, 7) if same(kept, tensors(tmp_path / "run" / "checkpoints" / f"step-{step}"))] == [best]


def test_the_validation_of_a_stop_does_not_wear_patience_out(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unbroken, the validations after updates 2, 4, 6 and 8 would give 5, 4, 4.5 and 4.5; a stop has one after update 3 as well."""
    scripted(monkeypatch, nll=[5.0, 1.0, 4.0, 4.5, 4.5])
    settings = {"patience": 2, "valid_every": 2, "metric": "nll"}
    run(digits, tmp_path / "run", config("rnn", max_steps=3, **settings))
    result = run(digits, tmp_path / "run", config("rnn", max_steps=50, **settings), resume=True)
    assert (result.step, result.best_step, result.best_score) == (8, 3, 1.0)


def test_a_run_at_its_end_is_averaged_if_asked_later(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, nll=[2.0, 1.0])
    settings = {"max_steps": 4, "save_every": 1, "metric": "nll"}
    for average_last, resume in ((0, False), (2, True), (2, True)):
        run(digits, tmp_path / "run", config("rnn", average_last=average_last, **settings), resume=resume)
    assert [event["event"] for event in events(tmp_path / "run") if "best" in event] == ["valid", "average"]
    assert describe(tmp_path / "run")["best"]["nll"] == 1.0  # of the mean, which the run now holds


def test_the_seed_decides_everything(digits: Dataset, tmp_path: Path) -> None:
    logs = []
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        run(digits, tmp_path / name, config("rnn", {"dropout": 0.3}, seed=seed))
        logs.append(events(tmp_path / name))
    assert logs[0] == logs[1]
    assert logs[0][0]["nll"] != logs[2][0]["nll"]


def test_each_micro_batch_has_random_numbers_of_its_own(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of torch's generator when a micro-batch is encoded, over three updates of two each."""
    states: list[bytes] = []
    encode = Rnn.encode

    def spied(self: Rnn, src: torch.Tensor, src_lengths: torch.Tensor) -> Memory:
        if self.training:
            states.append(torch.get_rng_state().numpy().tobytes())
        return encode(self, src, src_lengths)

    monkeypatch.setattr(Rnn, "encode", spied)
    for place in ("one", "again"):
        run(digits, tmp_path / place, config("rnn", max_steps=3, accumulate=2))
    assert len(states) == 12 and len(set(states)) == 6
    assert states[:6] == states[6:]


@pytest.mark.parametrize("r_drop", [0.0, 5.0])
@pytest.mark.parametrize("backend", list(BACKENDS))
def test_an_update_does_not_depend_on_how_it_is_split(backend: str, r_drop: float, digits: Dataset, tmp_path: Path) -> None:
    """The moments after one update are its gradient. (Adam's first step is the gradient's sign: weights would blow up noise.)"""
    found = []
    for accumulate in (1, 2, 5):
        settings = config(backend, accumulate=accumulate, max_steps=1, clip_norm=0.0, r_drop=r_drop)
        run(digits, tmp_path / str(accumulate), settings)
        found.append(tensors(tmp_path / str(accumulate) / "checkpoints" / "step-1", "optimizer.safetensors"))
    for other in found[1:]:
        for name, tensor in found[0].items():
            if name.startswith("exp_avg:"):
                torch.testing.assert_close(other[name], tensor, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("r_drop", [0.0, 5.0])
def test_an_epoch_counts_each_target_token_once(r_drop: float, digits: Dataset, tmp_path: Path) -> None:
    run(digits, tmp_path / "run", config("rnn", max_epochs=2, max_steps=None, accumulate=3, r_drop=r_drop))
    logged = events(tmp_path / "run", "train")
    for epoch in (1, 2):
        assert sum(event["tokens"] for event in logged if event["epoch"] == epoch) == digits.train.lengths[:, 1].sum()
    assert {event["epoch"] for event in logged} == {1, 2}
    assert len(logged) == sum(len(batches(digits.train.lengths, 128, seed=1, epoch=epoch)) for epoch in (0, 1))


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_r_drop_without_dropout_logs_what_one_pass_does(backend: str, digits: Dataset, tmp_path: Path) -> None:
    """With dropout its loss is above, by α times how far the passes are apart."""
    logged: dict[tuple[float, float], list[dict[str, Any]]] = {}
    for dropout, r_drop in ((0.0, 0.0), (0.0, 5.0), (0.3, 1.0), (0.3, 5.0)):
        place = tmp_path / f"{dropout}-{r_drop}"
        run(digits, place, config(backend, {"dropout": dropout}, max_steps=3, learning_rate=1e-4, r_drop=r_drop))
        logged[dropout, r_drop] = events(place, "train")
    for key in ("loss", "nll", "grad_norm", "tokens"):
        one, two = ([event[key] for event in logged[0.0, r_drop]] for r_drop in (0.0, 5.0))
        assert two == pytest.approx(one, rel=1e-4)
    mild, strong = logged[0.3, 1.0][0], logged[0.3, 5.0][0]
    assert strong["nll"] == pytest.approx(mild["nll"], rel=1e-6)
    assert strong["loss"] > mild["loss"] > 0


def test_the_log_has_the_rate_and_the_norm_of_each_update(digits: Dataset, tmp_path: Path) -> None:
    run(digits, tmp_path / "run", config("rnn", learning_rate=None, warmup=4, max_steps=16, log_every=4))
    logged = events(tmp_path / "run", "train")
    for event in logged:
        t = event["step"]
        assert event["lr"] == pytest.approx(16**-0.5 * min(t**-0.5, t * 4**-1.5), rel=1e-9)
        assert len(event["grad_norms"]) == 4 and event["grad_norms"][-1] == event["grad_norm"] > 0


def test_adadelta_is_its_papers_algorithm(backend: str) -> None:
    """Algorithm 1 of Zeiler 2012, on a parabola a weight, in float64."""
    model = network(backend).double()
    weights = list(model.parameters())
    generator = torch.Generator().manual_seed(1)
    goals = [torch.randn(weight.shape, generator=generator, dtype=torch.float64) for weight in weights]
    expected = [weight.detach().clone() for weight in weights]
    squares, steps = ([torch.zeros_like(weight) for weight in expected] for _ in range(2))
    rho, epsilon = 0.9, 1e-4
    made = optimizer(model, config(backend, **ADADELTA, adadelta_rho=rho, adadelta_epsilon=epsilon).train)
    for _ in range(20):
        made.zero_grad()
        torch.stack([(weight - goal).square().sum() for weight, goal in zip(weights, goals, strict=True)]).sum().backward()
        made.step()
        for x, goal, square, step in zip(expected, goals, squares, steps, strict=True):
            g = 2 * (x - goal)
            square.copy_(rho * square + (1 - rho) * g**2)
            change = -(step + epsilon).sqrt() / (square + epsilon).sqrt() * g
            step.copy_(rho * step + (1 - rho) * change**2)
            x += change
    for weight, right in zip(weights, expected, strict=True):
        torch.testing.assert_close(weight.detach(), right, rtol=1e-10, atol=1e-12)


def test_adadelta_trains_at_its_own_rate(digits: Dataset, tmp_path: Path) -> None:
    """The first step follows from the first gradient, which its square tells; the loss falls."""
    place = tmp_path / "run"
    run(
        digits, place, config("rnn", max_steps=40, save_every=1, keep_last=99, adadelta_rho=0.95, adadelta_epsilon=1e-6, **ADADELTA)
    )
    logged = events(place, "train")
    assert {event["lr"] for event in logged} == {1.0}
    assert logged[-1]["nll"] < 0.9 * logged[0]["nll"]
    before, after = (tensors(place / "checkpoints" / f"step-{step}") for step in (0, 1))
    kept = tensors(place / "checkpoints" / "step-1", "optimizer.safetensors")
    for name, tensor in after.items():
        mean = kept[f"square_avg:{name}"].double()
        expected = (1e-6 * mean / 0.05 / (mean + 1e-6)).sqrt()
        torch.testing.assert_close((tensor.double() - before[name].double()).abs(), expected, rtol=1e-4, atol=1e-7)


def test_logged_validation_is_what_the_commands_say(digits: Dataset, tmp_path: Path) -> None:
    run(digits, tmp_path / "run", config("rnn", max_steps=60, valid_every=60, valid_beam=3, batch_tokens=256))
    (logged,) = events(tmp_path / "run", "valid")
    translator = Translator.load(tmp_path / "run", device="cpu")
    source, reference = list(read_lines(digits.valid_source)), list(read_lines(digits.valid_target))
    hypotheses = [translation.text for translation in translator.translate(source, Options(Beam(logged["beam"])))]
    assert (logged["bleu"], logged["chrf"]) == validation_scores(hypotheses, reference, None)
    forced = list(translator.log_probs(zip(source, reference, strict=True)))
    tokens = sum(len(each.tokens) for each in forced)
    assert logged["nll"] == pytest.approx(-sum(each.log_prob for each in forced) / tokens, abs=1e-5)
    assert logged["ppl"] == pytest.approx(math.exp(logged["nll"]))


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_nothing_is_learned_where_there_is_nothing_to_learn(backend: str, tmp_path: Path) -> None:
    """Digits with unrelated digits, as many: a decoder that saw the future would be right each time."""
    sources, targets = ([a for a, _ in reversed_digits(600, seed, 6)] for seed in (3, 4))
    data = dataset(tmp_path / "corpus", list(zip(sources, targets, strict=True)), valid=100)
    run(data, tmp_path / "run", config(backend, {"width": 32}, max_steps=120, batch_tokens=256, metric="nll"))
    (logged,) = events(tmp_path / "run", "valid")
    assert logged["accuracy"] < 0.3  # one digit in ten by chance, and some of the ends
    assert logged["nll"] > 1.7


def poisoned(steps: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the loss of the calls for which `steps` is true no number."""
    calls = iter(range(1, 10**6))
    original = loss.backward

    def backward(*arguments: Any) -> loss.Sums:
        sums = original(*arguments)
        return sums + loss.Sums(torch.tensor(math.nan), torch.tensor(0.0), torch.tensor(0), 0) if steps(next(calls)) else sums

    monkeypatch.setattr(loss, "backward", backward)


def test_an_update_that_is_not_finite_is_skipped(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned(lambda call: call in (3, 4), monkeypatch)
    run(digits, tmp_path / "run", config("rnn", max_steps=6, save_every=1, keep_last=6, valid_every=4, metric="nll"))
    kept = tensors(tmp_path / "run")  # the best of updates 4 and 6
    steps = {int(path.name.removeprefix("step-")): tensors(path) for path in checkpoints(tmp_path / "run")}
    assert list(steps) == [1, 2, 5, 6]  # none while updates are skipped
    assert not same(steps[2], steps[5]) and same(kept, steps[6])
    assert [event["step"] for event in events(tmp_path / "run", "skipped")] == [3, 4]
    third = events(tmp_path / "run", "train")[2]
    assert third["loss"] is None and third["tokens"] == 0 and third["skipped"] == 1


def test_too_many_bad_updates_end_the_run_and_keep_its_checkpoint(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(lambda call: call > 7, monkeypatch)
    advice = r"10 updates in a row.*the last good model is (\S+step-6): begin another run with --init-from \1 and .*learning_rate"
    with pytest.raises(NmtError, match=advice):
        run(digits, tmp_path / "run", config("rnn", max_steps=50, save_every=1, keep_last=2))
    # Those of update 7 may be what gave no numbers.
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["step-6", "step-7"]
    monkeypatch.undo()
    run(digits, tmp_path / "other", config("rnn", learning_rate=0.001, max_steps=2), init_from=checkpoints(tmp_path / "run")[0])


@pytest.mark.parametrize("valid_every", [2, 100])
def test_a_checkpoint_of_weights_that_gave_no_numbers_is_not_called_good(
    valid_every: int, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the best model by validation is, where there is one."""
    poisoned(lambda call: call > 4, monkeypatch)
    settings = config("rnn", save_every=4, max_steps=50, keep_last=1, valid_every=valid_every, metric="nll")
    advice = (
        r"the last good model is (\S+run): begin another run with --init-from \1 and"
        if valid_every == 2
        else "begin another run with"
    )
    with pytest.raises(NmtError, match=rf"has diverged; {advice} a lower train.learning_rate"):
        run(digits, tmp_path / "run", settings)


def test_a_checkpoint_due_while_updates_are_skipped_comes_after_them(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a run that was stopped in their midst: it goes on from the one before, and ends the same."""
    for name, stops in (("whole", [12]), ("parts", [7, 12])):
        before = 0
        for stop in stops:
            # After a stop at 7 the run goes on from the checkpoint of update 4: the calls are numbered from there.
            with monkeypatch.context() as patched:
                poisoned(lambda call, before=before: call + before in (5, 6, 7), patched)
                settings = config("rnn", {"dropout": 0.2}, max_steps=stop, save_every=2, keep_last=9, valid_every=100, metric="nll")
                run(digits, tmp_path / name, settings, resume=before > 0)
            names = [path.name for path in checkpoints(tmp_path / name)]
            assert names == ([f"step-{step}" for step in (2, 4, 8, 10, 12) if step <= stop])
            before = 4
    whole, parts = (tmp_path / name / "checkpoints" / "step-12" for name in ("whole", "parts"))
    assert same(tensors(whole), tensors(parts))
    assert same(tensors(whole, "optimizer.safetensors"), tensors(parts, "optimizer.safetensors"))
    assert events(tmp_path / "whole") == events(tmp_path / "parts")


def test_a_signal_while_updates_are_skipped_says_where_it_goes_on(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(lambda call: call > 2, monkeypatch)
    console, said = Interrupting(signal.SIGINT, after=4), []
    monkeypatch.setattr(console, "say", said.append)
    with pytest.raises(KeyboardInterrupt):
        train(digits, tmp_path / "run", config("rnn", save_every=2), console, device=CPU)
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["step-2"]
    assert "after update 4; go on with --resume, from" in said[-1] and "step-2" in said[-1]


@pytest.mark.parametrize("where", ["weights", "forced", "translated"])
def test_no_numbers_in_a_validation_end_the_run_with_what_to_do(
    where: str, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of an update's numbers were good, and what it made of the weights shows when they are used next."""
    scored, stepped, steps = Validation._forced, torch.optim.Adam.step, []

    def forced(self: Validation, model: Seq2Seq) -> dict[str, float]:
        if where != "weights":
            monkeypatch.setattr(type(model), "log_probs", lambda self, hidden: self.logits(hidden) * math.nan)
        if where == "forced":
            monkeypatch.setattr(type(model), "logits", lambda self, hidden: hidden.new_full((*hidden.shape[:-1], 20), math.nan))
        return scored(self, model)

    def step(self: torch.optim.Adam, *arguments: Any) -> None:
        stepped(self, *arguments)
        steps.append(0)
        if where == "weights" and len(steps) == 3:
            self.param_groups[0]["params"][0].data.fill_(math.nan)

    monkeypatch.setattr(Validation, "_forced", forced)
    monkeypatch.setattr(torch.optim.Adam, "step", step)
    what = "after update 3 the weights" if where == "weights" else "in the validation after update 3 "
    with pytest.raises(NmtError, match=rf"{what}.* the training in \S+run has diverged; .* --init-from \S+step-0 and"):
        run(digits, tmp_path / "run", config("rnn", valid_every=3, save_every=100))


def test_weights_that_are_not_finite_are_never_saved(digits: Dataset, tmp_path: Path) -> None:
    with pytest.raises(NmtError, match=r"not (a )?finite number"):
        run(digits, tmp_path / "run", config("rnn", learning_rate=1e38, warmup=0, save_every=1))
    for kept in checkpoints(tmp_path / "run"):
        assert all(tensor.isfinite().all() for tensor in tensors(kept).values())


def test_weights_that_are_not_finite_are_never_the_best(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of NaN translates to nothing, and bleu 0 is better than no bleu yet."""

    def validated(self: Validation, model: Seq2Seq, advance: Callable[[int], None]) -> dict[str, float]:
        with torch.no_grad():
            next(model.parameters()).fill_(math.nan)
        return {"bleu": 0.0}

    monkeypatch.setattr(Validation, "__call__", validated)
    with pytest.raises(NmtError, match=r"after update 1 the weights are not finite .*step-0"):
        run(digits, tmp_path / "run", config("rnn", valid_every=1, save_every=100))
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_out_of_memory_names_the_shape(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def backward(*arguments: Any) -> loss.Sums:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    monkeypatch.setattr(loss, "backward", backward)
    first = digits.train.lengths[batches(digits.train.lengths, 128, seed=1, epoch=0)[0]]
    shape = rf"update 1, with {len(first)} pairs of {first[:, 0].max()} source and {first[:, 1].max()} target positions"
    with pytest.raises(NmtError, match=rf"{shape}.*--accumulate"):
        run(digits, tmp_path / "run", config("rnn"))


def test_a_failure_that_is_not_memory_is_not_called_memory(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def backward(*arguments: Any) -> loss.Sums:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(loss, "backward", backward)
    with pytest.raises(RuntimeError, match="shapes differ"):
        run(digits, tmp_path / "run", config("rnn"))


def test_a_place_that_is_taken_is_refused(digits: Dataset, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("important")
    for options in ({}, {"resume": True}):
        with pytest.raises(NmtError, match=r"not empty; give --resume|not a run; it holds thesis\.tex"):
            run(digits, tmp_path / "mine", config("rnn"), **options)
    run(digits, tmp_path / "mine", config("rnn", max_steps=1), overwrite=True)
    with pytest.raises(NmtError, match="--resume to go on with it, --overwrite"):
        run(digits, tmp_path / "mine", config("rnn"))
    run(digits, tmp_path / "mine", config("rnn", max_steps=2), overwrite=True)
    assert [path.name for path in checkpoints(tmp_path / "mine")] == ["step-2"]
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "important"
    with pytest.raises(NmtError, match="no such run"):
        run(digits, tmp_path / "nowhere", config("rnn"), resume=True)
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(NmtError, match="cannot be made"):
        run(digits, tmp_path / "file", config("rnn"))


def test_nothing_is_deleted_before_all_is_checked(digits: Dataset, subwords: Dataset, tmp_path: Path) -> None:
    run(digits, tmp_path / "run", config("rnn", max_steps=1))
    before = tensors(tmp_path / "run" / "checkpoints" / "step-1")
    for data, model, error in (
        (digits, tmp_path / "typo", "no such directory"),
        (subwords, tmp_path / "run" / "checkpoints" / "step-1", "choose another place for the run"),
        (digits, tmp_path / "run", "choose another place for the run"),
    ):
        with pytest.raises(NmtError, match=error):
            run(data, tmp_path / "run", config("rnn"), init_from=model, overwrite=True)
    assert same(before, tensors(tmp_path / "run" / "checkpoints" / "step-1"))
    with pytest.raises(NmtError, match="no such directory"):
        run(digits, tmp_path / "new", config("rnn"), init_from=tmp_path / "typo")
    assert not (tmp_path / "new").exists()


def test_a_run_never_takes_the_place_of_data_or_of_what_is_not_ours(tmp_path: Path) -> None:
    data = dataset(tmp_path / "corpus", reversed_digits(20, seed=1), valid=0)
    for options in ({"overwrite": True}, {"resume": True}, {}):
        with pytest.raises(NmtError, match="is data, not a run"):
            run(data, data.path, config("rnn"), **options)
    Dataset.open(data.path)
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "config.json").write_text("{}")
    with pytest.raises(NmtError, match="not that of a run"):
        run(data, tmp_path / "page", config("rnn"), overwrite=True)
    assert (tmp_path / "page" / "config.json").read_text() == "{}"


@pytest.mark.parametrize("name", ["checkpoints", "log.jsonl", "report.json", "model.safetensors", "source.model"])
def test_what_others_made_under_our_names_is_never_deleted(name: str, digits: Dataset, tmp_path: Path) -> None:
    mine = tmp_path / "mine" / name / "thesis.tex" if name == "checkpoints" else tmp_path / "mine" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("important")
    with pytest.raises(NmtError, match=rf"mine/{name}: is not that of a run, so --overwrite does not delete it"):
        run(digits, tmp_path / "mine", config("rnn"), overwrite=True)
    assert mine.read_text() == "important"
    assert [path for path in (tmp_path / "mine").rglob("*") if path.is_file()] == [mine]


@pytest.mark.parametrize("name", ["notes.txt", "step-1/notes.txt", "step-1/mine", "mine", ".mine", "step-x"])
def test_what_others_put_among_checkpoints_is_never_deleted(name: str, digits: Dataset, tmp_path: Path) -> None:
    run(digits, tmp_path / "run", config("rnn", max_steps=1))
    mine = tmp_path / "run" / "checkpoints" / name
    mine = mine if name.endswith(".txt") else mine / "thesis.tex"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("important")
    with pytest.raises(NmtError, match=rf"checkpoints/{name}: is not that of a run, so --overwrite does not delete it"):
        run(digits, tmp_path / "run", config("rnn"), overwrite=True)
    assert mine.read_text() == "important"
    load_model(tmp_path / "run" / "checkpoints" / "step-1")


def test_checkpoints_may_be_a_link_to_another_disk(digits: Dataset, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "disk")
    run(digits, tmp_path / "run", config("rnn", max_steps=3))
    run(digits, tmp_path / "run", config("rnn", max_steps=2), overwrite=True)
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["step-2"]
    assert (tmp_path / "run" / "checkpoints").is_symlink()
    (tmp_path / "disk").rename(tmp_path / "gone")
    for options in ({"overwrite": True}, {"resume": True}):
        with pytest.raises(NmtError, match="checkpoints: is a link to nothing"):
            run(digits, tmp_path / "run", config("rnn"), **options)
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_a_run_is_not_begun_among_the_checkpoints_of_another(digits: Dataset, tmp_path: Path) -> None:
    run(digits, tmp_path / "run", config("rnn", max_steps=1))
    with pytest.raises(NmtError, match="is among the checkpoints of the run"):
        run(digits, tmp_path / "run" / "checkpoints" / "step-9", config("rnn"))
    assert not (tmp_path / "run" / "checkpoints" / "step-9").exists()


DAMAGED = ["report.json", "train.source.tokens", "train.target.tokens", "train.source.offsets", "valid.target.txt"]


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_data_is_refused_before_anything_is_deleted(name: str, tmp_path: Path) -> None:
    data = dataset(tmp_path / "corpus", reversed_digits(60, seed=1), valid=5)
    run(data, tmp_path / "run", config("rnn", max_steps=2))
    before = tensors(tmp_path / "run" / "checkpoints" / "step-2")
    path = data.path / name
    if name == "report.json":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[8] ^= 1  # another token, another offset that still ascends, another character: nothing else would tell
        path.write_bytes(content)
    data = Dataset.open(data.path)
    for options in ({"overwrite": True}, {"resume": True}):
        with pytest.raises(
            NmtError, match=rf"{name}: (no such file|is damaged: its bytes are not those that nmt preprocess wrote)"
        ):
            run(data, tmp_path / "run", config("rnn"), **options)
    assert same(before, tensors(tmp_path / "run" / "checkpoints" / "step-2"))
    assert len(events(tmp_path / "run", "train")) == 2


def test_data_without_checksums_is_trained_on_as_before(digits: Dataset, tmp_path: Path) -> None:
    data = dataset(tmp_path / "corpus", reversed_digits(300, seed=1), valid=20)
    told = json.loads((data.path / "config.json").read_text())
    assert len(told.pop("sha256")) == 11 and told.pop("checksum")
    (data.path / "config.json").write_text(json.dumps(told))
    run(digits, tmp_path / "run", config("rnn", max_steps=1))
    run(Dataset.open(data.path), tmp_path / "run", config("rnn", max_steps=2), resume=True)  # the same data, as it sees


@pytest.mark.parametrize("harm", ["missing", "damaged", "foreign"])
def test_the_settings_of_a_run_whose_configuration_is_lost_are_those_of_its_newest_checkpoint(
    harm: str, digits: Dataset, tmp_path: Path
) -> None:
    words = ["train", str(digits.path), "-o", str(tmp_path / "run"), "--threads", "1", "-q", "--resume"]
    run(digits, tmp_path / "run", config("rnn", max_steps=2))
    path = tmp_path / "run" / "config.json"
    before = path.read_bytes()
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(before.replace(b"0.01", b"0.02") if harm == "damaged" else b"{}")
    assert main([*words, "--max-steps", "3"]) == 0
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["step-3"]
    assert load_model(tmp_path / "run").config["train"]["max_steps"] == 3


def test_a_run_goes_on_to_the_limit_it_was_last_given(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before its next checkpoint, which alone would still say the old one."""
    run(digits, tmp_path / "run", config("rnn", max_steps=2))
    with monkeypatch.context() as patched:
        patched.setattr("nmt.train._Run.run", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(digits, tmp_path / "run", config("rnn", max_steps=4), resume=True)
    assert main(["train", str(digits.path), "-o", str(tmp_path / "run"), "--threads", "1", "-q", "--resume"]) == 0
    assert checkpoints(tmp_path / "run")[-1].name == "step-4"


def test_data_named_as_the_run_to_resume_is_called_data(digits: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(digits.path), "-o", str(digits.path), "--resume"]) == 1
    assert "data: is data, not a run" in capsys.readouterr().err


def test_a_checkpoint_without_its_configuration_can_be_deleted(digits: Dataset, tmp_path: Path) -> None:
    run(digits, tmp_path / "run", config("rnn", max_steps=2))
    (tmp_path / "run" / "checkpoints" / "step-2" / "config.json").unlink()
    with pytest.raises(NmtError, match=r"step-2/config\.json: no such file; a damaged checkpoint can be deleted"):
        run(digits, tmp_path / "run", config("rnn"), resume=True)


def test_data_with_nothing_to_validate_on_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blank = dataset(tmp_path / "corpus", [*reversed_digits(50, seed=1), ("", "1"), (" ", "")], valid=2)
    none = dataset(tmp_path / "other", reversed_digits(50, seed=1), valid=0)
    for number, data in enumerate((blank, none)):
        train(data, tmp_path / str(number), config("rnn", max_steps=1), Console(), device=CPU)
        told = f"{data.path}: holds no pairs to validate with, so nothing is validated: the last model is the one kept"
        assert told in capsys.readouterr().err.splitlines()


def test_a_network_that_does_not_fit_into_memory_is_said(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*arguments: Any) -> Seq2Seq:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    monkeypatch.setattr("nmt.learning.build", build)
    with pytest.raises(NmtError, match=r"out of memory for the network itself: choose a smaller --size"):
        run(digits, tmp_path / "run", config("rnn"))
    assert not (tmp_path / "run").exists()


def test_two_processes_do_not_train_in_one_place(digits: Dataset, tmp_path: Path) -> None:
    with opened(tmp_path / "run", False, False), pytest.raises(NmtError, match="another process is training there"):
        run(digits, tmp_path / "run", config("rnn"))
    run(digits, tmp_path / "run", config("rnn", max_steps=1))


def test_a_run_begun_before_a_setting_was_known_goes_on_with_its_default(digits: Dataset, tmp_path: Path) -> None:
    run(digits, tmp_path / "run", config("rnn", max_steps=2))
    places = [tmp_path / "run", *checkpoints(tmp_path / "run")]
    for place in places:
        described = {key: value for key, value in json.loads((place / "config.json").read_text()).items() if key != "sha256"}
        for key in ("r_drop", "optimizer", "adadelta_rho", "adadelta_epsilon"):
            del described["train"][key]
        write_json(place / "config.json", sealed(described, "sha256"))
    with pytest.raises(UsageError, match=r"cannot change: train\.r_drop \(0\.0, not 5\.0\);"):
        run(digits, tmp_path / "run", config("rnn", max_steps=4, r_drop=5.0), resume=True)
    assert run(digits, tmp_path / "run", config("rnn", max_steps=4), resume=True).step == 4


def test_a_resumed_run_refuses_other_settings_by_name(digits: Dataset, subwords: Dataset, tmp_path: Path) -> None:
    run(digits, tmp_path / "run", config("rnn", max_steps=2))
    for change, name in (
        (config("rnn", learning_rate=0.02), "train.learning_rate"),
        (config("rnn", **ADADELTA), "train.optimizer"),
        (config("rnn", batch_tokens=64), "train.batch_tokens"),
        (config("rnn", {"width": 8}), "model.width"),
        (config("rnn", bpe_dropout=0.1), "data.bpe_dropout"),
    ):
        with pytest.raises(UsageError, match=rf"{name}|--tokenizer bpe"):
            run(digits, tmp_path / "run", change, resume=True)
    with pytest.raises(NmtError, match=r"not the data .* --init-from"):
        run(subwords, tmp_path / "run", config("rnn", max_steps=4), resume=True)
    run(digits, tmp_path / "run", config("rnn", max_steps=4, save_every=7, keep_last=2), resume=True)


def test_with_a_schedule_that_ends_at_max_steps_it_cannot_change(digits: Dataset, tmp_path: Path) -> None:
    run(digits, tmp_path / "run", config("rnn", max_steps=6, schedule="linear"))
    with pytest.raises(UsageError, match=r"train\.max_steps \(6, not 8\)"):
        run(digits, tmp_path / "run", config("rnn", max_steps=8, schedule="linear"), resume=True)


def test_to_begin_from_another_model(digits: Dataset, subwords: Dataset, tmp_path: Path) -> None:
    run(digits, tmp_path / "first", config("rnn", max_steps=3))
    frozen = config("rnn", learning_rate=1e-30, max_steps=1, seed=5)
    run(digits, tmp_path / "second", frozen, init_from=tmp_path / "first")
    assert same(tensors(tmp_path / "first"), tensors(tmp_path / "second"))
    sizes = rf"vocabulary of {len(digits.source)} subwords .* of {len(subwords.source)}; .*--vocab-from"
    with pytest.raises(NmtError, match=sizes):
        run(subwords, tmp_path / "third", config("rnn"), init_from=tmp_path / "first")
    with pytest.raises(NmtError, match=r"model\.width \(16, not 8\)"):
        run(digits, tmp_path / "fourth", config("rnn", {"width": 8}), init_from=tmp_path / "first")
    with pytest.raises(UsageError, match="--init-from"):
        run(digits, tmp_path / "first", config("rnn"), init_from=tmp_path / "first", resume=True)


def test_a_run_killed_before_its_first_checkpoint_begins_with_the_model_it_was_given(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(digits, tmp_path / "first", config("rnn", max_steps=3))
    frozen = config("rnn", learning_rate=1e-30, max_steps=1, seed=5)
    with monkeypatch.context() as patched:
        patched.setattr("nmt.checkpoint.save_checkpoint", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(digits, tmp_path / "second", frozen, init_from=tmp_path / "first")
    run(digits, tmp_path / "second", frozen, resume=True)
    assert same(tensors(tmp_path / "first"), tensors(tmp_path / "second"))


def test_what_cannot_be_is_refused_before_anything_is_made(digits: Dataset, tmp_path: Path) -> None:
    for settings, message in (
        (config("rnn", batch_tokens=6), r"pair \d+ .* has \d positions, more than --batch-tokens 6"),
        (config("rnn", bpe_dropout=0.1), "--tokenizer bpe, not word"),
        (config("rnn", precision="float16"), "needs a GPU"),
        (config("transformer", teacher_forcing=0.5), "for the rnn backend, not for transformer"),
    ):
        with pytest.raises(NmtError, match=message):
            run(digits, tmp_path / "run", settings)
        assert not (tmp_path / "run").exists()


def test_without_validation_data_the_last_model_is_the_one_kept(tmp_path: Path) -> None:
    data = dataset(tmp_path / "corpus", reversed_digits(50, seed=1), valid=0)
    with pytest.raises(UsageError, match=r"patience needs validation data"):
        run(data, tmp_path / "run", config("rnn", patience=2))
    result = run(data, tmp_path / "run", config("rnn", max_steps=3))
    assert result.best_score is None
    assert same(tensors(tmp_path / "run"), tensors(tmp_path / "run" / "checkpoints" / "step-3"))


def test_without_validation_data_the_model_of_a_checkpoint_is_kept_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the checkpoint, a run would not keep its model again."""
    data = dataset(tmp_path / "corpus", reversed_digits(50, seed=1), valid=0)
    written = checkpoint.save_checkpoint

    def killed(run: Path, step: int, *arguments: Any) -> Path:
        path = written(run, step, *arguments)
        if step == 2:
            raise KeyboardInterrupt
        return path

    monkeypatch.setattr(checkpoint, "save_checkpoint", killed)
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path / "run", config("rnn", max_steps=3, save_every=1))
    assert same(tensors(tmp_path / "run"), tensors(tmp_path / "run" / "checkpoints" / "step-2"))


@pytest.mark.parametrize(("last", "mean"), [(2.0, 1.5), (1.5, 2.0)])
def test_the_mean_of_the_last_checkpoints_competes(
    last: float, mean: float, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, nll=[last, mean])
    run(digits, tmp_path / "run", config("rnn", max_steps=6, save_every=1, keep_last=3, average_last=3, metric="nll"))
    kept = [tensors(path) for path in checkpoints(tmp_path / "run")]
    means = {name: torch.stack([each[name].double() for each in kept]).mean(0).float() for name in kept[0]}
    assert [(event["event"], event["nll"], event["best"]) for event in events(tmp_path / "run") if "best" in event] == [
        ("valid", last, True),
        ("average", mean, mean < last),
    ]
    assert same(tensors(tmp_path / "run"), means if mean < last else kept[-1])


def test_time_is_up(digits: Dataset, tmp_path: Path) -> None:
    result = run(digits, tmp_path / "run", config("rnn", max_steps=500, max_minutes=1e-6))
    assert "minutes" in result.reason and result.step < 3
    assert load_model(tmp_path / "run").config["train"]["max_minutes"] == 1e-6


def test_low_precision_trains_on_a_cpu(digits: Dataset, tmp_path: Path) -> None:
    losses = []
    for precision in ("float32", "bfloat16"):
        run(digits, tmp_path / precision, config("rnn", precision=precision, max_steps=20))
        losses.append([event["nll"] for event in events(tmp_path / precision, "train")])
        assert {tensor.dtype for tensor in tensors(tmp_path / precision).values()} == {torch.float32}
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_scheduled_sampling_in_low_precision_trains_every_weight(digits: Dataset, tmp_path: Path) -> None:
    """A weight without gradient has no moments. (Only older versions of torch, of those allowed, get this wrong by themselves.)"""
    for name, settings in (("forced", {}), ("sampled", {"teacher_forcing": 0.5})):
        run(digits, tmp_path / name, config("rnn", max_steps=1, precision="bfloat16", **settings))
    forced, sampled = (
        tensors(tmp_path / name / "checkpoints" / "step-1", "optimizer.safetensors") for name in ("forced", "sampled")
    )
    assert forced.keys() == sampled.keys()


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_scheduled_sampling_has_all_target_tokens_in_its_loss(share: float, digits: Dataset, tmp_path: Path) -> None:
    for name, settings in (("forced", {}), ("sampled", {"teacher_forcing": share}), ("again", {"teacher_forcing": share})):
        run(digits, tmp_path / name, config("rnn", max_steps=5, **settings))
    forced, sampled, again = (events(tmp_path / name, "train") for name in ("forced", "sampled", "again"))
    assert [event["tokens"] for event in sampled] == [event["tokens"] for event in forced]
    assert [event["nll"] for event in sampled] != [event["nll"] for event in forced]
    assert sampled == again
    run(digits, tmp_path / "decaying", config("rnn", max_steps=5, teacher_forcing_end=0.0))
    decaying = events(tmp_path / "decaying", "train")
    assert decaying[0] == forced[0] and decaying[-1]["nll"] != forced[-1]["nll"]


def test_a_size_that_is_typed_wins_over_the_file(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []
    monkeypatch.setattr("nmt.train.train", lambda dataset, run, config, console, **options: widths.append(config.model.width))
    file = tmp_path / "recipe.toml"
    file.write_text('[model]\nwidth = 64\n[train]\nsize = "small"\n')
    words = ["train", str(digits.path), "-o", str(tmp_path / "run"), "--backend", "rnn", "--config", str(file), "--threads", "1"]
    for more in ([], ["--size", "tiny"], ["--size", "tiny", "--set", "model.width=32"]):
        assert main([*words, *more]) == 0
    assert widths == [64, 256, 32]


def test_a_console_says_what_is_trained_and_how_it_ended(
    digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(digits, tmp_path / "run", config("rnn", max_steps=2), Console(), device=CPU)
    captured = capsys.readouterr()
    assert captured.out == ""
    first, *_, last = captured.err.splitlines()
    parameters = sum(tensor.numel() for tensor in load_model(tmp_path / "run").model.parameters())
    assert f"{parameters:,} parameters" in first and f"{len(digits.train):,} pairs" in first and "updates an epoch" in first
    assert "2 updates are done" in last and str(tmp_path / "run") in last
    train(digits, tmp_path / "quiet", config("rnn", max_steps=2), QUIET, device=CPU)
    assert capsys.readouterr() == ("", "")
