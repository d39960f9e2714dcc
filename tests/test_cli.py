"""The command line as a person and a script meet it: help, messages, exit codes, streams, defaults from a file."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nmt
from nmt.cli import main
from tests.command_line import nmt_process, nmt_started, out, refused, text

COMMANDS = ("preprocess", "train", "translate", "score", "logprob", "average", "export", "info", "report", "bench")


# Help and start-up


@pytest.mark.parametrize("words", [[], *([command] for command in COMMANDS)])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    program = (
        "import sys; from nmt.cli import main; code = main(sys.argv[1:]); "
        "assert not {'torch', 'numpy', 'sentencepiece', 'sacrebleu', 'matplotlib', 'safetensors'} & set(sys.modules); "
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words, "--help"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"Usage: nmt" in done.stdout and done.stderr == b""


def test_help_names_every_promised_option(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    promised = {
        "preprocess": """output valid-source valid-target valid-size source-lang target-lang vocab-size tokenizer shared-vocab
            separate-vocabs lowercase normalization character-coverage byte-fallback max-length max-ratio dedup vocab-from workers
            seed overwrite config quiet""",
        "train": """output backend size config set max-steps max-epochs max-minutes batch-tokens accumulate resume init-from
            overwrite device precision compile no-compile list-options threads seed quiet""",
        "translate": """output search beam-size length-penalty max-length max-length-ratio temperature top-k top-p min-p n-best
            format scores alignments attention attention-format prefix no-repeat-ngram ensemble batch-tokens batch-lines no-cache
            seed errors overlong continue engine precision device threads config quiet""",
        "score": """tokenize lowercase target-lang bootstrap randomization seed format sentence breakdown source data output device
            threads config quiet""",
        "logprob": "format output overwrite device threads config quiet",
        "average": "output last overwrite config quiet",
        "export": "format output overwrite config quiet",
        "info": "json",
        "report": "output data lines overwrite device threads config quiet",
        "bench": """backend size config set batch-tokens accumulate precision compile no-compile seconds warmup search beam-size
            curve plot vocab-size device threads format quiet""",
    }
    for command, options in promised.items():
        assert main([command, "--help"]) == 0
        page = capsys.readouterr().out
        missing = [option for option in options.split() if f"--{option} " not in page]
        assert not missing, command
        assert "nmt " + command in page.split("Example:")[1]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"nmt {nmt.__version__}\n"


def test_nothing_asked_is_wrong_usage_with_help_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "preprocess" in err


def test_list_options_shows_each_key_with_default_type_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    from nmt.config import DataConfig, TrainConfig, keys
    from nmt.models import BACKENDS

    assert main(["train", "--list-options"]) == 0
    lines = capsys.readouterr().out.splitlines()
    tables = [("data", DataConfig), ("train", TrainConfig), *(("model", backend.settings) for backend in BACKENDS.values())]
    for table, settings in tables:
        for key in keys(settings).values():
            assert any(line.strip().startswith(f"{table}.{key.name}=") and key.help in line for line in lines), key.name
    assert any("model.width=512" in line and "an integer" in line and "tiny: 128" in line for line in lines)


# Exit codes and messages


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["transalte"], "did you mean 'translate'"),
        (["translate", "m", "--beam-sizee", "3"], "--beam-size"),
        (["translate", "m", "--beam-size", "many"], "--beam-size"),
        (["translate", "m", "--beam-size", "0"], "--beam-size"),
        (["translate", "m", "--beam-size", "1001"], "--beam-size"),
        (["bench", "m", "--seconds", "inf"], "--seconds"),
        (["preprocess", "a", "b", "-o", "d", "--max-ratio", "inf"], "--max-ratio must be at most"),
        (["translate", "m", "--search", "beem"], "--search"),
        (["translate", "m", "--temperature", "0.5"], "--temperature is an option of --search sample"),
        (["translate", "m", "--search", "greedy", "--beam-size", "2"], "--beam-size is an option of --search beam"),
        (["translate", "m", "--n-best", "2"], "--format jsonl"),
        (["translate", "m", "--continue"], "--continue"),
        (["translate", "m", "h", "-o", "o", "--continue", "--attention", "d"], "--attention"),
        (["translate"], "MODEL"),
        (["score", "h"], "--reference"),
        (["score", "h", "-r", "h", "--sentence", "--bootstrap", "9"], "--bootstrap"),
        (["score", "h", "-r", "h", "--randomization", "9"], "name more than one"),
        (["score", "h", "-r", "r", "-m", "chrf", "--tokenize", "foo"], "--tokenize must be one of 13a,"),
        (["translate", "", "h"], "the word after translate is empty"),
        (["translate", "m", "h", "-o", ""], "the word after -o is empty"),
        (["translate", "m", "h", "--attention="], "--attention= is empty"),
        (["translate", "m", "h", "--scores", "--format", "jsonl"], "--scores"),
        (["score", "h", "-r", "r", "-m", "blue"], "--metric must be one of bleu, chrf, chrf++, ter, not blue"),
        (["train", "d", "-o", "r", "--set", "train.warmpu=3"], "did you mean 'warmup'?"),
        (["train", "d", "-o", "r", "--set", "model.cell=gru"], "model.cell belongs to the backend rnn"),
        (["train", "d", "-o", "r", "--max-steps", "0"], "train.max_steps must be at least 1"),
        (["train", "d", "-o", "r", "--max-steps", "3", "--set", "train.max_steps=4"], "--max-steps"),
        (["train", "d", "-o", "r", "--resume", "--overwrite"], "--resume"),
        (["train", "d", "-o", "r", "--threads", "100000"], "--threads"),
        (["translate", "d", "--threads", "1025"], "--threads"),
        (["logprob", "d", "h", "h", "--threads", "100000"], "--threads"),
        (["preprocess", "a", "b", "-o", "c", "--workers", "100000"], "--workers"),
        (["preprocess", "a", "b", "-o", "c", "--vocab-size", "3000000000"], "--vocab-size"),
        (["train", "d", "-o", "r", "--set", "model.width=1e9"], "model.width"),
        (["train", "d", "-o", "r", "--batch-tokens", "99999999999"], "train.batch_tokens"),
        (["preprocess", "a", "b", "-o", "c", "--valid-source", "d"], "--valid-target"),
        (["bench"], "DATA|MODEL"),
        (["bench", "d", "--set", "train.warmpu=3"], "did you mean 'warmup'?"),
        (["bench", "d", "--batch-tokens", "9", "--set", "train.batch_tokens=8"], "--batch-tokens"),
        (["bench", "m", "h", "--search", "greedy", "--beam-size", "2"], "--beam-size is an option of --search beam"),
    ],
)
def test_wrong_usage_is_exit_2_before_any_file_is_looked_at(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text(tmp_path / "h", "a")
    code, told = refused(capsys, *words)
    assert code == 2 and message.lower() in told.lower(), told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h"]


@pytest.mark.parametrize(
    "words",
    [
        ["preprocess", "missing", "text", "-o", "out"],
        ["preprocess", "text", "folder", "-o", "out"],
        ["train", "missing", "-o", "out"],
        ["train", "folder", "-o", "out"],
        ["translate", "folder", "missing"],
        ["translate", "missing", "text"],
        ["translate", "folder", "folder"],
        ["translate", "text", "text"],
        ["translate", "folder", "text", "-o", "missing/out"],
        ["score", "missing", "-r", "text"],
        ["score", "text", "-r", "folder"],
        ["logprob", "missing", "text", "text"],
        ["logprob", "folder", "missing", "text"],
        ["average", "missing", "-o", "out"],
        ["average", "text", "-o", "out"],
        ["info", "missing"],
        ["info", "folder"],
        ["info", "text"],
        ["bench", "missing"],
        ["bench", "folder", "text"],
        ["bench", "text"],
        ["score", "text", "-r", "text", "--config", "missing"],
        ["score", "text", "-r", "text", "--config", "folder"],
    ],
)
def test_a_path_that_cannot_be_is_exit_1_and_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    text(tmp_path / "text", "a b")
    code, told = refused(capsys, *words)
    assert code == 1, told
    assert any(told.startswith(name) for name in ("missing", "folder", "text")), told
    assert not (tmp_path / "out").exists()


def test_a_traceback_comes_only_with_debug(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words in (["--debug", "info", str(tmp_path)], ["info", str(tmp_path), "--debug"]):
        assert main(words) == 1
        assert "Traceback" in capsys.readouterr().err
    refused(capsys, "info", tmp_path)


def test_names_that_are_not_utf8_are_told_safely(tmp_path: Path) -> None:
    done = nmt_process("info", os.fsdecode(os.fsencode(tmp_path) + b"/\xff\nx"))
    assert done.returncode == 1
    assert done.stderr.endswith(b"/\\udcff\\nx: no such directory\n")


# Defaults from a file


def test_a_file_gives_defaults_and_the_command_line_wins(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = text(tmp_path / "text", "a b c d e")
    config = text(tmp_path / "config.toml", "[score]", 'metric = ["chrf", "ter"]', 'format = "json"', "[recipe]", "bleu = 28.4")
    assert main(["score", str(file), "-r", str(file), "--config", str(config)]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["chrF2", "TER"]
    assert main(["score", str(file), "-r", str(file), "--config", str(config), "--format", "text", "-m", "bleu"]) == 0
    assert capsys.readouterr().out.startswith("BLEU|")


@pytest.mark.parametrize(
    ("command", "line", "message"),
    [
        ("translate", "beamsize = 3", "unknown key translate.beamsize; did you mean 'beam_size'?"),
        ("translate", 'beam_size = "3"', "translate.beam_size must be an integer, not '3'"),
        ("translate", "beam_size = true", "translate.beam_size must be an integer, not true"),
        ("translate", 'search = "beem"', "translate.search must be beam, greedy or sample, not 'beem'; did you mean 'beam'?"),
        ("translate", "ensemble = [1]", "translate.ensemble must be text, not 1"),
        ("translate", 'inputs = ["a"]', "unknown key translate.inputs"),
        ("preprocess", "separate_vocabs = 1", "preprocess.separate_vocabs must be true or false, not 1"),
        ("train", 'sise = "tiny"', "unknown key train.sise; did you mean 'size'?"),
        ("score", 'config = "x"', "unknown key score.config"),
    ],
)
def test_wrong_defaults_are_refused_by_file_line_and_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, line: str, message: str
) -> None:
    config = text(tmp_path / "config.toml", "", f"[{command}]", line)
    code, told = refused(capsys, command, "x", "y", "-o", "z", "--config", config)
    assert code == 2 and told.startswith(f"{config}:3: {message}"), told


def test_every_option_may_stand_in_a_file(tmp_path: Path) -> None:
    """The keys of a table are exactly the command's long options."""
    import typer

    from nmt.commands import app
    from nmt.options import NOT_IN_FILES, defaults

    group = typer.main.get_command(app)
    for command in COMMANDS:
        context = typer.Context(group.commands[command], info_name=command)
        spelled = {
            spelling[2:].replace("-", "_")
            for parameter in context.command.params
            for spelling in (*parameter.opts, *parameter.secondary_opts)
            if spelling.startswith("--")
        }
        assert set(defaults(context)) == spelled - {"help", *NOT_IN_FILES}


# Streams


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    file = text(tmp_path / "text", *(f"line {number} ." for number in range(20_000)))
    command = f"{sys.executable} -m nmt score {file} -r {file} --sentence -q | head -1; echo ${{PIPESTATUS[0]}} >&2"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    assert done.stdout == b"100.00\t100.00\n"
    assert int(done.stderr) == 128 + signal.SIGPIPE


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("score text -r text -q > /dev/full", 1, b"nmt: error: standard output: cannot be written (no space left on device)\n"),
        ("--version > /dev/full", 1, b"nmt: error: standard output: cannot be written (no space left on device)\n"),
        ("score text -r text -q >&-", 1, b"nmt: error: standard output is closed\n"),
        ("score - -r text -q 0> other", 1, b"nmt: error: standard input: cannot be read (bad file descriptor)\n"),
        ("info text >&-", 1, b"nmt: error: standard output is closed\n"),
        ("score text -r text -q -o out >&-", 0, b""),
    ],
)
def test_a_stdout_that_takes_nothing_is_told_once(tmp_path: Path, words: str, code: int, told: bytes) -> None:
    text(tmp_path / "text", "a b")
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m nmt {words}"], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (code, told)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_pipe_that_does_not_block_loses_nothing(tmp_path: Path, unbuffered: str) -> None:
    """More than a pipe holds, into one that another program made non-blocking, whose reader is slow."""
    file = text(tmp_path / "text", *(f"line {number} ." for number in range(20_000)))
    read, write = os.pipe()
    os.set_blocking(write, False)
    words = ("score", file, "-r", file, "--sentence", "-m", "chrf", "-q")
    with nmt_started(*words, stdout=write, stderr=write, env={**os.environ, "PYTHONUNBUFFERED": unbuffered}) as process:
        os.close(write)
        arrived = b""
        with os.fdopen(read, "rb", buffering=0) as pipe:
            while part := pipe.read(4096):
                arrived += part
                time.sleep(0.02)
        assert arrived == b"100.00\n" * 20_000
        assert process.wait(60) == 0


@pytest.mark.parametrize("closed", ["2>&-", "2>&- <&-"])
@pytest.mark.parametrize(
    ("words", "code"),
    [("info missing", 1), ("score", 2), ("", 2), ("--debug info missing", 1), ("score tokenised -r tokenised -o out", 0)],
)
def test_nothing_but_data_goes_to_stdout_where_stderr_is_closed(tmp_path: Path, words: str, code: int, closed: str) -> None:
    text(tmp_path / "tokenised", "a , b ." * 3)
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m nmt {words} {closed}"], cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (code, b"")
    assert not (tmp_path / "out").exists() or (tmp_path / "out").read_bytes().count(b"\n") == 2


def test_a_closed_stderr_is_not_the_next_file_that_is_opened(tmp_path: Path) -> None:
    program = "import os; from nmt.cli import main; main(['--version']); print(open('file', 'w').fileno())"
    done = subprocess.run(
        ["bash", "-c", f'{sys.executable} -c "{program}" 2>&- <&-'], cwd=tmp_path, capture_output=True, check=True
    )
    assert int(done.stdout.split()[-1]) > 2


def test_text_is_utf8_whatever_the_locale(tmp_path: Path) -> None:
    name = tmp_path / "名前"
    name.write_bytes("Grüße aus 東京\n".encode())
    for locale in ({"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}):
        done = nmt_process("score", name, name, "-r", name, "-m", "chrf", "-q", environment=locale)
        assert (done.returncode, done.stderr) == (0, b"")
        assert "\n名前  100.00 ± 0.00\n" in done.stdout.decode()


# score


def test_scores_are_read_from_pipes_and_compressed_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import gzip

    plain = text(tmp_path / "text", "A small test.", "And one more, of course.")
    packed = tmp_path / "text.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    done = nmt_process("score", "-", "-r", packed, "-m", "bleu", "--format", "json", stdin=plain.read_bytes())
    (found,) = json.loads(done.stdout)
    assert (found["system"], found["name"]) == ("-", "BLEU")
    assert found["score"] == pytest.approx(100)


def test_unequal_counts_name_both_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    short, long = text(tmp_path / "short", "a"), text(tmp_path / "long", "a", "b")
    for words in (["score", short, "-r", long], ["score", long, "-r", short], ["score", short, "-r", short, "-r", long]):
        code, told = refused(capsys, *words)
        assert code == 1 and str(short) in told and str(long) in told
    done = nmt_process("score", "-", "-r", long, stdin=b"a\n")
    assert done.stderr.decode() == f"nmt: error: standard input has 1 line, {long} has 2: they must be parallel\n"
    empty = text(tmp_path / "empty")
    assert refused(capsys, "score", empty, "-r", empty) == (1, f"{empty}: is empty: there is nothing to score")


def test_a_metric_given_twice_is_shown_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = text(tmp_path / "text", "A small test.")
    for name in ("bleu", "chrf", "chrf++", "ter"):
        for more in ([], ["--sentence"], [file]):
            words = ["score", file, "-r", file, "-q", *more]
            assert out(capsys, *words, "-m", name, "-m", name) == out(capsys, *words, "-m", name)


def test_a_doubt_about_several_systems_is_told_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = [str(text(tmp_path / name, "This is tokenised , as it seems .")) for name in ("a", "b", "reference")]
    assert main(["score", *files[:2], "-r", files[2], "-m", "chrf"]) == 0
    warned = capsys.readouterr().err
    assert warned.count("the hypothesis looks tokenised") == 1 and f"{files[0]}, {files[1]}: the hypothesis" in warned
    assert warned.count("the reference looks tokenised") == 1 and f"{files[2]}: the reference" in warned


def test_several_systems_are_compared_with_the_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    reference = text(tmp_path / "reference", *(f"This is sentence number {i}, and it is long." for i in range(20)))
    worse = text(tmp_path / "worse", *(f"This was a sentence number {i} and it is." for i in range(20)))
    assert (
        main(["score", str(worse), str(reference), "-r", str(reference), "-m", "bleu", "--bootstrap", "100", "--format", "json"])
        == 0
    )
    first, second = json.loads(capsys.readouterr().out)
    assert "p_value" not in first and 0 < second["p_value"] < 0.05
    assert "bs:100" in second["signature"]


def test_the_seed_is_that_of_sacrebleu_and_its_variable(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = text(tmp_path / "reference", *(f"This is sentence {i}." for i in range(9)))
    words = ["score", text(tmp_path / "out", *(f"This was sentence {i}." for i in range(9))), "-r", reference, "--bootstrap", "20"]
    plain = out(capsys, *words)
    assert "seed:12345" in plain and plain == out(capsys, *words, "--seed", "12345")
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert "seed:7" in out(capsys, *words)
    assert "seed:12345" in out(capsys, *words, "--seed", "12345")
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    code, told = refused(capsys, *words)
    assert code == 2 and "SACREBLEU_SEED" in told


def test_lines_may_have_fewer_references(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hypothesis, first, second = (
        text(tmp_path / name, *lines)
        for name, lines in (("out", ("A cat.", "A dog.")), ("a", ("A cat.", "The dog.")), ("b", ("", "A dog.")))
    )
    assert main(["score", str(hypothesis), "-r", str(first), "-r", str(second), "-m", "chrf", "--format", "json"]) == 0
    shown, told = capsys.readouterr()
    (found,) = json.loads(shown)
    assert found["score"] == 100 and "nrefs:var" in found["signature"]
    assert "1 line has fewer references than 2" in told
    rows = out(capsys, "score", hypothesis, first, "-r", first, "-r", second, "--sentence", "-m", "chrf", "-m", "ter", "-q")
    assert rows == "100.00\t0.00\t100.00\t0.00\n" + rows.splitlines()[1] + "\n" and rows.splitlines()[1].count("\t") == 3
