"""What must hold on a GPU, seen without one: tensors on the device `meta` have shapes but no numbers; to ask for one fails."""

import functools
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt import loss
from nmt.config import Config
from nmt.data.shards import Dataset
from nmt.learning import Training, feed, new_network
from nmt.preflight import compiled
from tests.toys import QUIET, config, dataset, events, run, words

META = torch.device("meta")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Its first update has sources and targets of one length."""
    longest = " ".join(word for word, _ in words(6, 2))
    return dataset(
        tmp_path_factory.mktemp("gpu") / "made", [*words(200, 1), *[(longest, longest)] * 3], 0, tokenizer="bpe", vocab_size=60
    )


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes of the tensors whose numbers the host asked for by `tolist`; it gets ones. `meta` stands for a GPU."""
    asked: list[torch.Size] = []

    def tolist(tensor: Tensor) -> list[float]:
        asked.append(tensor.shape)
        return [1.0] * len(tensor)

    adam = torch.optim.Adam
    monkeypatch.setattr(Tensor, "tolist", tolist)
    monkeypatch.setattr(Training, "autocast", lambda self, cache=True: nullcontext())  # knows no such device
    monkeypatch.setattr(torch.optim, "Adam", lambda *arguments, fused, **named: adam(*arguments, **named))  # nor does this kernel
    monkeypatch.setitem(loss.CHUNK, "meta", 40 * 60)
    return asked


def updates(data: Dataset, settings: Config, count: int, place: Path, compile: bool = False) -> Training:
    """A training after so many updates."""
    model = new_network(data, settings).to(META)
    learner = Training(settings, QUIET, model, META, torch.float32, compile)
    for update in itertools.islice(feed(data, settings, model, place).updates(0, 0), count):
        learner.update(update)
    return learner


@pytest.mark.parametrize("more", [{}, {"r_drop": 5.0}, {"optimizer": "adadelta", "schedule": "constant", "warmup": 0}])
def test_an_update_waits_for_the_device_once(more: dict[str, Any], data: Dataset, tmp_path: Path, waits: list[torch.Size]) -> None:
    settings = config("transformer", {"dropout": 0.1}, **{"clip_norm": 1.0, "accumulate": 2, **more})
    assert updates(data, settings, 3, tmp_path).state.step == 3
    assert waits == [torch.Size([3])] * 3


@pytest.mark.parametrize("r_drop", [0.0, 5.0])
@pytest.mark.usefixtures("waits")
def test_batches_of_all_shapes_are_compiled_once(
    r_drop: float, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend, fullgraph=True))
    settings = config("transformer", {"dropout": 0.1}, batch_tokens=300, r_drop=r_drop)
    learner = updates(data, settings, 12, tmp_path, compile=True)
    coming = feed(data, settings, learner.model, tmp_path).updates(0, 0)
    batches = [update.parts[0] for update in itertools.islice(coming, 12)]
    assert batches[0].src.shape == batches[0].prefix.shape and any(batch.src.shape != batch.prefix.shape for batch in batches)
    assert len({batch.src.shape for batch in batches}) > 5
    # The network, and the loss once for the first number of rows and once for any.
    assert len(graphs) == 3, graphs


@pytest.mark.parametrize("r_drop", [0.0, 5.0])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler's own, where a graph ends midway
def test_a_compiled_training_goes_the_same_way(
    r_drop: float, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, and with what the compiler makes of the operations but not the kernels it would write, which take a minute."""
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    losses = []
    for compile in (False, True):
        place = tmp_path / str(compile)
        run(data, place, config("transformer", accumulate=2, max_steps=5, label_smoothing=0.1, r_drop=r_drop), compile=compile)
        losses.append([(event["loss"], event["nll"], event["grad_norm"]) for event in events(place, "train")])
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-4, atol=0)


def test_a_network_that_would_be_compiled_for_each_length_is_not_unless_asked() -> None:
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    for backend, suits in (("transformer", True), ("rnn", False)):
        settings = config(backend)
        assert compiled(settings, gpu, None) == suits and not compiled(settings, cpu, None)
        assert compiled(settings, cpu, True) and not compiled(settings, gpu, False)
