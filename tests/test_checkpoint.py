"""Models and checkpoints on disk: what comes back, what damage is seen, what is never lost."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from nmt import checkpoint
from nmt.checkpoint import (
    average,
    checkpoints,
    latest_checkpoint,
    load_checkpoint,
    load_model,
    read_config,
    remove_leftovers,
    remove_old,
    resolve,
    rewrite_state,
    save_checkpoint,
    save_model,
    weights,
)
from nmt.config import Config
from nmt.data.subword import Recipe, Subword, train_subword
from nmt.errors import NmtError
from nmt.models import BACKENDS, build
from nmt.models.base import Seq2Seq
from nmt.run import Log
from tests.memory import output_of, peak
from tests.toys import config, words


@cache
def trained_subword(seed: int) -> Subword:
    """Two seeds, two vocabularies of one size."""
    recipe = Recipe("bpe", 40, "nmt_nfkc", lowercase=False, character_coverage=1.0, byte_fallback=False)
    return train_subword([line for pair in words(100, seed) for line in pair], recipe, "words").subword


def network(settings: Config, seed: int, vocabulary: int = 1) -> Seq2Seq:
    torch.manual_seed(seed)
    subword = trained_subword(vocabulary)
    return build(settings.backend, settings.model, len(subword), len(subword), True)


def described(settings: Config) -> dict[str, object]:
    subword = trained_subword(1)
    sizes = {"source": len(subword), "target": len(subword), "shared": True}
    return {**settings.to_dict(), "vocabulary": sizes, "languages": ["en", None]}


def saved(place: Path, backend: str = "rnn", seed: int = 1, vocabulary: int = 1, **model: object) -> Seq2Seq:
    settings, subword = config(backend, model), trained_subword(vocabulary)
    network_ = network(settings, seed, vocabulary)
    place.mkdir(parents=True)
    save_model(place, network_, described(settings), subword, subword)
    return network_


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_a_model_comes_back_wherever_its_directory_is_moved(backend: str, tmp_path: Path) -> None:
    model = saved(tmp_path / "here", backend).eval()
    (tmp_path / "here").rename(tmp_path / "there")
    loaded = load_model(tmp_path / "there")
    assert equal(weights(model), weights(loaded.model)) and not loaded.model.training
    assert loaded.source.fingerprint == loaded.target.fingerprint == trained_subword(1).fingerprint
    assert loaded.config["languages"] == ["en", None] and loaded.config["model"]["backend"] == backend
    src, lengths, prefix = torch.tensor([[7, 8, 3]]), torch.tensor([3]), torch.tensor([[2, 9]])
    with torch.no_grad():
        assert torch.equal(model(src, lengths, prefix), loaded.model(src, lengths, prefix))


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_what_is_tied_is_saved_once_and_still_tied(backend: str, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", backend, tie_embeddings=True)
    size = sum(parameter.numel() for parameter in model.parameters())
    with safe_open(tmp_path / "model" / "model.safetensors", framework="pt") as file:
        assert sum(file.get_tensor(name).numel() for name in file.keys()) == size  # noqa: SIM118
    loaded = load_model(tmp_path / "model").model
    assert len({tensor.data_ptr() for tensor in loaded.state_dict().values()}) < len(loaded.state_dict())


def test_the_same_model_is_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        saved(tmp_path / name)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def middle(data: bytes) -> bytes:
    half = len(data) // 2
    return data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "flipped in the middle": middle,
    "flipped at the end": lambda data: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:],
    "truncated": lambda data: data[: len(data) * 2 // 3],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"\0" * 8,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "source.model", "target.model"])
def test_damage_is_seen_and_the_file_named(name: str, damage: str, tmp_path: Path) -> None:
    saved(tmp_path / "model")
    path = tmp_path / "model" / name
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(NmtError, match=rf"{name}"):
        load_model(tmp_path / "model")


@pytest.mark.parametrize("name", ["model.safetensors", "source.model", "target.model"])
def test_a_file_that_is_missing_or_of_another_model_is_named(name: str, tmp_path: Path) -> None:
    """The other model has the same shapes: only checksums tell them apart."""
    saved(tmp_path / "one")
    saved(tmp_path / "two", vocabulary=2)
    saved(tmp_path / "three", start="eos")
    assert len(trained_subword(1)) == len(trained_subword(2))
    shutil.copy(tmp_path / "two" / name, tmp_path / "one" / name)
    with pytest.raises(NmtError, match=rf"{name}.*another model"):
        load_model(tmp_path / "one")
    shutil.copy(tmp_path / "three" / "model.safetensors", tmp_path / "two")
    with pytest.raises(NmtError, match=r"model\.safetensors.*another model"):
        load_model(tmp_path / "two")
    (tmp_path / "three" / name).unlink()
    with pytest.raises(NmtError, match=name):
        load_model(tmp_path / "three")


def test_a_newer_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    saved(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": checkpoint.FORMAT + 1, "version": "9.9"}))
    with pytest.raises(NmtError, match=r"nmt 9\.9 in format 2.*install a newer nmt"):
        load_model(tmp_path / "model")


HEADERS = [
    b"\xff" * 8,
    struct.pack("<Q", 1 << 40),
    struct.pack("<Q", 99_000_000) + b"{" * 1000,
    *(
        struct.pack("<Q", len(text)) + text
        for text in (
            b'{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,18446744073709551615]}}',
            b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}',
            b"[" * 100_000,
        )
    ),
]


def test_an_absurd_header_takes_no_memory(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from nmt.checkpoint import load_model
from nmt.errors import NmtError
from tests.memory import peak

load_model(Path(sys.argv[1]))
before = peak()
for path in sys.argv[2:]:
    try:
        load_model(Path(path))
    except NmtError as error:
        print(error)
print(peak() - before)
"""
    peak()  # skips where there is no telling
    saved(tmp_path / "good")
    places = [tmp_path / f"header-{number}" for number in range(len(HEADERS))]
    for place, header in zip(places, HEADERS, strict=True):
        shutil.copytree(tmp_path / "good", place)
        (place / "model.safetensors").write_bytes(header)
    *errors, grown = output_of(program, tmp_path / "good", *places).splitlines()
    for place, error in zip(places, errors, strict=True):
        assert error.startswith(f"{place / 'model.safetensors'}: is damaged or not a safetensors file")
    assert int(grown) < 50_000_000


def test_settings_that_do_not_fit_the_weights_are_refused_before_memory_is_taken(tmp_path: Path) -> None:
    model = saved(tmp_path / "model")
    settings = described(config("rnn", {"width": 200_000}))
    (tmp_path / "absurd").mkdir()
    save_model(tmp_path / "absurd", model, settings, trained_subword(1), trained_subword(1))
    with pytest.raises(NmtError, match=r"model\.safetensors: its tensor .* has the shape"):
        load_model(tmp_path / "absurd")


def test_what_is_no_model_is_said_to_be_what_it_looks_like(tmp_path: Path) -> None:
    saved(tmp_path / "run")
    assert resolve(tmp_path / "run") == tmp_path / "run"
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "config.json").write_text('{"kind": "data"}')
    (tmp_path / "young" / "checkpoints" / "step-5").mkdir(parents=True)
    for name, message in {
        "nowhere": "no such directory",
        "file": "is a file; a model is a directory",
        "empty": r"not a model: it has no config\.json",
        "data": r"data of `nmt preprocess`, name the run",
        "young": r"without a best model.*checkpoints/step-5",
        "young/checkpoints": r"holds checkpoints; name one of them, or the run .*young",
    }.items():
        with pytest.raises(NmtError, match=message):
            load_model(tmp_path / name)


def updated(model: Seq2Seq, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    torch.manual_seed(3)
    hidden = model(torch.tensor([[7, 8, 3]]), torch.tensor([3]), torch.tensor([[2, 9]]))
    model.logits(hidden).square().sum().backward()
    optimizer.step()


def stepped(run: Path, steps: int, keep_last: int = 3) -> tuple[Seq2Seq, torch.optim.Optimizer]:
    """A run of `steps` updates, each with its checkpoint."""
    settings, subword = config("rnn"), trained_subword(1)
    model = network(settings, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    (run / "checkpoints").mkdir(parents=True)
    for step in range(1, steps + 1):
        updated(model, optimizer)
        save_checkpoint(run, step, model, optimizer, {"step": step, "half": 0.1 + 0.2}, described(settings), subword, subword)
        remove_old(run, keep_last)
    return model, optimizer


def test_training_goes_on_from_a_checkpoint_as_from_memory(tmp_path: Path) -> None:
    model, optimizer = stepped(tmp_path, 3)
    again = network(config("rnn"), seed=2)
    resumed = torch.optim.Adam(again.parameters(), fused=True)
    state = load_checkpoint(tmp_path / "checkpoints" / "step-3", again, resumed)
    assert (state["step"], state["half"]) == (3, 0.1 + 0.2)
    for network_, optimizer_ in ((model, optimizer), (again, resumed)):
        updated(network_, optimizer_)
    assert equal(weights(model), weights(again))


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["state.json", "optimizer.safetensors", "model.safetensors"])
def test_a_damaged_checkpoint_is_seen(name: str, damage: str, tmp_path: Path) -> None:
    model, optimizer = stepped(tmp_path, 2)
    path = tmp_path / "checkpoints" / "step-2" / name
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(NmtError, match=name):
        load_checkpoint(path.parent, model, optimizer)
    load_checkpoint(path.parent.with_name("step-1"), model, optimizer)


@pytest.mark.parametrize("name", ["state.json", "optimizer.safetensors", "model.safetensors"])
def test_a_checkpoint_that_lacks_a_file_can_be_deleted(name: str, tmp_path: Path) -> None:
    model, optimizer = stepped(tmp_path, 2)
    (tmp_path / "checkpoints" / "step-2" / name).unlink()
    with pytest.raises(NmtError, match=rf"{name}: no such file; a damaged checkpoint can be deleted"):
        load_checkpoint(tmp_path / "checkpoints" / "step-2", model, optimizer)


@pytest.mark.parametrize("name", ["state.json", "optimizer.safetensors", "model.safetensors"])
def test_files_of_two_checkpoints_do_not_mix(name: str, tmp_path: Path) -> None:
    model, optimizer = stepped(tmp_path, 2)
    shutil.copy(tmp_path / "checkpoints" / "step-1" / name, tmp_path / "checkpoints" / "step-2")
    with pytest.raises(NmtError, match=r"belongs to (other|another)"):
        load_checkpoint(tmp_path / "checkpoints" / "step-2", model, optimizer)


def test_the_newest_are_kept_in_order_of_their_numbers(tmp_path: Path) -> None:
    assert checkpoints(tmp_path) == [] and latest_checkpoint(tmp_path) is None
    stepped(tmp_path, 11, keep_last=3)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-9", "step-10", "step-11"]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-10", "step-11", "step-9"]
    newest = latest_checkpoint(tmp_path)
    assert newest is not None and newest.name == "step-11"
    rewrite_state(newest, {"step": 11, "half": 2})
    assert checkpoint.read_state(newest)["half"] == 2
    for name in (".step-12.77.partial", ".step-8.removed", ".mine", ".mine.8.partial"):
        (tmp_path / "checkpoints" / name).mkdir()
    remove_leftovers(tmp_path)
    assert len(checkpoints(tmp_path)) == 3
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob(".*")) == [".mine", ".mine.8.partial"]


def test_what_a_kill_in_the_midst_of_writing_tensors_leaves_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """safetensors writes into a file of its own, of any name, beside the one it is to make."""

    def killed(tensors: object, path: Path, metadata: object) -> None:
        (path.parent / ".tmpAb12Cd").touch()
        raise KeyboardInterrupt  # like a kill in that nothing is tidied up

    model = saved(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr("nmt.tensors.save_file", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save_weights(tmp_path / "run", model)
    assert sorted(tmp_path.rglob("*")) != before
    remove_leftovers(tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "model")
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nmt.tensors.sync", full)
    with pytest.raises(NmtError, match=r"model\.safetensors: cannot be written \(no space left on device\)"):
        checkpoint.save_weights(tmp_path / "model", network(config("rnn"), seed=2))
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before


def test_the_mean_is_taken_in_float64_of_what_is_named(tmp_path: Path) -> None:
    models = [saved(tmp_path / str(seed), seed=seed) for seed in (1, 2, 3)]
    paths = [tmp_path / str(seed) for seed in (1, 2, 3)]
    assert average(paths, tmp_path / "mean") == paths
    found = weights(load_model(tmp_path / "mean").model)
    for name, tensor in found.items():
        wanted = torch.stack([weights(model)[name].double() for model in models]).mean(0)
        assert torch.equal(tensor, wanted.float())
    assert read_config(tmp_path / "mean")["languages"] == ["en", None]
    with pytest.raises(NmtError, match="--overwrite"):
        average(paths, tmp_path / "mean")
    average(paths[:1], tmp_path / "mean", overwrite=True)
    assert equal(weights(load_model(tmp_path / "mean").model), weights(models[0]))


def test_the_mean_of_a_run_is_that_of_its_checkpoints(tmp_path: Path) -> None:
    stepped(tmp_path / "run", 4, keep_last=4)
    names = [path.name for path in average([tmp_path / "run"], tmp_path / "all")]
    assert names == ["step-1", "step-2", "step-3", "step-4"]
    assert [path.name for path in average([tmp_path / "run"], tmp_path / "two", last=2)] == ["step-3", "step-4"]
    with pytest.raises(NmtError, match="has 4 checkpoints, not 5"):
        average([tmp_path / "run"], tmp_path / "five", last=5)
    with pytest.raises(NmtError, match="which is to be read"):
        average([tmp_path / "two"], tmp_path / "two", overwrite=True)


def test_a_mean_is_not_put_among_checkpoints(tmp_path: Path) -> None:
    """There it would be taken for the newest, to be resumed from."""
    stepped(tmp_path / "run", 2)
    saved(tmp_path / "model")
    for file in (tmp_path / "model").iterdir():
        shutil.copy(file, tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for place in ("run/checkpoints/step-99", "link/checkpoints/mean", "run/checkpoints/deep/mean"):
        with pytest.raises(NmtError, match=r"is among the checkpoints of the run .*(run|link); choose another place"):
            average([tmp_path / "run"], tmp_path / place)
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["step-1", "step-2"]
    assert len(average([tmp_path / "run"], tmp_path / "run" / "mean")) == 2


def test_a_mean_deletes_nothing_but_a_model(tmp_path: Path) -> None:
    saved(tmp_path / "one")
    saved(tmp_path / "two")
    for name in ("notes.txt", "log.jsonl", "optimizer.safetensors"):
        (tmp_path / "two" / name).write_text("mine")
        with pytest.raises(NmtError, match=rf"{name}: does not belong to the model in"):
            average([tmp_path / "one"], tmp_path / "two", overwrite=True)
        assert (tmp_path / "two" / name).read_text() == "mine"
        (tmp_path / "two" / name).unlink()
    average([tmp_path / "one"], tmp_path / "two", overwrite=True)


def test_files_of_tensors_may_be_read_by_whom_the_others_may(tmp_path: Path) -> None:
    for mask in (0o022, 0o027, 0o077):
        before = os.umask(mask)
        try:
            stepped(tmp_path / str(mask), 1)
        finally:
            os.umask(before)
        modes = {path.stat().st_mode & 0o777 for path in (tmp_path / str(mask) / "checkpoints" / "step-1").iterdir()}
        assert modes == {0o666 & ~mask}


def test_a_run_that_is_not_trained_has_no_mean(tmp_path: Path) -> None:
    model, optimizer = stepped(tmp_path / "run", 0)
    settings, subword = described(config("rnn")), trained_subword(1)
    save_checkpoint(tmp_path / "run", 0, model, optimizer, {}, settings, subword, subword)
    with pytest.raises(NmtError, match="without a best model"):
        average([tmp_path / "run"], tmp_path / "mean")


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "run" / "log.jsonl").mkdir(parents=True)
    with pytest.raises(NmtError, match=r"log\.jsonl: is a directory, not a file; to go on .*, move it"):
        Log(tmp_path / "run" / "log.jsonl")
    with pytest.raises(NmtError, match=r"config\.json: cannot be written \(no such file"):
        checkpoint.write_config(tmp_path / "gone", described(config("rnn")), trained_subword(1), trained_subword(1))


def test_models_that_are_not_alike_have_no_mean(tmp_path: Path) -> None:
    saved(tmp_path / "one")
    saved(tmp_path / "dropout", dropout=0.3)
    saved(tmp_path / "vocabulary", vocabulary=2)
    for name, message in (("dropout", "its settings differ"), ("vocabulary", "its vocabulary differs")):
        with pytest.raises(NmtError, match=message):
            average([tmp_path / "one", tmp_path / name], tmp_path / "mean")
        assert not (tmp_path / "mean").exists()
