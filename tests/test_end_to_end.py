"""One toy run of each backend, from text to score, through the real command line."""

import gzip
import json
import lzma
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.cli import main
from nmt.models import BACKENDS
from tests.command_line import next_line, nmt_process, nmt_started, out, refused, text, wait_until

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, DATA and a run of each backend: a few updates, enough to have something to say."""
    folder = tmp_path_factory.mktemp("toy")
    lines = [" ".join(NUMBERS[(i * step) % 10] for i in range(1, 2 + step % 5)) for step in range(1, 101)]
    text(folder / "train.src", *lines)
    text(folder / "train.tgt", *(" ".join(reversed(line.split())) for line in lines))
    text(folder / "test.src", *lines[:12])
    text(folder / "test.tgt", *(" ".join(reversed(line.split())) for line in lines[:12]))
    config = text(
        folder / "toy.toml",
        *("[preprocess]", "vocab_size = 45", "valid_size = 6", 'source_lang = "en"', 'target_lang = "en"', "quiet = true"),
        *("[model]", "width = 16", "layers = 1", "[train]", "max_steps = 6", "batch_tokens = 100", "warmup = 5", "quiet = true"),
        *("learning_rate = 1e-2", "valid_every = 3", "save_every = 3", "log_every = 2", 'device = "cpu"', "threads = 1"),
    )
    data = str(folder / "data")
    assert main(["preprocess", str(folder / "train.src"), str(folder / "train.tgt"), "-o", data, "--config", str(config)]) == 0
    for backend in BACKENDS:
        assert main(["train", data, "-o", str(folder / backend), "--config", str(config), "--backend", backend]) == 0
    return folder


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_lines_in_are_lines_out_and_scores_agree(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, backend: str
) -> None:
    run, source, target, output = toy / backend, toy / "test.src", toy / "test.tgt", tmp_path / "out"
    assert out(capsys, "translate", run, source, "-o", output) == ""
    plain = output.read_text()
    assert plain.count("\n") == 12
    rows = [json.loads(line) for line in out(capsys, "translate", run, source, "--format", "jsonl", "--n-best", "3").splitlines()]
    assert [(row["line"], row["rank"]) for row in rows] == [(line, rank) for line in range(12) for rank in range(3)]
    best = [row for row in rows if row["rank"] == 0]
    assert [row["text"] for row in best] == plain.splitlines()
    scored = [line.split("\t") for line in out(capsys, "translate", run, source, "--scores").splitlines()]
    assert [row[0] for row in scored] == plain.splitlines()
    assert [float(row[1]) for row in scored] == pytest.approx([row["score"] for row in best], abs=1e-6)
    numbers = [float(line) for line in out(capsys, "logprob", run, source, target).splitlines()]
    objects = [json.loads(line) for line in out(capsys, "logprob", run, source, target, "--format", "jsonl").splitlines()]
    assert numbers == [each["logprob"] for each in objects]
    assert numbers == pytest.approx([sum(each["token_logprobs"]) for each in objects])
    (bleu,) = json.loads(out(capsys, "score", output, "-r", target, "-m", "bleu", "--format", "json"))
    assert 0 <= bleu["score"] <= 100


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_a_mean_of_checkpoints_is_a_model_that_can_be_moved(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, backend: str
) -> None:
    averaged, moved = tmp_path / "averaged", tmp_path / "elsewhere" / "moved"
    out(capsys, "average", toy / backend, "-o", averaged, "--last", "2")
    told = json.loads(out(capsys, "info", averaged, "--json"))
    assert (told["kind"], told["model"]["backend"], told["languages"]) == ("model", backend, ["en", "en"])
    before = out(capsys, "translate", averaged, toy / "test.src")
    moved.parent.mkdir()
    averaged.rename(moved)
    assert out(capsys, "translate", moved, toy / "test.src") == before


def test_info_tells_data_run_and_checkpoint_apart(capsys: pytest.CaptureFixture[str], toy: Path) -> None:
    import torch

    from nmt.checkpoint import load_model

    data = json.loads(out(capsys, "info", toy / "data", "--json"))
    assert (data["kind"], data["splits"]["train"]["pairs"]) == ("data", 94)
    run = json.loads(out(capsys, "info", toy / "rnn", "--json"))
    assert (run["kind"], run["last"]["step"], run["train"]["max_steps"]) == ("run", 6, 6)
    assert run["checkpoints"][-2:] == ["step-3", "step-6"]
    assert run["best"]["step"] in (3, 6)
    model = load_model(toy / "rnn", torch.device("cpu")).model
    assert run["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    checkpoint = json.loads(out(capsys, "info", toy / "rnn" / "checkpoints" / "step-3", "--json"))
    assert (checkpoint["kind"], checkpoint["state"]["step"]) == ("checkpoint", 3)
    page = out(capsys, "info", toy / "rnn")
    assert "model.cell " in page and "gru" in page


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_blank_lines_stay_where_they_are(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, backend: str) -> None:
    file = tmp_path / "blanks"
    file.write_text("one two\n\n   \n\u00a0\u3000\n\u200b\n\nthree", encoding="utf-8")
    lines = out(capsys, "translate", toy / backend, file).split("\n")
    assert len(lines) == 8 and lines[-1] == ""
    assert lines[1:6] == [""] * 5
    first = out(capsys, "translate", toy / backend, text(tmp_path / "first", "one two"))
    assert first == f"{lines[0]}\n"
    file.write_text("\n \n")
    assert out(capsys, "translate", toy / backend, file) == "\n\n"
    file.write_text("")
    assert out(capsys, "translate", toy / backend, file) == ""


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_python_gives_what_the_command_line_gives(capsys: pytest.CaptureFixture[str], toy: Path, backend: str) -> None:
    from nmt import Translator

    lines = ["one two three", "", "ten\u2028nine", " \u3000", "日本", *(toy / "test.src").read_text().splitlines()]
    source = toy / f"{backend}.lines"
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    found = Translator.load(toy / backend, device="cpu").translate(lines)
    assert "".join(f"{each.text}\n" for each in found) == out(capsys, "translate", toy / backend, source, "--device", "cpu")


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_the_logged_validation_is_what_translate_and_score_say(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, backend: str
) -> None:
    from nmt.data.shards import Dataset

    data, hypothesis = Dataset.open(toy / "data"), tmp_path / "hypothesis"
    best = json.loads(out(capsys, "info", toy / backend, "--json"))["best"]
    out(capsys, "translate", toy / backend, data.valid_source, "-o", hypothesis, "--beam-size", "1", "--device", "cpu")
    words = ("score", hypothesis, "-r", data.valid_target, "-m", "bleu", "-m", "chrf", "--target-lang", "en")
    bleu, chrf = json.loads(out(capsys, *words, "--format", "json"))
    assert (bleu["score"], chrf["score"]) == (best["bleu"], best["chrf"])
    assert chrf["score"] > 0


def test_a_pipe_a_file_and_any_locale_give_the_same_bytes(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes("one\r\ntwo\u2028three\u0085\x0c four\rfive\n日本 six \x00 é\n".encode())
    packed = tmp_path / "source.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    expected = out(capsys, "translate", toy / "rnn", source).encode()
    assert expected.count(b"\n") == 3
    done = nmt_process(
        "translate",
        toy / "rnn",
        "-q",
        "--device",
        "cpu",
        stdin=source.read_bytes(),
        environment={"LC_ALL": "POSIX", "PYTHONUTF8": "0"},
    )
    assert (done.stdout, done.stderr) == (expected, b"")
    done = nmt_process("translate", toy / "rnn", "/dev/stdin", "-q", "--device", "cpu", stdin=source.read_bytes())
    assert (done.stdout, done.stderr) == (expected, b"")
    for name, unpack in (("out.gz", gzip.decompress), ("out.xz", lzma.decompress)):
        out(capsys, "translate", toy / "rnn", source, "-o", tmp_path / name)
        assert unpack((tmp_path / name).read_bytes()) == expected
    assert out(capsys, "translate", toy / "rnn", packed).encode() == expected
    out(capsys, "translate", toy / "rnn", source, packed, "-o", f"{tmp_path}/folder/")
    assert (tmp_path / "folder" / "source").read_bytes() == expected
    assert gzip.decompress((tmp_path / "folder" / "source.gz").read_bytes()) == expected


def test_invalid_utf8_stops_with_its_line_or_is_replaced_and_counted(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path
) -> None:
    file = tmp_path / "broken"
    file.write_bytes(b"one\n\xff two\n")
    code = main(["translate", str(toy / "rnn"), str(file)])
    captured = capsys.readouterr()
    assert code == 1 and f"{file}, line 2" in captured.err and captured.out.count("\n") == 1
    assert main(["translate", str(toy / "rnn"), str(file), "--errors", "replace"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 2 and "1 line held invalid UTF-8" in captured.err


def test_a_coprocess_is_answered_before_it_asks_again(toy: Path) -> None:
    words = ("translate", toy / "rnn", "--batch-lines", "1", "-q", "--threads", "1")
    with nmt_started(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        for line in (b"one two\n", b"\n", b"three\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert next_line(process.stdout).endswith(b"\n")  # none comes where the answer waits for the next question
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(60) == 0


def test_ctrl_c_ends_a_translation_with_130_and_no_word(toy: Path) -> None:
    pipe = subprocess.PIPE
    with nmt_started("translate", toy / "rnn", "--batch-lines", "1", "-q", stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"one two\n")
        process.stdin.flush()
        next_line(process.stdout)  # it is at work
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""


def test_ctrl_c_while_a_module_makes_its_dataclasses_ends_with_130(tmp_path: Path) -> None:
    patch = """import nmt.cli\nnmt.cli.main = lambda: exec("raise KeyboardInterrupt")"""
    text(tmp_path / "sitecustomize.py", patch)
    assert nmt_process(environment={"PYTHONPATH": str(tmp_path)}).returncode == 130


def test_ctrl_c_says_how_to_go_on(toy: Path, tmp_path: Path) -> None:
    pipe, partial = subprocess.PIPE, tmp_path / "out.nmt-partial"
    words = ("translate", toy / "rnn", "--batch-lines", "1", "-o", tmp_path / "out", "--threads", "1")
    with nmt_started(*words, stdin=pipe, stderr=pipe) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"one two\n")
        process.stdin.flush()
        wait_until(lambda: partial.exists() and partial.stat().st_size > 0)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert b"finished lines are kept, go on with --continue" in process.stderr.read()
    assert partial.read_text().count("\n") == 1


def test_translating_into_head_ends_quietly(toy: Path, tmp_path: Path) -> None:
    file = text(tmp_path / "long", *["one two three"] * 3000)
    command = f"{sys.executable} -m nmt translate {toy / 'rnn'} {file} -q --search greedy | head -1; echo ${{PIPESTATUS[0]}} >&2"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    assert done.stdout.count(b"\n") == 1
    assert int(done.stderr) == 128 + signal.SIGPIPE


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_training_keeps_a_checkpoint_and_goes_on(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    run = tmp_path / "run"
    words = ["train", str(toy / "data"), "-o", str(run), "--config", str(toy / "toy.toml")]
    log = run / "log.jsonl"
    with nmt_started(*words, "--max-steps", "1000000") as process:
        wait_until(lambda: process.poll() is not None or (log.exists() and b'"train"' in log.read_bytes()))
        process.send_signal(number)
        assert process.wait(60) == code
    told = json.loads(out(capsys, "info", run, "--json"))
    step = int(told["checkpoints"][-1].removeprefix("step-"))
    assert step >= 2
    out(capsys, *words, "--resume", "--max-steps", str(step + 1))
    assert json.loads(out(capsys, "info", run, "--json"))["checkpoints"][-1] == f"step-{step + 1}"


def test_resuming_refuses_other_settings_by_name(capsys: pytest.CaptureFixture[str], toy: Path) -> None:
    code, told = refused(capsys, "train", toy / "data", "-o", toy / "rnn", "--resume", "--set", "model.width=32", "--seed", "7")
    assert code == 2 and "model.width" in told and "train.seed" in told


def test_nothing_that_exists_is_overwritten_unasked(capsys: pytest.CaptureFixture[str], toy: Path) -> None:
    for words in (
        ["preprocess", toy / "train.src", toy / "train.tgt", "-o", toy / "data"],
        ["train", toy / "data", "-o", toy / "rnn"],
        ["average", toy / "rnn", "-o", toy / "data"],
    ):
        code, told = refused(capsys, *words)
        assert code == 1 and "--overwrite" in told and str(words[-1]) in told


def test_logprob_overwrites_only_if_asked(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    output = text(tmp_path / "numbers", "precious")
    words = ("logprob", toy / "rnn", toy / "test.src", toy / "test.tgt", "-o", output)
    code, told = refused(capsys, *words)
    assert code == 1 and told == f"{output}: exists already; give --overwrite to replace it"
    assert output.read_text() == "precious\n"
    out(capsys, *words, "--overwrite")
    assert output.read_text() == out(capsys, *words[:4])
    assert out(capsys, *words[:4], "-o", "/dev/null") == ""  # nothing of it is lost


@pytest.mark.parametrize("part", ["model.safetensors", "source.model", "target.model", "config.json"])
@pytest.mark.parametrize("kind", ["run", "checkpoint"])
def test_info_refuses_what_translate_would_refuse(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, kind: str, part: str
) -> None:
    import shutil

    place = tmp_path / "place"
    shutil.copytree(toy / "rnn" if kind == "run" else toy / "rnn" / "checkpoints" / "step-3", place)
    out(capsys, "info", place)
    (place / part).write_bytes(b"null" if part == "config.json" else b"")
    code, told = refused(capsys, "info", place)
    assert code == 1 and told.startswith(f"{place / part}: "), told
    (place / part).unlink()
    if (kind, part) == ("run", "model.safetensors"):  # one that has not validated yet
        assert "parameters" not in json.loads(out(capsys, "info", place, "--json"))
    else:
        code, told = refused(capsys, "info", place)
        assert code == 1 and part in told, told


def test_n_best_is_n_where_fewer_exist_and_can_be_gone_on_with(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    words = ["translate", toy / "rnn", toy / "test.src", "-o", output, "--format", "jsonl"]
    words += ["--n-best", "60", "--beam-size", "60", "--max-length", "1"]
    out(capsys, *words)
    whole = output.read_text()
    rows = [json.loads(line) for line in whole.splitlines()]
    assert [(row["line"], row["rank"]) for row in rows] == [(line, rank) for line in range(12) for rank in range(60)]
    absent = [row for row in rows if row["score"] is None]
    assert absent and all((row["text"], row["logprob"], row["tokens"], row["finished"]) == ("", None, [], False) for row in absent)
    assert all(row["rank"] for row in absent)
    (tmp_path / "out.nmt-partial").write_text("".join(f"{line}\n" for line in whole.splitlines()[:150]) + '{"li')
    out(capsys, *words, "--continue")
    assert output.read_text() == whole


def test_a_stopped_translation_is_gone_on_with(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    words = ["translate", toy / "rnn", toy / "test.src", "-o", output]
    out(capsys, *words)
    whole = output.read_text()
    output.unlink()
    lines = whole.splitlines(keepends=True)
    (tmp_path / "out.nmt-partial").write_text("kept\n" * 4 + "half")
    out(capsys, *words, "--continue")
    assert output.read_text() == "kept\n" * 4 + "".join(lines[4:])
    out(capsys, *words, "--continue")
    assert output.read_text().startswith("kept")
    out(capsys, *words)
    assert output.read_text() == whole


def begun(toy: Path, output: Path, *words: str) -> None:
    """Kills a translation after some lines."""
    fixed = ("--batch-lines", "1", "--threads", "1", "--device", "cpu")
    with nmt_started("translate", toy / "rnn", "-o", output, *fixed, *words, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"one two\nthree\n")
        process.stdin.flush()
        partial = Path(f"{output}.nmt-partial")
        wait_until(lambda: partial.exists() and partial.read_bytes().count(b"\n") == 2)


def test_only_the_same_job_is_gone_on_with(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    output, source = tmp_path / "out", text(tmp_path / "in", "one two", "three", "four five")
    begun(toy, output)
    kept = (tmp_path / "out.nmt-partial").read_bytes()
    for words, name in (
        (("transformer",), "MODEL"),
        (("rnn", "--beam-size", "4"), "--beam-size"),
        (("rnn", "--search", "greedy"), "--beam-size and another --search"),
        (("rnn", "--ensemble", str(toy / "rnn")), "--ensemble"),
        (("rnn", "--scores"), "--scores"),
        (("rnn", "--max-length", "3"), "--max-length"),
    ):
        code, told = refused(capsys, "translate", toy / words[0], source, "-o", output, "--continue", "-q", *words[1:])
        assert code == 2 and told.startswith(f"{output}.nmt-partial: was begun with another {name}; go on with the same"), told
        assert (tmp_path / "out.nmt-partial").read_bytes() == kept
    out(capsys, "translate", toy / "rnn" / "checkpoints" / "step-3", source, "-o", tmp_path / "other")
    assert out(capsys, "translate", toy / "rnn", source, "-o", output, "--continue", "--batch-tokens", "77", "--seed", "5") == ""
    assert output.read_text() == out(capsys, "translate", toy / "rnn", source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "other", "out"]


def test_an_older_output_is_not_taken_for_done(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    output, source = text(tmp_path / "out", "older"), text(tmp_path / "in", "one two", "three", "four five")
    begun(toy, output)
    out(capsys, "translate", toy / "rnn", source, "-o", output, "--continue")
    assert output.read_text() == out(capsys, "translate", toy / "rnn", source)
    out(capsys, "translate", toy / "rnn", text(tmp_path / "in", "one"), "-o", output)
    begun(toy, output)
    code, told = refused(capsys, "translate", toy / "rnn", tmp_path / "in", "-o", output, "--continue", "-q")
    assert code == 1 and "has 1 line more than" in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_older_output_is_not_taken_for_done_before_the_first_line(
    number: signal.Signals, capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path
) -> None:
    output, source = text(tmp_path / "out", "older"), text(tmp_path / "in", "one two", "three")
    with nmt_started("translate", toy / "rnn", "-o", output, "--device", "cpu", stdin=subprocess.PIPE) as process:
        wait_until(lambda: (tmp_path / "out.nmt-partial").exists())
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    out(capsys, "translate", toy / "rnn", source, "-o", output, "--continue")
    assert output.read_text() == out(capsys, "translate", toy / "rnn", source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_other_inputs_are_not_gone_on_with(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    one, two = text(tmp_path / "one", "one two", "three"), tmp_path / "two"
    two.write_bytes(b"four\n\xff\n")  # in which it ends, with three lines done
    words = ["translate", toy / "rnn", "-o", tmp_path / "out", "-q", "--batch-lines", "1"]
    assert "two, line 2" in refused(capsys, *words, one, two)[1]
    text(two, "four", "five")
    for others in ([two, one], [one], [one, two, one]):
        code, told = refused(capsys, *words, *others, "--continue")
        assert code == 2 and "was begun with another INPUT" in told
    out(capsys, *words, one, two, "--continue")
    assert (tmp_path / "out").read_text() == out(capsys, "translate", toy / "rnn", one, two)


def test_an_output_is_not_named_like_one_that_is_not_whole(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    text(tmp_path / "in.nmt-partial", "one")
    (tmp_path / "folder").mkdir()
    for output in (tmp_path / "folder", tmp_path / "other.nmt-partial.json"):
        code, told = refused(capsys, "translate", toy / "rnn", tmp_path / "in.nmt-partial", "-o", output)
        assert code == 2 and "not whole yet" in told


def test_two_processes_do_not_write_one_output(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    output, fixed = tmp_path / "out", ("--batch-lines", "1", "--threads", "1", "--device", "cpu")
    with nmt_started("translate", toy / "rnn", "-o", output, *fixed, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"one two\n")
        process.stdin.flush()
        partial = tmp_path / "out.nmt-partial"
        wait_until(lambda: partial.exists() and partial.stat().st_size > 0)
        for more in (("-q",), ("-q", "--continue")):
            code, told = refused(capsys, "translate", toy / "rnn", toy / "test.src", "-o", output, *more)
            assert (code, told) == (1, f"{output}: another process is writing it; wait for it, or give another --output")
        process.stdin.write(b"three\n")
        process.stdin.close()
        assert process.wait(60) == 0
    assert output.read_bytes().count(b"\n") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_prefixes_alignments_and_pictures(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    prefixes = text(tmp_path / "prefixes", *["two"] * 12)
    columns = [
        line.split("\t")
        for line in out(
            capsys,
            "translate",
            toy / "rnn",
            toy / "test.src",
            "--prefix",
            prefixes,
            "--alignments",
            "--attention",
            tmp_path / "drawn",
        ).splitlines()
    ]
    sources = (toy / "test.src").read_text().splitlines()
    for source, (translated, links) in zip(sources, columns, strict=True):
        assert translated.startswith("two")
        pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
        assert pairs == sorted(pairs) and {target for _, target in pairs} <= set(range(len(translated.split())))
        assert {word for word, _ in pairs} <= set(range(len(source.split())))
    assert len(list((tmp_path / "drawn").glob("line-*.svg"))) == 12
    code, told = refused(capsys, "translate", toy / "rnn", toy / "train.src", "--prefix", prefixes)
    assert code == 1 and "12" in told and "100" in told


def test_pictures_in_png_tell_what_no_font_shows_and_many_are_told_once(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.commands.use.MANY_PICTURES", 1)
    monkeypatch.setattr("nmt.heatmap.draw", lambda source, target, weights, path: Path(path).touch() or "\U00017000")
    source = text(tmp_path / "source", "one", "two", "three")
    for kind in ("svg", "png"):
        words = ("translate", toy / "rnn", source, "--attention", tmp_path / kind, "--attention-format", kind)
        assert main([str(word) for word in words]) == 0
        warned = capsys.readouterr().err
        assert warned.count("--attention has drawn 1 lines") == 1
        assert warned.count("no font here can show \U00017000:") == (kind == "png")
        assert len(list((tmp_path / kind).glob(f"line-*.{kind}"))) == 3


def test_searches_and_their_limits(capsys: pytest.CaptureFixture[str], toy: Path) -> None:
    base = ("translate", toy / "transformer", toy / "test.src")
    greedy = out(capsys, *base, "--search", "greedy")
    assert out(capsys, *base, "--beam-size", "1") == greedy
    assert out(capsys, *base, "--search", "sample", "--temperature", "0") == greedy
    assert out(capsys, *base, "--search", "sample", "--top-k", "1") == greedy
    assert out(capsys, *base, "--search", "greedy", "--no-cache") == greedy
    sampled = out(capsys, *base, "--search", "sample", "--seed", "3")
    assert out(capsys, *base, "--search", "sample", "--seed", "3", "--batch-lines", "1") == sampled
    assert out(capsys, *base, "--search", "sample", "--seed", "4") != sampled
    code, told = refused(capsys, *base, "--n-best", "6", "--format", "jsonl")
    assert code == 2 and "--n-best 6" in told
    assert main([str(word) for word in (*base, "--max-length", "1")]) == 0
    assert "ended at the length limit" in capsys.readouterr().err


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    capsys.readouterr()
    for words in (
        ["translate", toy / "rnn", toy / "test.src", "--max-length", "1", "-q"],
        ["score", toy / "test.src", "-r", toy / "test.tgt", "-q"],
        ["average", toy / "rnn", "-o", tmp_path / "mean", "-q"],
        ["preprocess", toy / "train.src", toy / "train.tgt", "-o", tmp_path / "data", "--vocab-size", "45", "-q"],
        [
            "train",
            toy / "data",
            "-o",
            tmp_path / "run",
            "--max-steps",
            "2",
            "--set",
            "model.layers=1",
            "--set",
            "model.width=16",
            "-q",
        ],
        ["logprob", toy / "rnn", toy / "test.src", toy / "test.tgt", "-q"],
    ):
        assert main([str(word) for word in words]) == 0
        assert capsys.readouterr().err == ""
