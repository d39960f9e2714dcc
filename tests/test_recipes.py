"""Recipes: every key is known to the toolkit, the whole way from data to table works, and what is done is not redone."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "recipes"
CONFIGS = sorted(RECIPES.glob("*.toml")) + sorted((RECIPES / "demo").glob("*.toml"))
COMMANDS = {
    "preprocess": ["preprocess", "missing", "missing", "-o", "x"],
    "train": ["train", "missing", "-o", "x"],
    "translate": ["translate", "missing", "missing"],
    "score": ["score", "missing", "-r", "missing"],
    "average": ["average", "missing", "-o", "x"],
}


def names(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", CONFIGS, ids=names)
def test_every_setting_is_known(path: Path) -> None:
    from nmt.config import read_toml, resolve

    config = resolve(layers=[read_toml(str(path))])
    assert config.backend == ("rnn" if "rnn" in path.stem else "transformer")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("path", CONFIGS, ids=names)
def test_every_command_takes_the_recipe_as_its_configuration(
    path: Path, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from nmt.cli import main

    monkeypatch.chdir(tmp_path)
    # An unknown key would end it with 2; a file that is not there, with 1.
    assert main([*COMMANDS[command], "--config", str(path)]) == 1
    assert "missing" in capsys.readouterr().err


@pytest.mark.parametrize("path", [path for path in CONFIGS if path.parent == RECIPES], ids=names)
def test_recipes_name_their_files_and_checksums(path: Path) -> None:
    about = tomllib.loads(path.read_text(encoding="utf-8"))["recipe"]
    assert set(about["sha256"]) == {name for part in ("train", "valid", "test") for name in about[part]}
    assert all(len(checksum) == 64 for checksum in about["sha256"].values())
    sums = ROOT.parent / "shared" / "data" / "multi30k" / "SHA256SUMS"
    if not sums.is_file():
        pytest.skip("no ../shared/data to compare with")
    known = {name: checksum for checksum, name in (line.split() for line in sums.read_text().splitlines())}
    assert about["sha256"].items() <= known.items()


def test_the_makefile_knows_every_recipe() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = next(line for line in text.splitlines() if line.startswith("RECIPES := ")).split()[2:]
    assert sorted(known) == sorted(path.stem for path in RECIPES.glob("*.toml"))


SETTINGS = """
[preprocess]
source_lang = "en"
target_lang = "de"
vocab_size = 300

[model]
backend = "transformer"
layers = 1
width = 16
feed_forward = 32
heads = 2

[train]
max_steps = 4
batch_tokens = 400
valid_every = 2
save_every = 2
keep_last = 2

[average]
last = 2

[translate]
beam_size = 2
max_length = 10

[score]
metric = ["bleu", "chrf"]
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A recipe on a corpus of 200 pairs, in a folder like recipes/, with its data in data/."""
    text, data = tmp_path / "text", tmp_path / "data"
    generator = [sys.executable, str(RECIPES / "demo_corpus.py"), "--size", "200", "--held-out", "12", "-o", str(text)]
    subprocess.run(generator, check=True)
    data.mkdir()
    checksums = {}
    for path in sorted(text.iterdir()):
        name = f"{path.name}.gz"
        (data / name).write_bytes(gzip.compress(path.read_bytes()))
        checksums[name] = hashlib.sha256((data / name).read_bytes()).hexdigest()
    sides = "\n".join(f'{part} = ["{part}.en.gz", "{part}.de.gz"]' for part in ("train", "valid", "test"))
    sums = "\n".join(f'"{name}" = "{checksum}"' for name, checksum in checksums.items())
    head = f'[recipe]\ntitle = "Tiny"\nurl = "https://example.invalid/"\npublished = []\n{sides}\n\n[recipe.sha256]\n{sums}\n'
    (tmp_path / "tiny.toml").write_text(head + SETTINGS, encoding="utf-8")
    shutil.copy(RECIPES / "README.md", tmp_path / "README.md")
    return tmp_path


def reproduce(place: Path, data: str = "data") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RECIPES / "run.py"), "tiny.toml", "-o", "work"]
    environment = os.environ | {"NMT_DATA": data, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)


def commands(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The commands that were run, by name."""
    return [line.split()[2] for line in done.stderr.splitlines() if line.startswith("$ nmt ")]


def test_a_recipe_from_data_to_table_and_only_what_changed_again(place: Path) -> None:
    done = reproduce(place)
    assert done.returncode == 0, done.stderr
    assert commands(done) == ["preprocess", "train", "average", "translate", "score"]
    found = json.loads((place / "results" / "tiny.json").read_text(encoding="utf-8"))
    assert found["updates"] == 4 and found["parameters"] > 1000 and found["scores"][0]["name"] == "BLEU"
    assert found["train_seconds"] > 0
    assert "tok:13a" in found["scores"][0]["signature"] and "case:mixed" in found["scores"][0]["signature"]
    table = (place / "README.md").read_text(encoding="utf-8")
    assert f"| **{found['scores'][0]['score']:.2f}** |" in table and table.startswith("# Recipes")

    # No command that was printed or kept names a folder of this machine.
    assert str(place) not in done.stderr and str(place) not in json.dumps(found)

    # Nothing again; a result says where and by what the model was trained, not what computes it again.
    made = place / "work" / "made.json"
    made.write_text(json.dumps(json.loads(made.read_text(encoding="utf-8")) | {"device": "an abacus"}), encoding="utf-8")
    table = table.replace(found["device"], "an abacus")
    again = reproduce(place)
    assert again.returncode == 0 and commands(again) == []
    assert (place / "README.md").read_text(encoding="utf-8") == table

    # Another beam: from the translation on, said.
    path = place / "tiny.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("beam_size = 2", "beam_size = 1"), encoding="utf-8")
    changed = reproduce(place)
    assert commands(changed) == ["translate", "score"]
    assert "test.out: was made from other settings" in changed.stderr

    # A training that was stopped goes on.
    (place / "work" / ".run.made-from").write_text((place / "work" / ".run.made-from").read_text().split()[0])
    resumed = reproduce(place)
    assert resumed.returncode == 0, resumed.stderr
    assert commands(resumed) == ["train"] and "--resume" in resumed.stderr
    assert json.loads(made.read_text(encoding="utf-8"))["device"] == found["device"]

    # One that ended before there was a note of where.
    made.unlink()
    assert commands(reproduce(place)) == []
    assert json.loads((place / "results" / "tiny.json").read_text(encoding="utf-8"))["device"] == found["device"]


def test_damaged_and_missing_data_is_refused(place: Path) -> None:
    (place / "data" / "train.de.gz").write_bytes(gzip.compress(b"something else\n"))
    damaged = reproduce(place)
    assert damaged.returncode == 1 and "train.de.gz" in damaged.stderr and "sha256" in damaged.stderr
    (place / "data" / "train.de.gz").unlink()
    missing = reproduce(place)
    assert missing.returncode == 1 and "train.de.gz: no such file" in missing.stderr
    assert not (place / "work").exists()


def test_an_unknown_recipe_is_refused_with_the_names_of_the_known() -> None:
    done = subprocess.run([sys.executable, str(RECIPES / "run.py"), "multi30k"], capture_output=True, text=True)
    assert done.returncode == 2 and "multi30k-en-de-rnn-plain" in done.stderr
