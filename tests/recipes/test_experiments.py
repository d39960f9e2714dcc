"""Experiments: each runs from its data to its page, what is measured is not measured again, and words say what figures say."""

import gzip
import hashlib
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import training
from demo_corpus import write
from experiments import beams, cache, common, run, sampling
from experiments.common import Corpus, Work, listed
from experiments.readme import page
from experiments.run import EXPERIMENTS, HERE, code, main, measured, read, write_page
from experiments.run import write as write_result
from steps import Step

from nmt.errors import NmtError

ROOT = Path(__file__).parents[2]
NAMES = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
"""Of the files of each part."""
KEYS = {"experiment", "title", "claim", "figures", "sentence", "table", "seconds", "models"}
KEYS |= {"device", "versions", "commit", "code", "data", "command"}


def experiments(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"NMT_DATA": "data", "PYTHONPATH": f"{ROOT}:{ROOT / 'recipes'}", "OMP_NUM_THREADS": "1"}
    program = "from pathlib import Path; from experiments import common, run; common.TEXTS = Path('texts.toml'); run.main()"
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, encoding="utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of Multi30k, by name, in data/: a corpus made on the spot."""
    folder = tmp_path_factory.mktemp("experiments")
    write(folder / "text", "en", "de", {"train": 300, "valid": 20, "test": 20}, seed=1)
    (folder / "data").mkdir()
    for part, name in NAMES.items():
        for side in ("en", "de"):
            text = (folder / "text" / f"{part}.{side}").read_bytes()
            (folder / "data" / f"{name}.{side}.gz").write_bytes(gzip.compress(text, mtime=0))
    files = sorted((folder / "data").iterdir())
    sums = ", ".join(f'"{path.name}" = "{hashlib.sha256(path.read_bytes()).hexdigest()}"' for path in files)
    sides = {part: f'{{ en = "{name}.en.gz", de = "{name}.de.gz" }}' for part, name in NAMES.items()}
    about = f"train = {sides['train']}\nvalid = {sides['valid']}\ntest.2016 = {sides['test']}\n"
    text = f'title = "Made up"\nsource = "nobody"\n{about}[[place]]\nsha256 = {{ {sums} }}\n'
    (folder / "texts.toml").write_text(text, encoding="utf-8")
    return folder


DECODING = [name for name, experiment in EXPERIMENTS.items() if experiment in (cache, beams, sampling)]
"""Those that train little; the others run in test_experiments_training.py."""


@pytest.fixture(scope="module")
def small(place: Path) -> subprocess.CompletedProcess[str]:
    """Some experiments, in small."""
    return experiments(place, "--small", *DECODING)


def test_experiments_run_from_data_to_page(place: Path, small: subprocess.CompletedProcess[str]) -> None:
    assert small.returncode == 0, small.stderr
    made = place / "runs" / "experiments-small"
    results = [json.loads((made / "results" / f"{name}.json").read_text(encoding="utf-8")) for name in DECODING]
    for name, found in zip(DECODING, results, strict=True):
        assert found.keys() == KEYS and found["experiment"] == name
        assert found["seconds"] > 0 and len({len(row) for row in found["table"]}) == 1
        assert len(found["data"]) == 6 and found["command"].endswith(f"run.py {name}")
        assert ElementTree.parse(made / "results" / f"{name}.svg").getroot().tag.endswith("svg")
    readme = (made / "README.md").read_text(encoding="utf-8")
    assert readme == page(results)
    assert all(found["sentence"] in readme and f"(results/{found['experiment']}.svg)" in readme for found in results)
    assert str(place) not in readme + json.dumps(results) + small.stderr

    # One training for each settings and text: those that experiments share are made once.
    trained = [line for line in small.stderr.splitlines() if line.startswith("$ nmt train ")]
    assert len(trained) == len([path for path in (made / "models").iterdir() if path.is_dir()])
    by_name = {found["experiment"]: set(found["models"]) for found in results}
    assert all({"seconds", "processes", "device", "versions", "commit"} == model.keys() for model in results[-1]["models"].values())
    assert not by_name["cache"] and by_name["sampling"] < by_name["beams"]


def test_what_is_measured_is_not_measured_again(place: Path, small: subprocess.CompletedProcess[str]) -> None:
    made = place / "runs" / "experiments-small"
    before = contents(made)
    again = experiments(place, "--small", *DECODING)
    assert again.returncode == 0 and [line for line in again.stderr.splitlines() if line.startswith("$ ")] == []
    assert contents(made) == before


def test_a_stopped_training_goes_on(
    place: Path, small: subprocess.CompletedProcess[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("NMT_DATA", "data")
    monkeypatch.setattr(common, "TEXTS", Path("texts.toml"))
    folder = Path("runs/experiments-small")
    work = Work(folder, common.texts().beginning(folder / "text", common.SMALL_LINES), small=True)
    model = work.trained(common.TRANSFORMER).path
    weights = (model / "model.safetensors").read_bytes()
    stopped(model)
    capfd.readouterr()
    assert work.trained(common.TRANSFORMER).path == model
    assert "--resume" in capfd.readouterr().err and (model / "model.safetensors").read_bytes() == weights


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Sequence[str | Path]]:
    """How `nmt train` was told to begin, time after time; it trains nothing, but leaves what it leaves."""
    told: list[Sequence[str | Path]] = []

    def train(data: Path, output: Path, how: Sequence[str | Path], *others: int) -> None:
        told.append(how[:1])
        (output / "checkpoints").mkdir(parents=True, exist_ok=True)
        (output / "config.json").write_text('{"train": {"accumulate": 2}}')
        (output / "log.jsonl").write_text('{"event": "train", "seconds": 7.0}\n')

    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr(Work, "_data", lambda *_: Step(tmp_path / "data", "text"))
    return told


def on(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("record.device", lambda: device)


def stopped(model: Path) -> None:
    """As if its training had not ended."""
    stamp = model.with_name(f".{model.name}.made-from")
    stamp.write_text(stamp.read_text().removesuffix(" done"))


def test_a_training_says_where_it_was_made_whatever_measures_it_later(
    trainings: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus: Any = None
    work = Work(tmp_path / "work", corpus, small=True)
    on("one", monkeypatch)
    model = work.trained(common.RNN)
    assert model.record == tmp_path / "work" / "models" / f"{model.path.name}.made.json" and model.record.is_file()
    assert model.made.keys() == {"processes", "device", "versions", "commit"} and model.made["device"] == "one"
    on("other", monkeypatch)
    later = Work(tmp_path / "work", corpus, small=True)
    assert later.trained(common.RNN).made == model.made
    assert later.models == {model.path.name: {"seconds": 7.0, **model.made}} and trainings == [["--overwrite"]]
    stopped(model.path)
    assert later.trained(common.RNN).made["device"] == "one; other" and trainings[1:] == [["--resume"]]


def test_what_was_begun_unrecorded_stays_unrecorded(trainings: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus: Any = None
    work = Work(tmp_path / "work", corpus, small=True)
    model = work.trained(common.RNN)
    model.record.unlink()
    assert work.trained(common.RNN).made == {} and work.models == {model.path.name: {"seconds": 7.0}}
    stopped(model.path)
    assert work.trained(common.RNN).made == {} and trainings == [["--overwrite"], ["--resume"]]


def test_a_training_that_was_killed_before_it_had_settings_begins_anew(
    trainings: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus: Any = None
    work = Work(tmp_path / "work", corpus)
    on("one", monkeypatch)
    model = work.trained(common.RNN)
    stopped(model.path)
    (model.path / "config.json").unlink()
    on("other", monkeypatch)
    assert work.trained(common.RNN).made["device"] == "other" and trainings == [["--overwrite"], ["--overwrite"]]


def of_result(name: str, models: dict[str, Any]) -> dict[str, Any]:
    """A result that has all that the page wants."""
    words = {"title": f"On {name}", "claim": "So it is.", "sentence": "So it is here.", "table": [["a"], ["1"]]}
    how = {"device": "this machine", "versions": {"torch": "2.0"}, "commit": "abc", "command": "run"}
    return {"experiment": name, "seconds": 60.0, "models": models, **words, **how}


def test_the_page_names_the_places_of_trainings_and_not_its_own() -> None:
    there = {"processes": 2, "device": "that machine", "versions": {"torch": "1.9"}, "commit": "def"}
    models = {"a": {"seconds": 300.0, **there}, "b": {"seconds": 300.0, **there}}
    said = page([of_result("cells", models)])
    trained = "after trainings of 10 min, in 2 processes on that machine (torch 1.9; commit def). Again"
    assert f"Measured in 60 s on this machine (torch 2.0; commit abc), {trained}" in said
    said = page([of_result("cells", {**models, "c": {"seconds": 60.0}})])
    assert "of 11 min, in 2 processes on that machine (torch 1.9; commit def) and in circumstances that were not recorded." in said
    assert "Measured in 60 s on this machine (torch 2.0; commit abc). Again" in page([of_result("cache", {})])


def test_the_page_has_what_has_words(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    older = {key: value for key, value in of_result("cells", {}).items() if key != "models"} | {"trainings": {"a": 1.0}}
    for found in (of_result("cache", {}), older, {"experiment": "beams", "models": {}, "figures": {}}):
        (tmp_path / "results" / f"{found['experiment']}.json").write_text(json.dumps(found))
    write_page(tmp_path)
    assert (tmp_path / "README.md").read_text() == page([of_result("cache", {})])


@pytest.mark.parametrize("content", ['{"figures": {"a"', "[]", "\xff"])
def test_a_file_that_is_no_result_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "cells.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(SystemExit, match=rf"^experiments: error: {path}: is no result of an experiment; remove it"):
        read(path)
    assert read(tmp_path / "none.json") == {}


def test_what_was_measured_is_kept_where_words_fail(tmp_path: Path) -> None:
    def fails(figures: dict[str, Any]) -> str:
        raise ZeroDivisionError

    experiment: Any = SimpleNamespace(TITLE="A title", CLAIM="A claim", sentence=fails)
    with pytest.raises(ZeroDivisionError):
        write_result(experiment, {"figures": {"a": 1}}, tmp_path / "one.json")
    assert read(tmp_path / "one.json") == {"figures": {"a": 1}}


def raising(error: BaseException) -> Callable[..., Any]:
    def measure(*_: object) -> Any:
        raise error

    return measure


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyboardInterrupt(), 130),
        (NmtError("model: is damaged"), "experiments: error: model: is damaged"),
        (OSError(28, "No space left on device"), "experiments: error: no space left on device"),
        (PermissionError(13, "Permission denied", "a.json"), "experiments: error: a.json: permission denied"),
    ],
)
@pytest.mark.parametrize("where", [(common, "texts"), (run, "measured"), (run, "write")])
def test_what_goes_wrong_is_told_in_one_line(
    where: tuple[Any, str], error: BaseException, told: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text"
    text.write_text("a\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(common, "texts", lambda: Corpus((text, text), (text, text), (text, text)))
    monkeypatch.setattr(run, "measured", lambda *_: {})
    monkeypatch.setattr(*where, raising(error))
    with pytest.raises(SystemExit) as ended:
        main(["--small", "cache"])
    assert ended.value.code == told


def test_a_disk_that_is_full_leaves_the_result_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sampling.json"
    path.write_text('{"figures": "of before"}')
    write_text = Path.write_text

    def half(self: Path, text: str, *arguments: Any, **others: Any) -> int:
        write_text(self, text[: len(text) // 2], *arguments, **others)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space"):
        write_result(sampling, {"figures": {"a": 1}}, path)
    assert read(path) == {"figures": "of before"}


def test_wrong_names_and_missing_data_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NMT_DATA", "nowhere")
    with pytest.raises(SystemExit, match="2"):
        main(["coverage"])
    assert "coverage: no such experiment; there are length, " in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"train\.en\.gz: no such file; NMT_DATA must hold"):
        main(["--small"])
    assert list(tmp_path.iterdir()) == []


def test_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(EXPERIMENTS)
    assert all(experiment.TITLE in line for experiment, line in zip(EXPERIMENTS.values(), lines, strict=True))


MODULES = {
    "one": """
from experiments import two
from experiments.three import LEAST as LOWEST, sum_of

SIZES = (1, 2)
COLORS = ("red",)

def measure(work):
    return {"sum": total(SIZES), "twice": two.twice(LOWEST)}

def total(sizes):
    return sum_of(sizes)

def sentence(figures):
    return f"the sum is {figures['sum']}"
""",
    "two": """
from experiments.three import sum_of

def twice(number):
    return sum_of((number, number))

def words():
    return "never measured"
""",
    "three": """
LEAST = 5
MOST = 7

def sum_of(numbers):
    return sum(numbers)
""",
}


def digest_with(folder: Path, module: str, old: str, new: str) -> str:
    for name, text in MODULES.items():
        assert name != module or old in text
        (folder / f"{name}.py").write_text(text.replace(old, new) if name == module else text)
    return code("one", folder)


@pytest.mark.parametrize(
    "change",
    [
        ("one", "(1, 2)", "(1, 3)"),
        ("one", "return sum_of", "return len"),
        ("one", '{"sum"', '{"all"'),
        ("two", "number, number", "number, 0"),
        ("three", "LEAST = 5", "LEAST = 6"),
        ("three", "return sum", "return max"),
    ],
)
def test_other_code_that_measures_has_another_digest(change: tuple[str, str, str], tmp_path: Path) -> None:
    assert digest_with(tmp_path, *change) != digest_with(tmp_path, "one", "", "")


@pytest.mark.parametrize(
    "change",
    [("one", '"red"', '"blue"'), ("one", "the sum is", "it is"), ("two", "never", "not"), ("three", "MOST = 7", "MOST = 8")],
)
def test_other_words_and_pictures_have_the_same_digest(change: tuple[str, str, str], tmp_path: Path) -> None:
    assert digest_with(tmp_path, *change) == digest_with(tmp_path, "one", "", "")


def test_other_text_and_other_code_are_measured_again(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("NMT_DATA", "data")
    monkeypatch.setattr(common, "TEXTS", Path("texts.toml"))
    calls: list[Work] = []

    def measure(work: Work) -> dict[str, Any]:
        calls.append(work)
        return {"number": len(calls)}

    experiment: Any = SimpleNamespace(TITLE="A title", measure=measure)

    def figures(corpus: Corpus, found: dict[str, Any]) -> dict[str, Any]:
        return measured("cache", experiment, Work(tmp_path, corpus), found)

    first = figures(common.texts(), {})
    assert figures(common.texts(), first) == first and len(calls) == 1
    other = common.texts().beginning(tmp_path, {"train": 10, "valid": 5, "test": 5})
    assert figures(other, first)["figures"] == {"number": 2}
    assert figures(common.texts(), first | {"code": "older"})["figures"] == {"number": 3}


def test_a_beginning_has_the_first_lines(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NMT_DATA", str(place / "data"))
    monkeypatch.setattr(common, "TEXTS", place / "texts.toml")
    part = common.texts().beginning(tmp_path, {"train": 3, "valid": 2, "test": 1})
    whole = (place / "text" / "train.de").read_text(encoding="utf-8").splitlines()
    assert common.lines_of(part.train[1]) == whole[:3]
    assert [len(common.lines_of(side)) for side in (*part.valid, *part.test)] == [2, 2, 1, 1]


def test_names_are_listed() -> None:
    assert [listed(names) for names in ([], ["A"], ["A", "B"], ["A", "B", "C"])] == ["none", "A", "A and B", "A, B and C"]


RESULTS = sorted((HERE / "results").glob("*.json"))


def test_committed_results_are_what_the_page_and_the_words_come_from() -> None:
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in RESULTS}
    assert results.keys() <= EXPERIMENTS.keys()
    for name, found in results.items():
        experiment = EXPERIMENTS[name]
        assert found.keys() == KEYS and found["experiment"] == name and found["claim"] == experiment.CLAIM
        assert found["sentence"] == experiment.sentence(found["figures"]) and found["table"] == experiment.table(found["figures"])
        assert (HERE / "results" / f"{name}.svg").is_file()
    if results:
        assert (HERE / "README.md").read_text(encoding="utf-8") == page([results[name] for name in EXPERIMENTS if name in results])


def of_decoding(cost: dict[str, Callable[[int], float]]) -> dict[str, Any]:
    """What `nmt bench` says of steps of these costs."""
    points = []
    for at in cache.LENGTHS:
        point: dict[str, Any] = {way: {"milliseconds": {"median": of(at)}} for way, of in cost.items()}
        points.append({"at": at, **point, "times_as_long": cost["without_cache"](at) / cost["with_cache"](at)})
    return {"points": points}


def test_the_growth_of_a_step_is_its_exponent_and_the_total_its_integral() -> None:
    found = of_decoding({"without_cache": lambda n: 0.5 * n**1.5, "with_cache": lambda n: 3.0})
    assert cache.growth(found, "without_cache") == pytest.approx(1.5)
    assert cache.growth(found, "with_cache") == pytest.approx(0)
    assert cache.totals(found, "with_cache") == pytest.approx([3.0 * n / 1000 for n in cache.LENGTHS])
    linear = of_decoding({"without_cache": lambda n: 2.0 * n, "with_cache": lambda n: 1.0})
    # The sum of 2 i up to n is n (n + 1); the trapezoids leave out half of the ends.
    assert cache.totals(linear, "without_cache")[-1] == pytest.approx(256 * 257 / 1000, rel=0.01)


def test_the_sentence_on_the_cache_goes_both_ways() -> None:
    grows = of_decoding({"without_cache": lambda n: 1.0 * n, "with_cache": lambda n: 2.0})
    same = of_decoding({"without_cache": lambda n: 2.0, "with_cache": lambda n: 2.0})
    said = cache.sentence({"transformer": grows, "rnn": grows})
    assert "Transformer: without the cache a step grows in proportion to the length (length^1.00)" in said
    assert "with it it hardly grows" in said and "128.0 times as long" in said and said.endswith("The claim holds here.")
    assert cache.sentence({"transformer": grows, "rnn": same}).endswith("The claim holds here for Transformer only.")
    assert cache.sentence({"transformer": same, "rnn": same}).endswith("The claim does not hold here.")


def test_words_on_the_cache_say_what_the_figures_say() -> None:
    exponents = (-0.1, 0.15, 0.25, 0.7, 1.1, 1.5)
    for without, cached, other in product(exponents, repeat=3):
        figures = {
            "transformer": of_decoding({"without_cache": lambda n, p=without: n**p, "with_cache": lambda n, p=cached: n**p}),
            "rnn": of_decoding({"without_cache": lambda n, p=other: n**p, "with_cache": lambda n: 1.0}),
        }
        said = cache.sentence(figures)
        grows = [not each.startswith("hardly") for each in re.findall(r"(?:cache a step|with it it) (.+?) \(length", said)]
        assert grows == [without > 0.2, cached > 0.2, other > 0.2, False]
        holding = {"Transformer": cached < 0.8 < without, "RNN": other > 0.8}
        assert said.endswith("The claim holds here.") == all(holding.values())
        assert said.endswith("does not hold here.") == (not any(holding.values()))
        if said.endswith("only."):
            assert [name for name, holds in holding.items() if holds] == [said.removesuffix(" only.").split()[-1]]


def of_beams(two: float, usual: float, fall: float, penalty: float, p_value: float) -> dict[str, Any]:
    def difference(one: tuple[int, float], other: tuple[int, float], gain: float) -> dict[str, Any]:
        return {"from": one, "to": other, "bleu": gain, "p_value": p_value}

    sizes = [(size, penalty) for size in beams.SIZES for penalty in (beams.PENALTIES if size > 1 else (0.0,))]
    of_runs = {"bleu": 30.0, "log_prob": -9.0, "seconds": 1.0}
    return {
        "runs": [{"size": size, "penalty": penalty, "length_ratio": 1 - size / 1000, **of_runs} for size, penalty in sizes],
        "beam_2": difference((1, 0.0), (2, 0.0), two),
        "usual_beam": difference((1, 0.0), (4, 0.0), usual),
        "largest_beam": difference((4, 0.0), (64, 0.0), fall),
        "penalty": difference((4, 0.0), (4, 0.6), penalty),
    }


def test_the_sentence_on_beams_goes_both_ways() -> None:
    as_claimed = of_beams(0.5, 0.8, -0.6, 0.3, 0.01)
    otherwise = of_beams(0.1, 0.8, 0.0, -0.3, 0.01)
    said = beams.sentence({"networks": {"transformer": as_claimed, "rnn": otherwise}})
    assert "Transformer: over greedy search beam 2 gives +0.50 BLEU (p = 0.010) and beam 4 +0.80 BLEU (p = 0.010)" in said
    assert "from there to beam 64 it is -0.60 BLEU (p = 0.010), and the length ratio 0.936 instead of 0.996" in said
    assert "at beam 4 a penalty of 0.6 gives -0.30 BLEU (p = 0.010)." in said
    assert said.endswith(
        "With p < 0.05, where what is compared was chosen beforehand, beam 2 helps, and at least half as much as beam 4: "
        "Transformer; the largest beam is worse than beam 4: Transformer; the length penalty helps: Transformer."
    )
    # The same gains, but none certain.
    assert beams.sentence({"networks": {"transformer": of_beams(0.5, 0.8, -0.6, 0.3, 0.2)}}).count(": none") == 3


def test_words_on_beams_say_what_the_figures_say() -> None:
    gains = (-0.8, -0.2, 0.2, 0.8)
    for two, usual, fall, penalty, p_value in product(gains, gains, gains, gains, (0.01, 0.3)):
        said = beams.sentence({"networks": {"rnn": of_beams(two, usual, fall, penalty, p_value)}})
        certain = p_value < 0.05
        verdict = said[said.index("With p <") :]
        expected = [two > 0 and certain and 2 * two >= usual, fall < 0 and certain, penalty > 0 and certain]
        assert [each == "RNN" for each in re.findall(r": (RNN|none)[;.]", verdict)] == expected


def test_beams_are_compared_as_was_chosen_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever does best on the test set."""
    best = {2: "a b c d e f", 4: "a b c d e", 8: "a b c d"}
    line = SimpleNamespace(hypotheses=[SimpleNamespace(log_prob=-1.0)])
    monkeypatch.setattr(
        beams,
        "translations",
        lambda _, lines, search: [SimpleNamespace(text=best.get(search.size, "a"), **vars(line))] * len(lines),
    )
    work: Any = SimpleNamespace(trained=lambda _: SimpleNamespace(translator=lambda: None))
    found = beams.network(work, {}, ["a"] * 9, ["a b c d e f"] * 9, (1, 2, 4, 8))
    ends = {name: (found[name]["from"], found[name]["to"]) for name in ("beam_2", "usual_beam", "largest_beam", "penalty")}
    assert ends == {
        "beam_2": ((1, 0.0), (2, 0.0)),
        "usual_beam": ((1, 0.0), (4, 0.0)),
        "largest_beam": ((4, 0.0), (8, 0.0)),
        "penalty": ((4, 0.0), (4, 0.6)),
    }
    assert found["largest_beam"]["bleu"] < 0 < found["usual_beam"]["bleu"] < found["beam_2"]["bleu"]


def test_words_of_translations_are_counted_against_those_of_references() -> None:
    assert beams.length_ratio(["a b", "c"], ["a b c d", "e f"]) == 0.5


def test_distinct_bigrams_are_counted_line_by_line() -> None:
    assert sampling.distinct([["a b c", "a b c"], ["a b", "b a"]]) == (2 + 2) / (4 + 2)
    assert sampling.distinct([["a", ""]]) == 0


def of_samples(bends: dict[str, float]) -> dict[str, Any]:
    """Curves from greedy search (BLEU 30, diversity 0) to pure samples (10, 80); a bend above 0 is diversity gained early."""

    def point(share: float, bend: float = 0) -> dict[str, float]:
        diversity = 80 * share + bend * math.sin(math.pi * share)
        return {"bleu": 30 - 20 * share, "self_bleu": 100 - diversity, "distinct_bigrams": share}

    curves = {name: [{"value": n, **point(n / 4, bend)} for n in (1, 2, 3)] for name, bend in bends.items()}
    return {"samples": 5, "greedy": point(0), "pure": point(1), "methods": curves}


@pytest.fixture
def even() -> Iterator[dict[str, Any]]:
    yield of_samples(dict.fromkeys(sampling.METHODS, 0.0))


def test_diversity_at_a_quality_lies_on_the_line_between_points(even: dict[str, Any]) -> None:
    assert sampling.level(even, 0.5) == 20
    for method in sampling.METHODS:
        assert sampling.diversity_at(even, method, 20) == pytest.approx(40)
        assert sampling.diversity_at(even, method, 22.5) == pytest.approx(30)


def test_the_sentence_on_sampling_goes_both_ways(even: dict[str, Any]) -> None:
    ahead = sampling.sentence(of_samples({"temperature": 0, "top_k": -5, "top_p": 9, "min_p": 3}))
    assert "top-p 49.0, min-p 43.0, temperature 40.0, top-k 35.0" in ahead
    assert "top-p gives most diversity at a given BLEU" in ahead and "by more than 1 at each of the 3 points" in ahead
    behind = sampling.sentence(of_samples({"temperature": 9, "top_k": -5, "top_p": 0, "min_p": 3}))
    assert "temperature gives most diversity" in behind and "at none of the 3 points" in behind
    assert "at none of the 3 points" in sampling.sentence(even)
    assert "nothing to compare" in sampling.sentence(even | {"greedy": even["pure"]})


def test_words_on_sampling_say_what_the_figures_say() -> None:
    for bends in product((-5, 0, 1.2, 9), repeat=4):
        said = sampling.sentence(of_samples(dict(zip(sampling.METHODS, bends, strict=True))))
        told = [
            dict(re.findall(r"(temperature|top-k|top-p|min-p) ([\d.]+)", each))
            for each in re.findall("diversities are: (.+?)\\. ", said)
        ]
        listed_ones = [{name: float(value) for name, value in each.items()} for each in told]
        ahead = sum(each["top-p"] > max(each["top-k"], each["temperature"]) + 1 for each in listed_ones)
        assert f"by more than 1 at {({0: 'none', 3: 'each'}).get(ahead, str(ahead))} of the 3 points" in said
        means = {name: sum(each[name] for each in listed_ones) / 3 for name in listed_ones[0]}
        first, second = sorted(means, key=lambda name: -means[name])[:2]
        assert (f"{first} gives most diversity" in said) == (means[first] > means[second] + 1)


def test_the_same_figures_are_the_same_picture(even: dict[str, Any], tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_result(sampling, {"figures": even}, tmp_path / f"{name}.json")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
