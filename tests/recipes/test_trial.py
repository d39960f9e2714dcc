"""--trial and --estimate: every setting of a paper's recipe goes through every command, and nothing of it is kept."""

import io
import json
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

import estimate as estimates
import moses
import pytest
import recipe as recipes
import run
import table
import training
from toml_file import read_tables, text_of
from trial import Trial

from nmt.cli import main

RECIPES = Path(__file__).parents[2] / "recipes"
# Vaswani et al. 2017, table 3 and sections 5.3, 5.4, 6.1.
VASWANI = """
        preprocess vocab_size=37000 shared_vocab=true
        model layers=6 positions="sinusoidal"
        train warmup=4000 schedule="inverse-sqrt" adam_beta1=0.9 adam_beta2=0.98 adam_epsilon=1e-9
        train label_smoothing=0.1 batch_tokens=25000
        translate beam_size=4 length_penalty=0.6
"""
PAPERS = {
    "wmt14-en-de-base": f"""{VASWANI.strip()}
        model width=512 feed_forward=2048 heads=8 dropout=0.1
        train max_steps=100000
        average last=5
    """,
    "wmt14-en-de-big": f"""{VASWANI.strip()}
        model width=1024 feed_forward=4096 heads=16 dropout=0.3
        train max_steps=300000
        average last=20
    """,
    # Bahdanau et al. 2014, appendices A and B; 80 pairs an update.
    "wmt14-en-fr-rnnsearch": """
        preprocess vocab_size=30000 shared_vocab=false max_length=50
        model cell="gru" bidirectional=true attention="additive" width=1000 embedding=620 dropout=0.0
        train optimizer="adadelta" adadelta_rho=0.95 adadelta_epsilon=1e-6 clip_norm=1.0 label_smoothing=0.0 batch_tokens=2240
    """,
    # fairseq's transformer_iwslt_de_en and its example.
    "iwslt14-de-en": """
        preprocess vocab_size=10000 lowercase=true
        model layers=6 width=512 feed_forward=1024 heads=4 dropout=0.3
        train learning_rate=5e-4 schedule="inverse-sqrt" warmup=4000 adam_beta2=0.98 label_smoothing=0.1 batch_tokens=4096
        translate beam_size=5
    """,
}


def here(words: Sequence[str | Path]) -> None:
    """A command of a recipe in this process: to import torch a dozen times would take most of the test's time."""
    name, *rest = map(str, words)
    if name == "nmt":
        assert main(rest) == 0
    else:
        assert Path(name).name == "moses.py"
        moses.main(rest)


def printed(words: Sequence[str | Path]) -> str:
    with redirect_stdout(io.StringIO()) as out:
        here(words)
    return out.getvalue()


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (run, estimates):
        monkeypatch.setattr(module, "run", here)
        monkeypatch.setattr(module, "output", printed)
    monkeypatch.setattr(training, "run", here)
    monkeypatch.setattr(training, "processes", lambda micro_batches, begun: 1)


@pytest.mark.parametrize("name", PAPERS)
def test_every_setting_of_a_paper_goes_the_whole_way(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "TemporaryDirectory", lambda: nullcontext(str(tmp_path)))
    before = {path: path.read_bytes() for path in RECIPES.rglob("*") if path.suffix in {".md", ".json", ".toml"}}
    run.main([name, "--trial"])
    assert {path: path.read_bytes() for path in RECIPES.rglob("*") if path.suffix in {".md", ".json", ".toml"}} == before
    told = capsys.readouterr().err
    assert "train.max_steps" in told and "not checked: the real text" in told

    settings = read_tables(RECIPES / f"{name}.toml")
    (found,) = json.loads((tmp_path / "results" / f"{name}.json").read_text(encoding="utf-8"))["runs"]
    assert found["updates"] == max(4, settings["average"]["last"]) and found["parameters"] < 300_000
    # What the run was made with is what the recipe says, but for what the trial says that it changed.
    config = json.loads((tmp_path / "work" / "seed-1" / "run" / "config.json").read_text(encoding="utf-8"))
    for part in ("model", "train"):
        differ = {key for key, value in settings[part].items() if config[part][key] != value}
        assert differ == {key for key in settings[part] if f"{part}.{key} " in told}
    assert (tmp_path / "README.md").read_text(encoding="utf-8").count("| **") == 2  # scored both ways


def test_the_recipes_take_what_the_papers_took() -> None:
    base, big, rnn, _ = (read_tables(RECIPES / f"{name}.toml") for name in PAPERS)
    # 8 GPUs and 12 hours, 3.5 days: ten minutes between two checkpoints.
    assert base["train"]["save_every"] == pytest.approx(base["train"]["max_steps"] / (12 * 6), rel=0.02)
    assert big["train"]["save_every"] == pytest.approx(big["train"]["max_steps"] / (3.5 * 24 * 6), rel=0.02)
    assert {key for key in base["model"] if base["model"][key] != big["model"][key]} == {
        "width",
        "feed_forward",
        "heads",
        "dropout",
    }
    assert base["preprocess"] == big["preprocess"] and base["translate"] == big["translate"]
    assert rnn["preprocess"]["vocab_size"] == 30_000 and rnn["train"]["optimizer"] == "adadelta"


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_s_recipe_has_its_settings(name: str) -> None:
    tables = read_tables(RECIPES / f"{name}.toml")
    for part, *settings in map(str.split, PAPERS[name].strip().splitlines()):
        for key, value in (setting.split("=") for setting in settings):
            assert tables[part][key] == json.loads(value), key
    # Where none is told, its peak is (width * warmup)^-0.5.
    assert ("learning_rate" in tables["train"]) == (not name.startswith("wmt14-en-de"))


def test_a_trial_in_full_size_changes_no_network(tmp_path: Path) -> None:
    trial = Trial(recipes.read(RECIPES / "wmt14-en-de-big.toml"), tmp_path, full_size=True)
    assert read_tables(trial.path)["model"] == read_tables(RECIPES / "wmt14-en-de-big.toml")["model"]
    assert "model." not in trial.report()[1]


def test_tables_are_written_as_they_were_read(tmp_path: Path) -> None:
    path = tmp_path / "copy.toml"
    for original in RECIPES.glob("*.toml"):
        path.write_text(text_of(read_tables(original)), encoding="utf-8")
        assert read_tables(path) == read_tables(original)


def test_an_estimate_is_hours_of_all_updates_and_stands_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(recipes.read(RECIPES / "wmt14-en-fr-rnnsearch.toml"), tmp_path, full_size=False)
    data = tmp_path / "data" / "wmt14-en-fr.toml"
    with pytest.raises(SystemExit, match="mean_length"):
        estimates.estimate(recipes.read(trial.path))
    data.write_text(data.read_text(encoding="utf-8").replace('"title"', 'mean_length = 9\n"title"', 1), encoding="utf-8")
    monkeypatch.setattr(estimates, "PAIRS", 300)
    monkeypatch.setattr(estimates, "EXTENT", ["--seconds", "0", "--warmup", "0"])
    run.main([str(trial.path), "--estimate"])
    found = json.loads((tmp_path / "results" / "wmt14-en-fr-rnnsearch.estimate.json").read_text(encoding="utf-8"))
    seconds_an_update = found["tokens_an_update"] / found["tokens_per_second"]["median"]
    assert found["hours"] == pytest.approx(4 * seconds_an_update / 3600) and 100 < found["tokens_an_update"] <= 800
    assert found["command"].endswith("--estimate") and found["versions"] and found["device"]
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "not run here; 1 min estimated (" in text and "target tokens/s on" in text
    assert not list(tmp_path.rglob("wmt14-en-fr-rnnsearch.json"))


@pytest.mark.parametrize(("hours", "told"), [(0.001, "1 min"), (1.5, "90 min"), (9.99, "599 min"), (10, "10 h"), (1234, "1,234 h")])
def test_a_duration_is_told_in_minutes_or_hours(hours: float, told: str) -> None:
    assert table.duration(hours) == told


def test_scores_from_memory_are_marked() -> None:
    recipe = recipes.read(RECIPES / "multi30k-en-de.toml")
    first, second, third = table.rows(recipe, None, None)
    assert (first[2], second[2], third[2]) == ("41.02", "33.36 (from memory)", "29.88 (from memory)")
    assert [note.endswith("; from memory)") for note in table.sources(recipe)] == [False, True]
