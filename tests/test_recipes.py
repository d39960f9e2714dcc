"""Recipes: every key is known to the toolkit, the whole way from data to table works, and what is done is not redone."""

import fcntl
import gzip
import hashlib
import json
import os
import shlex
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


@pytest.mark.parametrize("path", sorted((RECIPES / "data").glob("*.toml")), ids=names)
def test_texts_name_their_files_and_checksums(path: Path) -> None:
    told = tomllib.loads(path.read_text(encoding="utf-8"))
    sums = {name: checksum for place in told.get("place", []) for name, checksum in place["sha256"].items()}
    made = told.get("made", {})
    sides = [told["train"], told["valid"], *told["test"].values()]
    named = {name for side in sides for part in (side, side.get("tokens", {})) for key, name in part.items() if key != "tokens"}
    assert named == {*sums, *made} and not set(sums) & set(made) and all(len(checksum) == 64 for checksum in sums.values())
    archives = {archive["name"]: archive.get("hash", "md5:" + 32 * "0") for archive in told.get("archive", [])}
    assert {member.split("/")[0] for members in made.values() for member in members} == set(archives)
    lengths = {"sha256": 64, "md5": 32}
    assert all(len(checksum.split(":")[1]) == lengths[checksum.split(":")[0]] for checksum in archives.values())
    shared = ROOT.parent / "shared" / "data"
    folder = next(
        (shared / place for place in (path.stem, f"{path.stem}/en-de") if (shared / place / "SHA256SUMS").is_file()), None
    )
    if folder is None:
        pytest.skip("no ../shared/data to compare with")
    known = {name: checksum for checksum, name in map(str.split, (folder / "SHA256SUMS").read_text().splitlines())}
    for name, checksum in sums.items():
        if name in known:
            assert checksum == known[name]
        else:
            assert checksum == hashlib.sha256(gzip.decompress((folder / f"{name}.gz").read_bytes())).hexdigest()


def test_the_makefile_knows_every_recipe() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
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


TEXTS = """
title = "Made up"
source = "recipes/demo_corpus.py"
train = { en = "train.en.gz", de = "train.de.gz" }
valid = { en = "valid.en.gz", de = "valid.de.gz" }
test.a = { en = "test.en.gz", de = "test.de.gz", tokens.de = "tokens.de" }
tokens.lowercase = true

[[place]]
url = "https://example.invalid/"
sha256 = SUMS
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe on a corpus of 200 pairs, in a folder like recipes/, with its text in text/; nothing done yet."""
    folder = tmp_path_factory.mktemp("recipes")
    generator = [sys.executable, str(RECIPES / "demo_corpus.py"), "--size", "200", "--held-out", "12", "-o", str(folder / "raw")]
    subprocess.run(generator, check=True)
    (folder / "text").mkdir()
    sums = {}
    for path in sorted((folder / "raw").iterdir()):
        name = f"{path.name}.gz"
        (folder / "text" / name).write_bytes(gzip.compress(path.read_bytes()))
        sums[name] = hashlib.sha256((folder / "text" / name).read_bytes()).hexdigest()
    tokens = (folder / "raw" / "test.de").read_bytes().lower()
    (folder / "text" / "tokens.de.gz").write_bytes(gzip.compress(tokens))  # named plain, found packed
    sums["tokens.de"] = hashlib.sha256(tokens).hexdigest()
    (folder / "data").mkdir()
    table = "{ " + ", ".join(f'"{name}" = "{checksum}"' for name, checksum in sums.items()) + " }"
    (folder / "data" / "tiny.toml").write_text(TEXTS.replace("SUMS", table), encoding="utf-8")
    published = '[{ system = "S", source = "P", way = "tokens", scores = { a = 41.5 } }]'
    head = f'[recipe]\ntitle = "Tiny"\ndata = "tiny"\npublished = {published}\n'
    (folder / "tiny.toml").write_text(head + SETTINGS, encoding="utf-8")
    shutil.copy(RECIPES / "README.md", folder / "README.md")
    return folder


@pytest.fixture
def place(texts: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(texts, tmp_path / "place"))


def reproduce(place: Path, *options: str, recipe: str = "tiny.toml") -> subprocess.CompletedProcess[str]:
    work = ["-o", f"work/{recipe.removesuffix('.toml')}"]
    command = [sys.executable, str(RECIPES / "run.py"), recipe, *work, *options]
    environment = os.environ | {"NMT_DATA": "text", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)


def commands(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The commands that were run, by name."""
    lines = [shlex.split(line) for line in done.stderr.splitlines() if line.startswith("$ ")]
    return [line[line.index("nmt") + 1] if "nmt" in line else Path(line[2]).stem for line in lines]


SCORED = ["translate", "score", "moses", "score", "translate", "score", "moses", "moses", "score"]
"""What the test set takes, with tokens of its own, and the validation set."""


def test_a_recipe_from_data_to_table_and_only_what_changed_again(place: Path) -> None:
    done = reproduce(place)
    assert done.returncode == 0, done.stderr
    assert commands(done) == ["preprocess", "train", "average", *SCORED]
    result = place / "results" / "tiny.json"
    found = json.loads(result.read_text(encoding="utf-8"))
    (run,) = found["runs"]
    assert run["scored"]["versions"] == run["versions"]
    assert run["updates"] == 4 and run["parameters"] > 1000 and run["train_seconds"] > 0 and run["seed"] == 1
    assert found["command"] == "make tiny" and found["settings"]["train"]["max_steps"] == 4
    assert set(found["data"]["sha256"]) == {path.name.removesuffix(".gz") + ".gz" for path in (place / "text").iterdir()} - {
        "tokens.de.gz"
    } | {"tokens.de"}
    scores = run["scores"]["a"]
    assert scores["sacrebleu"][0]["name"] == "BLEU" and scores["tokens_by"] == "the authors"
    assert "tok:13a" in scores["sacrebleu"][0]["signature"] and "tok:none" in scores["tokens"]["signature"]
    assert run["scores"]["valid"]["tokens_by"] == "moses.py"

    # Both ways of scoring, once more by sacreBLEU itself.
    import sacrebleu

    outputs = (place / "work" / "tiny" / "seed-1" / "a.de").read_text(encoding="utf-8").splitlines()
    reference = (place / "raw" / "test.de").read_text(encoding="utf-8").splitlines()
    assert scores["sacrebleu"][0]["score"] == sacrebleu.corpus_bleu(outputs, [reference]).score
    tokens = (place / "work" / "tiny" / "seed-1" / "a.tokens.out").read_text(encoding="utf-8").splitlines()
    lowered = [line.lower() for line in reference]
    assert scores["tokens"]["score"] == sacrebleu.corpus_bleu(tokens, [lowered], tokenize="none", force=True).score
    # Moses' tokens written together and lower-cased are the words themselves.
    assert ["".join(line.split()) for line in tokens] == ["".join(escaped(line.lower()).split()) for line in outputs]

    table = (place / "README.md").read_text(encoding="utf-8")
    assert f"| a | 41.50 | **{scores['tokens']['score']:.2f}** | **{scores['sacrebleu'][0]['score']:.2f}** | 1 |" in table
    # No command that was printed or kept names a folder of this machine.
    assert str(place) not in done.stderr and str(place) not in json.dumps(found)

    # Nothing again; a result says where and by what the model was trained, not what computes it again.
    made = place / "work" / "tiny" / "seed-1" / "made.json"
    made.write_text(json.dumps(json.loads(made.read_text(encoding="utf-8")) | {"device": "an abacus"}), encoding="utf-8")
    again = reproduce(place)
    assert again.returncode == 0 and commands(again) == []
    assert (place / "README.md").read_text(encoding="utf-8") == table.replace(run["device"], "an abacus")

    # Another beam: from the translation on, said. What was found with other settings is no longer told of.
    path = place / "tiny.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("beam_size = 2", "beam_size = 1"), encoding="utf-8")
    changed = reproduce(place)
    assert commands(changed) == SCORED
    assert "a.de: was made from other settings" in changed.stderr

    # Text that is tokens already: only what is scored as such.
    about = place / "data" / "tiny.toml"
    texts = about.read_text(encoding="utf-8")
    about.write_text(texts.replace("tokens.lowercase", "tokens.split = false\ntokens.lowercase"), encoding="utf-8")
    assert commands(reproduce(place)) == ["score", "score"]
    about.write_text(texts, encoding="utf-8")
    assert commands(reproduce(place)) == ["moses", "score", "moses", "moses", "score"]

    # Not while a process, one left over perhaps, still trains there.
    descriptor = os.open(place / "work" / "tiny" / "seed-1" / "run", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    settings = path.read_text(encoding="utf-8")
    path.write_text(settings.replace("max_steps = 4", "max_steps = 3"), encoding="utf-8")
    refused = reproduce(place)
    os.close(descriptor)
    assert refused.returncode == 1 and "seed-1/run: another process is at work there" in refused.stderr
    # What was found with other settings is not shown as the recipe's.
    assert f"**{scores['tokens']['score']:.2f}**" not in (place / "README.md").read_text(encoding="utf-8")
    path.write_text(settings, encoding="utf-8")

    # A training that was stopped goes on.
    stamp = place / "work" / "tiny" / "seed-1" / ".run.made-from"
    stamp.write_text(stamp.read_text().removesuffix(" done"))
    resumed = reproduce(place)
    assert resumed.returncode == 0, resumed.stderr
    assert commands(resumed) == ["train"] and "--resume" in resumed.stderr
    assert json.loads(made.read_text(encoding="utf-8"))["device"] == f"an abacus; {run['device']}"

    # Another seed stands beside the first; the data is the same.
    other = reproduce(place, "--seed", "2")
    assert other.returncode == 0, other.stderr
    assert commands(other) == ["train", "average", *SCORED] and "train.seed=2" in other.stderr
    runs = json.loads(result.read_text(encoding="utf-8"))["runs"]
    assert [run["seed"] for run in runs] == [1, 2]
    bleu = [run["scores"]["a"]["tokens"]["score"] for run in runs]
    expected = f"**{sum(bleu) / 2:.2f}** ({min(bleu):.2f} to {max(bleu):.2f})"
    assert expected in (place / "README.md").read_text(encoding="utf-8")

    # Both together are a recipe too, which trains nothing that is there.
    settings = path.read_text(encoding="utf-8").split("[preprocess]")[1].split("[model]")[0]
    members = '[recipe]\ntitle = "Two"\ndata = "tiny"\nensemble = ["tiny:1", "tiny:2"]\n'
    (place / "both.toml").write_text(f"{members}\n[preprocess]{settings}", encoding="utf-8")
    both = reproduce(place, recipe="both.toml")
    assert both.returncode == 0, both.stderr
    assert commands(both) == SCORED and both.stderr.count("--ensemble work/tiny/seed-2/averaged") == 2
    (together,) = json.loads((place / "results" / "both.json").read_text(encoding="utf-8"))["runs"]
    assert together["parameters"] == 2 * run["parameters"] and [each["seed"] for each in together["members"]] == [1, 2]
    assert "| 1 + 2 |" in (place / "README.md").read_text(encoding="utf-8")
    assert reproduce(place, "--seed", "2", recipe="both.toml").returncode == 2
    path.write_text(path.read_text(encoding="utf-8").replace("vocab_size = 300", "vocab_size = 250"), encoding="utf-8")
    unlike = reproduce(place, recipe="both.toml")
    assert unlike.returncode == 1 and "tiny is no single model of the same text" in unlike.stderr and commands(unlike) == []


def escaped(line: str) -> str:
    for sign, name in (("&", "&amp;"), ("'", "&apos;"), ('"', "&quot;"), ("[", "&#91;"), ("]", "&#93;"), ("|", "&#124;")):
        line = line.replace(sign, name)
    return line


def test_an_update_of_several_micro_batches_is_shared_by_processes(place: Path) -> None:
    path = place / "tiny.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("[train]", "[train]\naccumulate = 2"), encoding="utf-8")
    done = reproduce(place)
    assert done.returncode == 0, done.stderr
    shared = "torchrun --standalone --nproc-per-node 2 -m nmt train" in done.stderr
    assert shared == (cores() > 1)
    assert json.loads((place / "results" / "tiny.json").read_text(encoding="utf-8"))["runs"][0]["processes"] == 1 + shared


def cores() -> int:
    return len(os.sched_getaffinity(0))


def test_damaged_and_missing_data_is_refused(place: Path) -> None:
    (place / "text" / "train.de.gz").write_bytes(gzip.compress(b"something else\n"))
    damaged = reproduce(place)
    assert damaged.returncode == 1 and "train.de.gz" in damaged.stderr and "sha256" in damaged.stderr
    (place / "text" / "train.de.gz").unlink()
    missing = reproduce(place)
    assert missing.returncode == 1 and "train.de.gz: no such file" in missing.stderr
    assert not (place / "work").exists()


def test_an_unknown_recipe_is_refused_with_the_names_of_the_known() -> None:
    done = subprocess.run([sys.executable, str(RECIPES / "run.py"), "multi30k"], capture_output=True, text=True)
    assert done.returncode == 2 and "multi30k-en-de-rnn-plain" in done.stderr


def test_a_record_that_is_none_is_named(place: Path) -> None:
    (place / "results").mkdir()
    (place / "results" / "tiny.json").write_text('{"recipe": "ti', encoding="utf-8")
    done = reproduce(place)
    assert done.returncode == 1 and "results/tiny.json: is no record of a recipe; remove it" in done.stderr


def test_the_page_says_what_recipes_and_records_say(tmp_path: Path) -> None:
    """The committed README.md is the one that they make."""
    copy = Path(shutil.copytree(RECIPES, tmp_path / "recipes"))
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; import table; table.write_table(Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", program, str(RECIPES), str(copy)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert (copy / "README.md").read_text(encoding="utf-8") == (RECIPES / "README.md").read_text(encoding="utf-8")
