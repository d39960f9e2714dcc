"""nmt bench --curve: points that are what they claim, FLOPs against what the sizes of the matrices say, and the plots.

Legend: B sentences, S source positions, T target positions, V vocabulary, d width, f inner units, L layers.
"""

import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.image import imread
from torch import Tensor

from nmt import curves, floor
from nmt.config import Config, Layer, resolve
from nmt.curves import AXES, DECODING, LENGTH, Cached, Curve, Recomputing, State, made_up, works
from nmt.models.attention import BLOCK, NARROWEST
from nmt.models.base import Seq2Seq
from nmt.plot import draw
from nmt.vocab import EOS, SYMBOLS
from tests.command_line import out, refused
from tests.conftest import prefixes, sources
from tests.toys import TINY, config

L, V = 1, 50
D, INNER, HEADS = 16, 32, 2
"""Of `TINY["transformer"]`."""


@pytest.fixture(autouse=True)
def small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(floor.SIZE, "cpu", 16)
    monkeypatch.setattr(floor, "LEAST_SECONDS", 0)


def words(curve: str, backend: str = "transformer", *more: str | Path) -> list[str | Path]:
    """A curve of a tiny network, that takes no time."""
    settings = [word for key, value in TINY[backend].items() for word in ("--set", f"model.{key}={value}")]
    vocabulary = [] if curve.startswith("vocabulary") else ["--vocab-size", str(V)]
    return ["bench", "--curve", curve, "--backend", backend, *settings, *vocabulary, "--seconds", "0", "--warmup", "1", "-q", *more]


def measured(capsys: pytest.CaptureFixture[str], *line: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out(capsys, *line, "--format", "json"))
    return found


def of_update(pairs: int, length: int, d: int, f: int, vocabulary: int) -> int:
    """FLOPs of forward, loss and backward of a Transformer, as tests/test_floor.py has them."""
    positions = pairs * length
    linear = positions * (L * (10 * d * d + 4 * d * f) + 2 * L * d * d)
    attention = L * 3 * 2 * pairs * d * length * length
    output = positions * d * vocabulary
    return 2 * (3 * linear + attention + attention * 5 // 2 + 3 * output + d * vocabulary)


@pytest.mark.parametrize(("length", "accumulate", "start"), [(8, 1, "bos"), (5, 3, "eos"), (1, 1, "bos"), (64, 7, "bos")])
def test_made_up_updates_are_as_full_as_they_claim(length: int, accumulate: int, start: str) -> None:
    settings = config("transformer", {"start": start}, batch_tokens=64, accumulate=accumulate)
    (work,) = works(Curve("length", (length,)), settings, 9)
    start_token = SYMBOLS.index("</s>" if start == "eos" else "<s>")
    coming = made_up(work, start_token)
    updates = list(itertools.islice(coming, 20))
    pairs = 64 // length
    for update in updates:
        assert update.tokens == pairs * length == sum(part.tokens for part in update.parts)
        assert (update.real, update.padded) == (2 * update.tokens, 2 * update.tokens)
        assert len(update.parts) == min(accumulate, pairs) and all(len(part.src) for part in update.parts)
        assert sum(len(part.src) for part in update.parts) == pairs
        for part in update.parts:
            assert part.src.shape == part.prefix.shape == part.target.shape == (len(part.src), length)
            assert part.src_lengths.tolist() == [length] * len(part.src)
            assert (part.src[:, -1] == EOS).all() and (part.target[:, -1] == EOS).all()
            assert (part.prefix[:, 0] == start_token).all() and (part.prefix[:, 1:] == part.target[:, :-1]).all()
    ids = torch.cat([side[:, :-1].flatten() for update in updates for part in update.parts for side in (part.src, part.target)])
    assert set(ids.tolist()) == (set(range(len(SYMBOLS), 9)) if length > 1 else set())
    again = next(made_up(work, start_token))
    assert all((one.src == other.src).all() for one, other in zip(again.parts, updates[0].parts, strict=True))
    assert length == 1 or not all(
        (one.src == other.src).all() for one, other in zip(updates[1].parts, updates[0].parts, strict=True)
    )


@pytest.mark.parametrize(
    ("curve", "shapes"),
    [  # pairs, length, width, inner units, vocabulary of each point
        ("batch-tokens=100,64", [(2, LENGTH, D, INNER, V), (3, LENGTH, D, INNER, V)]),
        ("width=8,32", [(4, LENGTH, 8, 16, V), (4, LENGTH, 32, 64, V)]),
        ("vocabulary=40,400", [(4, LENGTH, D, INNER, 40), (4, LENGTH, D, INNER, 400)]),
        ("length=8,60", [(16, 8, D, INNER, V), (2, 60, D, INNER, V)]),
    ],
)
def test_each_point_of_training_is_the_work_it_says(
    capsys: pytest.CaptureFixture[str], curve: str, shapes: list[tuple[int, int, int, int, int]]
) -> None:
    budget = [] if curve.startswith("batch-tokens") else ["--batch-tokens", "128"]
    found = measured(capsys, *words(curve, "transformer", *budget))
    axis, _, listed = curve.partition("=")
    assert (found["measured"], found["curve"], found["precision"], found["compiled"]) == ("curve", axis, "float32", False)
    assert [point["at"] for point in found["points"]] == sorted(int(each) for each in listed.split(","))
    fixed = {"vocabulary": "vocabulary", "length": "length", "batch-tokens": "batch_tokens"}
    assert [name for name, key in fixed.items() if found[key] is None] == ([axis] if axis in fixed else [])
    for point, shape in zip(found["points"], shapes, strict=True):
        tokens = shape[0] * shape[1]
        assert (point["windows"], point["updates"], point["tokens"]) == (1, 1, tokens)
        assert point["flops_per_token"] == of_update(*shape) / tokens
        assert point["tokens_per_second"]["median"] == pytest.approx(tokens / point["seconds"])
        assert point["floor_tokens_per_second"] == pytest.approx(found["gemm_flops_per_second"] / point["flops_per_token"])
        assert point["ratio_to_floor"] == pytest.approx(
            point["tokens_per_second"]["median"] / point["floor_tokens_per_second"], rel=1e-9
        )
        assert point["parameters"] > shape[2] * shape[4]


def test_a_recurrent_network_grows_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    narrow, wide = measured(capsys, *words("width=16,64", "rnn", "--batch-tokens", "64"))["points"]
    of_words = wide["parameters"] - 4 * narrow["parameters"]
    assert of_words > 0  # matrices are 16 times as large, embeddings and biases four times
    assert wide["flops_per_token"] > 4 * narrow["flops_per_token"]


def test_a_step_without_cache_makes_the_products_of_all_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    lengths = [1, 4, 9]
    rows = 8  # with fewer, rows would be filled up
    found = measured(capsys, *words("decoding=9,1,4", "transformer", "--batch-tokens", str(rows * LENGTH + 5)))
    assert (found["sentences"], found["length"], found["times"]) == (rows, LENGTH, 1)
    assert [point["at"] for point in found["points"]] == lengths
    linear, output = 6 * D * D + 2 * D * INNER, D * V
    for point in found["points"]:
        at = point["at"]
        blocks = -(-at // BLOCK) * BLOCK  # attention runs over all of a cache, hidden positions too
        kept = HEADS * NARROWEST  # what keys and values of such narrow heads are filled up to
        cached = L * (linear + 2 * blocks * kept + 2 * LENGTH * kept) + output
        anew = L * (at * linear + at * (2 * at * kept + 2 * LENGTH * kept)) + output
        assert point["with_cache"]["flops"] == 2 * rows * cached
        assert point["without_cache"]["flops"] == 2 * rows * anew
        times = [point[way]["milliseconds"] for way in ("without_cache", "with_cache")]
        assert all(0 < each["lowest"] <= each["median"] <= each["highest"] for each in times)
        assert point["times_as_long"] == pytest.approx(times[0]["median"] / times[1]["median"])


def test_a_step_without_cache_costs_more_in_a_recurrent_network_too(capsys: pytest.CaptureFixture[str]) -> None:
    points = measured(capsys, *words("decoding=1,8,16", "rnn", "--batch-tokens", "256"))["points"]
    cached, anew = ([point[way]["flops"] for point in points] for way in ("with_cache", "without_cache"))
    # Once more than with the cache even for one token: the decoder's first state is made again too.
    assert len(set(cached)) == 1 and cached[0] < anew[0] < anew[1] < anew[2]


def test_both_ways_take_the_steps_that_are_asked_for(model: Seq2Seq) -> None:
    source, lengths = sources([6] * 8)
    prefix, points = prefixes(model, 8, 7), (1, 3, 7)
    for way in (Cached(model, source), Recomputing(model, source)):
        taken: list[Tensor] = []

        def gauge(step: Any, token: Tensor, state: State, way: Cached = way, taken: list[Tensor] = taken) -> tuple[State, float]:
            hidden, after = way.model.step(token, state, way.memory)
            taken.append(hidden)
            return after, len(taken) - 1

        with torch.inference_mode():
            numbers = way.amounts(prefix, points, gauge)
            expected = model(source, lengths, prefix)
        for number, at in zip(numbers, points, strict=True):
            torch.testing.assert_close(taken[int(number)], expected[:, at - 1])


def test_more_passes_are_made_while_there_is_time(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(curves, "seconds", lambda: next(clock) / 1000)
    line = [word if word != "0" else "0.1" for word in words("decoding=1,2", "rnn", "--batch-tokens", "32")]
    assert measured(capsys, *line)["times"] > 1


def test_points_that_an_axis_has_by_itself_can_be() -> None:
    for backend, size in itertools.product(("transformer", "rnn"), ("tiny", "small", "base", "big")):
        settings = resolve(backend, size, [Layer("test", {})])
        for axis in AXES.keys() - {DECODING}:
            curve = Curve.parse(axis)
            assert [work.at for work in works(curve, settings, 8000)] == list(curve.points)


def test_layers_keep_their_proportions() -> None:
    def widths(settings: Config, *points: int) -> list[tuple[int, ...]]:
        found = [work.config.model for work in works(Curve("width", points), settings, V)]
        return [
            tuple(getattr(each, name) for name in ("width", "feed_forward", "embedding") if hasattr(each, name)) for each in found
        ]

    assert widths(resolve("transformer", "base"), 64, 1024) == [(64, 256), (1024, 4096)]
    assert widths(resolve("rnn", "small"), 64, 1024) == [(64, 32), (1024, 512)]


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (["--curve", "widht"], 2, "did you mean 'width'"),
        (["--curve", "width="], 2, "points are whole numbers, as in width=64,128"),
        (["--curve", "width=8,x"], 2, "points are whole numbers"),
        (["--curve", "width=0"], 2, "points are at least 1"),
        (["--curve", "vocabulary=4"], 2, "points are at least 5"),
        (["--curve", "width=30", "--size", "tiny"], 2, "--curve width=30: width 30 cannot be shared by 4 heads"),
        (["--curve", "width=1", "--size", "base"], 2, "--curve width=1: "),
        (["--curve", "length=16,64", "--batch-tokens", "32"], 2, "a sentence of 64 positions does not fit into a batch of 32"),
        (["--curve", "width", "--batch-tokens", "16"], 2, "a sentence of 32 positions does not fit"),
        (["--curve", "decoding", "--batch-tokens", "8"], 2, "a sentence of 32 positions does not fit"),
        (["--curve", "batch-tokens", "--batch-tokens", "64"], 2, "leave --batch-tokens out"),
        (["--curve", "batch-tokens=64", "--accumulate", "65"], 2, "train.accumulate"),
        (["--curve", "vocabulary", "--vocab-size", "64"], 2, "leave --vocab-size out"),
        (["--curve", "decoding", "--accumulate", "2"], 2, "--accumulate is for data to train on or a curve of training"),
        (["--curve", "width", "--search", "greedy"], 2, "--search is for a model"),
        (["--curve", "width", "--precision", "int8"], 2, "--precision int8 is for a model"),
        (["--curve", "width", "--precision", "float16"], 2, "float16 needs a GPU"),
        (["--curve", "width", "--vocab-size", "4"], 2, "--vocab-size"),
        (["--curve", "width", "-o", "a.gif"], 2, "a.gif: the name of a picture ends in .svg, .png, .pdf"),
        (["--curve", "width", "-o", "missing/a.svg"], 1, "missing/a.svg: cannot be written"),
        (["--curve", "width", "-o", "folder.svg"], 1, "folder.svg: is a directory"),
        (["data", "--curve", "width"], 2, "name either what to measure"),
        ([], 2, "name either what to measure, DATA|MODEL, or a --curve"),
    ],
)
def test_what_cannot_be_is_told_in_one_line_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.svg").mkdir()
    monkeypatch.setattr("nmt.curves.initial", None)
    found = refused(capsys, "bench", *line, "-q", "--device", "cpu")
    assert found[0] == code and message in found[1], found
    assert [path.name for path in tmp_path.iterdir()] == ["folder.svg"]


def test_out_of_memory_names_the_point(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("nmt.curves.initial", fails)
    for curve, message in (("width=16", "at width 16"), ("decoding=5", "at target length 5, 2 sentences at once")):
        code, told = refused(capsys, *words(curve, "transformer", "--batch-tokens", "64"))
        assert code == 1 and told.startswith("out of memory ") and message in told, told


def texts(path: Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    return ["".join(element.itertext()).strip() for element in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(
    ("curve", "ticks", "labels"),
    [
        ("width=8,16", ["8", "16"], ["model width, units", "target tokens a second", "measured", "floor: matrix products only"]),
        ("vocabulary=40,1000", ["40", "1,000"], ["vocabulary, subwords", "target tokens a second", "measured"]),
        (
            "decoding=1,5",
            ["1", "5"],
            ["target length, subwords", "a decoding step, milliseconds", "with cache", "without cache"],
        ),
    ],
)
def test_a_plot_says_what_it_shows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, curve: str, ticks: list[str], labels: list[str]
) -> None:
    plot = tmp_path / "a.svg"
    table = out(capsys, *words(curve, "transformer", "--batch-tokens", "64", "-o", plot))
    shown = texts(plot)
    assert set(ticks) | set(labels) <= set(shown), shown
    assert shown.count(labels[0]) == 1
    assert any(each.startswith("transformer, ") for each in shown) and any(each.startswith("cpu, float32, ") for each in shown)
    assert table.startswith(f"{curve.partition('=')[0]}: transformer, ") and labels[0] in table
    assert [line.split()[0] for line in table.splitlines()[3 : 3 + len(ticks)]] == ticks
    background = re.search(r'id="patch_1">\s*<path d="[^"]*"\s*style="fill: #ffffff', plot.read_text("utf-8"))
    assert background, "on a dark page black text needs paper"
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]


def curve_of(rates: list[float]) -> dict[str, Any]:
    """What a curve of training would be."""
    points = [
        {
            "at": 2**n,
            "tokens_per_second": {"median": rate, "lowest": 0.9 * rate, "highest": 1.1 * rate},
            "floor_tokens_per_second": rate,
        }
        for n, rate in enumerate(rates)
    ]
    surroundings = {"device": "cpu", "precision": "float32", "threads": 2, "nmt": "0", "torch": "0"}
    fixed = {"vocabulary": V, "length": LENGTH, "batch_tokens": None, "configuration": {"model": {"backend": "rnn", "width": D}}}
    return {"measured": "curve", "curve": "batch-tokens", "label": "size", **surroundings, **fixed, "points": points}


def test_rates_far_apart_can_all_be_read(tmp_path: Path) -> None:
    draw(curve_of([1000.0, 1200.0]), tmp_path / "near.svg")
    draw(curve_of([1000.0, 200_000.0]), tmp_path / "far.svg")
    assert "0" in texts(tmp_path / "near.svg")
    assert {"1,000", "2,000", "5,000", "100,000"} <= set(texts(tmp_path / "far.svg"))


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_same_figures_same_bytes(tmp_path: Path, suffix: str) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.{suffix}").write_text("replaced")
        draw(curve_of([10.0, 20.0, 25.0]), tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()
    if suffix == "png":
        corners = imread(tmp_path / "one.png")[[0, 0, -1, -1], [0, -1, 0, -1]]
        assert (corners == 1).all()  # white, and nothing shines through


def test_one_point_is_a_curve_without_a_warning(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for curve in ("width=16", "decoding=3"):
        out(capsys, *words(curve, "rnn", "--batch-tokens", "64", "-o", tmp_path / "a.png"))
