"""What holds for every command, by kind: each way in, each way out, each message. Right answers come from the bytes themselves."""

import gzip
import io
import json
import lzma
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nmt.cli import main
from tests import toys
from tests.command_line import next_line, nmt_process, nmt_started, out, refused, text

MARK = b"\xef\xbb\xbf"


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `data`, a `run` on it, and `lines` and `same`, two texts of digits of as many lines."""
    folder = tmp_path_factory.mktemp("promises")
    data = toys.dataset(folder / "toy", toys.reversed_digits(40, seed=1), valid=4)
    (folder / "toy" / "data").rename(folder / "data")
    toys.run(toys.Dataset.open(folder / "data"), folder / "run", toys.config("rnn", max_steps=1))
    assert data.config["kind"] == "data"
    for name in ("lines", "same"):
        text(folder / name, "1 2", "3", "4 5 6")
    return folder


def translate(toy: Path, *words: str | Path) -> list[str | Path]:
    return ["translate", toy / "run", *words, "--device", "cpu", "--threads", "1", "--max-length", "4", "-q"]


def lines_of(content: bytes) -> list[bytes]:
    """The contract's definition, said the slow way."""
    lines, line = [], bytearray()
    for byte in content.removeprefix(MARK):
        if byte == 10:
            lines.append(bytes(line).removesuffix(b"\r"))
            line.clear()
        else:
            line.append(byte)
    return [*lines, bytes(line)] if line else lines


# Text in


TEXTS = {
    "separators": "1\u2028 2\u2029 3\x85 4\x0b 5\x0c 6\x1c 7\x1d 8\x1e 9\nx\n".encode(),
    "carriage-returns": b"1\r2\n3\r\n4\r\r\n\r\n5\r",
    "marks": MARK + b"1\n" + MARK + b"2\n" + MARK * 2 + b"\n",
    "control-bytes": b"1\x002\n\x00\n\x013\x1b[2J\x7f\n",
    "no-line-feed": b"1 2\n3",
    "blanks": "\n   \n\u00a0\u3000\n\u200b\n\t\n\n".encode(),
    "symbols": "</s> <s>\n<pad><unk> 1\n▁ ▅ <0x0A>\n".encode(),
    "long": b"1 " * 300 + b"\n" + b"x" * 100_000 + b"\n2",
    "mark-alone": MARK,
    "nothing": b"",
}


def answers(capsys: pytest.CaptureFixture[str], toy: Path, path: str | Path, *more: str | Path) -> dict[str, int]:
    """How many lines each command finds in a text."""
    found = {"translate": out(capsys, *translate(toy, path, *more, "--search", "greedy")).count("\n")}
    if not more:
        found["logprob"] = out(capsys, "logprob", toy / "run", path, path, "-q").count("\n")
    return found


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
def test_each_command_finds_the_lines_that_there_are(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, name: str, packing: str
) -> None:
    content, path = TEXTS[name], tmp_path / f"text{packing}"
    pack: Callable[[bytes], bytes] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[packing]
    half = len(content) // 2
    # Two archives in one file are one text.
    path.write_bytes(pack(content[:half]) + pack(content[half:]) if packing else content)
    count = len(lines_of(content))
    assert set(answers(capsys, toy, path).values()) == {count}
    assert answers(capsys, toy, path, path) == {"translate": 2 * count}
    if not count:
        assert "is empty" in refused(capsys, "score", path, "-r", path)[1]
        assert "no lines" in refused(capsys, "preprocess", path, path, "-o", tmp_path / "data")[1]
        return
    assert out(capsys, "score", path, "-r", path, "--sentence", "-m", "ter", "-q").count("\n") == count
    code = main(["preprocess", str(path), str(path), "-o", str(tmp_path / "data"), "--valid-size", "0", "-q"])
    told = capsys.readouterr().err
    if name == "blanks":
        assert code == 1 and f"{path} and {path}: no pairs left of {count}" in told
        return
    assert code == 0, told
    assert json.loads((tmp_path / "data" / "report.json").read_bytes())["pairs"]["read"] == count


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_marks_and_carriage_returns_make_no_difference_anywhere(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, end: bytes
) -> None:
    """Of a file made elsewhere: as an input, a second one, a prefix, a reference, a configuration."""
    other = {}
    for name in ("lines", "prefix", "config"):
        plain = {"lines": b"1 2\n3\n4 5 6\n", "prefix": b"1\n\n2\n", "config": b'[score]\nmetric = ["ter"]\n'}[name]
        (tmp_path / name).write_bytes(plain)
        other[name] = tmp_path / f"{name}.other"
        other[name].write_bytes(MARK + plain.removesuffix(b"\n").replace(b"\n", end))
    lines, prefix = tmp_path / "lines", tmp_path / "prefix"
    assert out(capsys, *translate(toy, lines, other["lines"])) == 2 * out(capsys, *translate(toy, lines))
    forced = out(capsys, *translate(toy, lines, "--prefix", prefix))
    assert out(capsys, *translate(toy, lines, "--prefix", other["prefix"])) == forced
    numbers = out(capsys, "logprob", toy / "run", lines, lines, "-q")
    assert out(capsys, "logprob", toy / "run", other["lines"], other["lines"], "-q") == numbers
    same = out(capsys, "score", lines, lines, "-r", lines, "-r", lines, "--config", tmp_path / "config", "-q")
    words = ("score", lines, lines, "-r", other["lines"], "-r", other["lines"], "--config", other["config"], "-q")
    assert "TER" in same and out(capsys, *words) == same


WRONG = [b"\xe9", b"\xc0\x8a", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\x80", b"\xff\xfe1"]


@pytest.mark.parametrize(
    "words",
    [
        "translate run same BAD -o OUT.gz",
        "translate run - same -o OUT.gz <BAD",
        "translate run same --prefix BAD -o OUT.gz",
        "score same BAD -r same -o OUT",
        "score same -r same -r BAD -o OUT",
        "score same -r same --breakdown -s BAD -o OUT",
        "logprob run BAD same -o OUT",
        "logprob run same BAD -o OUT",
        "preprocess BAD same -o OUT",
        "preprocess same BAD -o OUT",
        "preprocess same same --valid-source BAD --valid-target same -o OUT",
        "preprocess same same --valid-source same --valid-target BAD -o OUT",
        "score same -r same --config BAD -o OUT",
    ],
)
def test_bytes_that_are_no_text_are_named_wherever_they_come(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(toy)
    bad, output = tmp_path / "bad", tmp_path / "out"
    for place, wrong in enumerate(WRONG):
        line = 2 + place % 2  # the third one has them as the file's last bytes
        bad.write_bytes(b"\n" + wrong + b"\n\n" if line == 2 else b"\n\n" + wrong)
        command = words.removesuffix(" <BAD").replace("BAD", str(bad)).replace("OUT", str(output)).split()
        by_pipe = words.endswith("<BAD")
        if by_pipe:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bad.read_bytes())))
        code, told = refused(capsys, *command)
        assert code == 1 and told.startswith(f"{'standard input' if by_pipe else bad}, line {line}: "), told
        assert os.listdir(tmp_path) == ["bad"]


def test_a_character_may_lie_across_what_is_read_at_once(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    from nmt.data.text import BLOCK

    path = tmp_path / "long"
    for shift in range(4):
        path.write_bytes(b"1" * (BLOCK - shift) + "😀\n".encode() + b"2\n")
        assert out(capsys, *translate(toy, path, "--max-source", "9", "-q")).count("\n") == 2
        path.write_bytes(b"1" * (BLOCK - shift) + "😀".encode()[:-1] + b"\n2\n")
        code, told = refused(capsys, "score", path, "-r", path)
        assert code == 1 and told.startswith(f"{path}, line 1: byte 0xf0 at position {BLOCK - shift + 1} "), told


@pytest.mark.parametrize(
    "words",
    [
        "translate run BAD",
        "translate run lines --prefix BAD",
        "score lines -r BAD",
        "score BAD -r lines",
        "logprob run lines BAD",
        "preprocess BAD lines -o out",
        "preprocess lines lines --valid-source BAD --valid-target lines -o out",
        "score lines -r lines --config BAD",
    ],
)
@pytest.mark.parametrize("name", ["cut.gz", "cut.xz", "plain.gz", "plain.xz", "other.gz", "nothing.gz", "nothing.xz", "second.xz"])
def test_a_damaged_archive_is_named(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, name: str
) -> None:
    monkeypatch.chdir(toy)
    content = b"1 2\n3\n4 5 6\n"
    damaged = {
        "cut.gz": gzip.compress(content)[:-3],
        "cut.xz": lzma.compress(content)[:-3],
        "plain.gz": content,
        "plain.xz": content,
        "other.gz": lzma.compress(content),
        "nothing.gz": b"",
        "nothing.xz": b"",
        "second.xz": lzma.compress(content) + lzma.compress(content).replace(b"7zXZ", b"8zXZ"),
    }
    bad = tmp_path / name
    bad.write_bytes(damaged[name])
    code = main(words.replace("BAD", str(bad)).split())
    told = capsys.readouterr().err
    assert code == 1 and told.splitlines()[-1].startswith(f"nmt: error: {bad}: truncated or corrupt archive"), told
    assert not (toy / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        "score LONG -r SHORT",
        "score LONG LONG -r LONG -r SHORT",
        "score LONG -r LONG --breakdown -s SHORT",
        "logprob run SHORT LONG",
        "logprob run LONG SHORT",
        "preprocess LONG SHORT -o out",
        "preprocess lines lines --valid-source SHORT --valid-target LONG -o out",
        "translate run LONG --prefix SHORT",
    ],
)
def test_unequal_counts_are_told_with_both_names_before_the_work(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(toy)
    long, short = text(tmp_path / "long", *["1"] * 10), text(tmp_path / "short", *["1"] * 9)
    command = words.replace("LONG", str(long)).replace("SHORT", str(short)).split()
    code, told = refused(capsys, *command)
    assert code == 1 and all(word in told for word in (str(long), str(short), "10", "9")), told
    assert not (toy / "out").exists()
    short.write_text("\n".join(["1"] * 10))  # its last line without a line feed is a line
    if command[0] != "preprocess":
        assert main([*command, "-q"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_line_for_a_line_about_the_size_of_a_batch(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, count: int
) -> None:
    path = text(tmp_path / "text", *["1 2"] * count)
    for words in (["--batch-lines", "3"], ["--batch-tokens", "1"], ["--batch-tokens", "9"]):
        assert out(capsys, *translate(toy, path, *words)).count("\n") == count


def test_the_null_device_is_an_empty_file(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    null = os.devnull
    assert refused(capsys, "score", null, "-r", null) == (1, f"{null}: is empty: there is nothing to score")
    assert refused(capsys, "preprocess", null, null, "-o", tmp_path / "data") == (1, f"{null} and {null} hold no lines")
    assert out(capsys, "logprob", toy / "run", null, null, "-q") == out(capsys, *translate(toy, null, null)) == ""
    assert out(capsys, *translate(toy, null, toy / "lines", null)).count("\n") == 3
    assert out(capsys, "score", toy / "lines", "-r", toy / "lines", "-m", "ter", "-q", "--config", null).startswith("TER")


# Files out

OUTPUTS = {
    "translate": "translate run lines --device cpu -q -o OUT",
    "translate-packed": "translate run lines --device cpu -q -o OUT.gz",
    "score": "score lines -r lines -q -o OUT",
    "logprob": "logprob run lines lines -q -o OUT",
    "preprocess": "preprocess lines lines --valid-size 0 -q -o OUT",
    "average": "average run -q -o OUT",
    "report": "report run --lines 0 -q -o OUT",
}


def wanted(command: str, output: str | Path) -> list[str]:
    return [word.replace("OUT", str(output)) for word in OUTPUTS[command].split()]


@pytest.mark.parametrize("command", OUTPUTS)
def test_a_name_is_written_to_or_refused_before_the_work(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """As long as names may be; one byte more; a link to itself; a link to what is yet to be."""
    monkeypatch.chdir(toy)
    most = 255 - 3 * (command == "translate-packed")
    for name in ("x" * most, "ü" * (most // 2)):
        out(capsys, *wanted(command, tmp_path / name))
    assert len(os.listdir(tmp_path)) == 2
    loop, ending = tmp_path / "loop", ".gz" * (command == "translate-packed")
    os.symlink(f"loop{ending}", f"{loop}{ending}")
    # Whatever the work is would come after the check.
    monkeypatch.setattr("nmt.translate.Translator.load", None)
    monkeypatch.setattr("nmt.preprocess.Corpus", None)
    monkeypatch.setattr("nmt.checkpoint.assign", None)
    monkeypatch.setattr("nmt.score.score", None)
    for name, why in ((tmp_path / ("x" * (most + 1)), "file name too long"), (loop, "too many levels of symbolic links")):
        code, told = refused(capsys, *wanted(command, name))
        assert code == 1 and told == f"{name}{ending}: cannot be written ({why})", told
    assert os.path.islink(f"{loop}{ending}") and len(os.listdir(tmp_path)) == 3


@pytest.mark.parametrize("command", ["translate", "score", "logprob", "report"])
def test_what_was_opened_by_others_is_written_on_with(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A file anew in its place would lose what stands before, and what is to come after."""
    monkeypatch.chdir(toy)
    direct = tmp_path / "direct"
    out(capsys, *wanted(command, direct))
    with open(tmp_path / "log", "wb", buffering=0) as log:
        log.write(b"before\n")
        out(capsys, *wanted(command, f"/dev/fd/{log.fileno()}"))
        log.write(b"after\n")
    assert (tmp_path / "log").read_bytes() == b"before\n" + direct.read_bytes() + b"after\n"
    assert sorted(os.listdir(tmp_path)) == ["direct", "log"]


def test_stdout_by_its_name_is_stdout(toy: Path, tmp_path: Path) -> None:
    nmt = f"{sys.executable} -m nmt {' '.join(wanted('score', '/dev/stdout'))} -m ter"
    script = f"(echo before; {nmt}; echo after) > {tmp_path / 'log'}; {nmt} >&-"
    done = subprocess.run(["bash", "-c", script], cwd=toy, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"nmt: error: standard output is closed\n")
    before, score, after = (tmp_path / "log").read_text().splitlines()
    assert (before, score[:4], after) == ("before", "TER|", "after")


@contextmanager
def little_room() -> Iterator[None]:
    """Files have room for 2,000 bytes, as on a full disk: those of pytest too, so not for longer than need be."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("command", [name for name in OUTPUTS if name != "translate-packed"])
def test_a_full_disk_is_told_by_the_name_of_the_output(
    capsys: pytest.CaptureFixture[str],
    toy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(toy / "run")
    text(tmp_path / "lines", *["1 2 3"] * 2500)
    before = {*os.listdir(tmp_path), *(["out.nmt-partial", "out.nmt-partial.json"] if command == "translate" else [])}
    words = wanted(command, tmp_path / "out")
    if command == "score":
        words.append("--sentence")
    with little_room():
        code, told = refused(capsys, *words)
    assert code == 1 and told.startswith(f"{tmp_path / 'out'}: cannot be written (file too large)"), told
    assert set(os.listdir(tmp_path)) == before


# Messages and settings


def test_a_message_is_one_line_whatever_it_holds(capsys: pytest.CaptureFixture[str], toy: Path) -> None:
    name = "a\u2028b\x0bc\x1b[31md\x85e\r\nf\udce9[bold]g[/bold]%s"
    told = refused(capsys, "info", name)[1]
    assert told == "a\\u2028b\\x0bc\\x1b[31md\\x85e\\r\\nf\\udce9[bold]g[/bold]%s: no such directory"
    place = toy / "a\u2028b\nc[bold]"
    assert main(["average", str(toy / "run"), "-o", str(place)]) == 0
    assert main(["report", str(toy / "run"), "--lines", "0", "-o", str(toy / "p\u2029\n[b]q.html")]) == 0
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 2 and "p\\u2029\\n[b]q.html" in told


def test_a_name_is_told_as_it_is_in_any_locale(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "latin-1"}
    done = nmt_process("score", tmp_path / "名前", "-r", "-", environment=ascii_only)
    assert (done.returncode, done.stderr.decode()) == (1, f"nmt: error: {tmp_path / '名前'}: no such file\n")
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + "/é".encode() + b"\xe9"))
    shutil.copytree(toy / "data", odd)
    assert json.loads(out(capsys, "info", odd, "--json"))["path"] == f"{tmp_path}/é\\xe9"


DEEP = 100_000


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        ("[score]\nmetric = " + "[" * DEEP, 1, ": not valid TOML: nested too deeply"),
        ("[score]\nmetric = " + "{a=" * DEEP, 1, ": not valid TOML: nested too deeply"),
        ('[score]\nmetric = ["ter"]\nmetric = ["bleu"]\n', 1, ": not valid TOML: cannot overwrite a value (at line 3,"),
        ("[score]\n[score]\n", 1, ": not valid TOML: cannot declare ('score',) twice (at line 2,"),
        ('[score]\nmetric = ["ter"]\0\n', 1, ": not valid TOML: "),
        ("\r[score]\rformat = 3\r", 1, ": not valid TOML: "),
        ("[score]\nbootstrap = -1\n", 2, ":2: score.bootstrap must be at least 0, not -1"),
        ("[score]\nbootstrap = 1_000_001\n", 2, ":2: score.bootstrap must be at most 1000000, not 1000001"),
        ("[score]\n\nthreads = 0\n", 2, ":3: score.threads must be at least 1, not 0"),
        ("[score]\nseed = 2024-01-01\n", 2, ":2: score.seed must be an integer, not datetime"),
        ('[score]\nformat = ""\n', 2, ":2: score.format must be text or json, not ''"),
        ("score = 3\n", 2, ": score must be a table"),
        ("[[score]]\nx = 3\n", 2, ": score must be a table"),
    ],
)
def test_a_configuration_that_cannot_be_is_told_by_its_place(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, content: str, code: int, message: str
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(content, newline="")
    found, told = refused(capsys, "score", toy / "lines", "-r", toy / "lines", "--config", config)
    assert found == code and told.startswith(f"{config}{message}"), told


@pytest.mark.parametrize("content", ["[" * DEEP, '{"a":' * DEEP, '{"a": ' + "1" * 5000 + "}"])
def test_hostile_json_is_named(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, content: str) -> None:
    for kind in ("data", "run"):
        place = tmp_path / kind
        shutil.copytree(toy / kind, place)
        (place / "config.json").write_text(content)
        for words in (["info", place], ["translate", place, toy / "lines"], ["train", place, "-o", tmp_path / "new"]):
            code, told = refused(capsys, *words)
            assert code == 1 and str(place) in told and "unexpected" not in told, told
    partial = tmp_path / "out.nmt-partial"
    partial.write_text(f"{content}\n")
    code, told = refused(capsys, *translate(toy, toy / "lines", "-o", tmp_path / "out", "--format", "jsonl", "--continue"))
    assert code == 2 and told.startswith(f"{partial}: was begun with another"), told
    code, told = refused(capsys, "train", toy / "data", "-o", tmp_path / "new", "--set", f"train.warmup={content}")
    assert code == 2 and "train.warmup must be an integer" in told


def test_a_broken_word_on_stderr_costs_no_work(toy: Path, tmp_path: Path) -> None:
    """Where a log's disk is full the work goes on; where its reader went away it ends as at SIGPIPE, whole or not at all."""
    words = f"{sys.executable} -m nmt preprocess lines lines --valid-size 0 -o {tmp_path}"
    done = subprocess.run(["bash", "-c", f"{words}/full 2>/dev/full"], cwd=toy, check=False)
    assert done.returncode == 0 and (tmp_path / "full" / "config.json").exists()
    done = subprocess.run(["bash", "-c", f"{words}/gone 2> >(exec 0<&-); exit $?"], cwd=toy, check=False)
    assert done.returncode in (0, 141) and (done.returncode == 0) == (tmp_path / "gone").exists()
    for code, wrong in ((1, "info nothing"), (2, "scoer")):
        done = subprocess.run(["bash", "-c", f"{sys.executable} -m nmt {wrong} 2>/dev/full"], cwd=toy, check=False)
        assert done.returncode == code


@pytest.mark.parametrize("words", ["--help", "score --help", "train --list-options", "score lines -r lines -q"])
def test_each_command_ends_quietly_where_nobody_reads(toy: Path, words: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "nmt", *words.split()]
    done = subprocess.run(command, cwd=toy, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_environment_of_nothing_and_a_folder_that_is_gone(capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path) -> None:
    words = translate(toy, toy / "lines")
    expected = out(capsys, *words)
    command = [sys.executable, "-m", "nmt", *map(str, words)]
    bare = {"PYTHONPATH": str(Path(__file__).parents[1]), "COLUMNS": "1", "TMPDIR": "/nowhere"}
    done = subprocess.run(command, env=bare, cwd="/", capture_output=True, check=True)
    assert (done.stdout.decode(), done.stderr) == (expected, b"")
    script = 'cd "$1"; rmdir "$1"; shift; exec "$@"'
    bare = {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(["bash", "-c", script, "-", tmp_path, *command], env=bare, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (1, b"", 1)
    assert b"nmt: error: the working directory is there no more" in done.stderr


# The same bytes each time


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_preprocess_and_translate_give_the_same_bytes_whatever_is_around(
    capsys: pytest.CaptureFixture[str], toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other hash seeds, folders, file names, orders of directories, numbers of threads, locales; the model moved."""
    pairs = toys.words(400, seed=3)
    source, target = (text(tmp_path / name, *(pair[side] for pair in pairs)) for side, name in ((0, "s"), (1, "t")))
    how = ["--tokenizer", "unigram", "--vocab-size", "60", "--dedup", "--vocab-sample", "300", "-q"]
    answer = ["--device", "cpu", "--search", "sample", "--seed", "5", "-q"]
    out(capsys, "preprocess", source, target, "-o", tmp_path / "data", *how)
    expected = bytes_of(tmp_path / "data")
    said = out(capsys, "translate", toy / "run", toy / "lines", *answer, "--threads", "1")

    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    for name, path in (("other", source), ("names.gz", target)):
        (elsewhere / name).write_bytes(gzip.compress(path.read_bytes()) if name.endswith("gz") else path.read_bytes())
    shutil.copytree(toy / "run", elsewhere / "moved", symlinks=True)
    shutil.copy(toy / "lines", elsewhere / "text")
    monkeypatch.chdir(elsewhere)
    for number, seed in enumerate(("0", "4242")):
        around = {"PYTHONHASHSEED": seed, "TMPDIR": str(elsewhere), "LC_ALL": ("C", "C.UTF-8")[number], "TZ": "Asia/Tokyo"}
        done = nmt_process(
            "preprocess", "other", "names.gz", "-o", f"data{seed}", *how, "--workers", f"{3 * number + 1}", environment=around
        )
        assert done.returncode == 0, done.stderr
        assert bytes_of(elsewhere / f"data{seed}") == expected
    around = {"PYTHONHASHSEED": "7", "LC_ALL": "C"}
    done = nmt_process("translate", "moved", "text", *answer, "--threads", "2", environment=around)
    assert (done.returncode, done.stdout.decode()) == (0, said), done.stderr

    listdir, scandir = os.listdir, os.scandir
    monkeypatch.setattr(os, "listdir", lambda path=".": listdir(path)[::-1])

    class Reversed:
        def __init__(self, path: str = ".") -> None:
            self._entries = list(scandir(path))

        def __iter__(self) -> "Reversed":
            return self

        def __next__(self) -> "os.DirEntry[str]":
            if not self._entries:
                raise StopIteration
            return self._entries.pop()

        def __enter__(self) -> "Reversed":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        close = __exit__

    monkeypatch.setattr(os, "scandir", Reversed)
    out(capsys, "preprocess", "other", "names.gz", "-o", "again", *how)
    assert bytes_of(elsewhere / "again") == expected
    assert out(capsys, "translate", "moved", "text", *answer, "--threads", "1") == said


def test_lines_too_long_for_the_subword_trainer_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A line of 6,000 bytes is none of them: the letter that stands only in it has a subword."""
    path = text(tmp_path / "text", *["a b"] * 20, "x" * 6000, "y" * 20_000)
    assert main(["preprocess", str(path), str(path), "-o", str(tmp_path / "data"), "--valid-size", "0"]) == 0
    told = capsys.readouterr().err
    assert "2 lines of more than 16,384 bytes were not used to train it" in told
    report = json.loads((tmp_path / "data" / "report.json").read_bytes())
    assert report["vocabulary"]["skipped_lines"] == 2
    assert [character for character, _ in report["source"]["characters_not_covered"]["most_frequent"]] in ([], ["y"])


@pytest.mark.parametrize("first", ["input", "output"])
def test_a_driver_may_open_two_named_pipes_in_any_order(first: str, toy: Path, tmp_path: Path) -> None:
    for name in ("in", "out"):
        os.mkfifo(tmp_path / name)
    with nmt_started("translate", toy / "run", tmp_path / "in", "-o", tmp_path / "out", "-q", "--device", "cpu") as process:
        opened = {}
        for name in (first, *({"input", "output"} - {first})):
            opened[name] = open(tmp_path / "in", "wb", 0) if name == "input" else open(tmp_path / "out", "rb", 0)  # noqa: SIM115
        with opened["input"] as source, opened["output"] as target:
            source.write(b"1 2 3\n")
            assert next_line(target)
        assert process.wait(60) == 0
