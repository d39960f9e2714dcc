"""Arbitrary bytes, line ends, lengths, names and option values for the commands: right output, or one line on what is wrong.

NMT_FUZZ=100 tries a hundred times as many examples, and other ones each time.
"""

import gzip
import io
import json
import lzma
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from nmt.cli import main
from tests import toys

MORE = int(os.environ.get("NMT_FUZZ", "0"))


def examples(count: int) -> settings:
    """`count` examples, always the same ones; with NMT_FUZZ=N `count` × N new ones, of which none is kept."""
    return settings(
        max_examples=count * max(1, MORE),
        derandomize=not MORE,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


# What is fed

SEPARATORS = ["\r", "\x85", "\u2028", "\u2029", "\v", "\f", "\x1c", "\x1d", "\x1e", "\0", "\ufeff", "\t", "\u3000", "\u200b"]
"""What some program takes for the end of a line, or for nothing; none of it ends one here."""

ATOMS = [
    *SEPARATORS,
    "1",
    "2 3",
    " ",
    "  ",
    "<s>",
    "</s>",
    "<pad>",
    "<unk>",
    "▁",
    "<0x0A>",
    "…ﬁÅ",
    "日本",
    "👩‍👩‍👧",
    "e\u0301" * 3,
    "7 " * 300,
]

PIECES = st.sampled_from(ATOMS).map(str.encode) | st.text(max_size=8).map(lambda text: text.replace("\n", "").encode())

WRONG = st.sampled_from([b"\xe9", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x8a"])
"""No UTF-8: Latin-1, UTF-16's mark, half a character, a surrogate, beyond Unicode, a line feed in two bytes."""

ONCE = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r\r\n"])
ENDS = ONCE | st.just(b"\n\n")


def lines_of(pieces: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    line = st.lists(pieces, max_size=5).map(b"".join)
    return st.builds(
        lambda mark, lines, last: mark + b"".join(line + end for line, end in lines) + last,
        st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
        st.lists(st.tuples(line, ENDS), max_size=6),
        st.just(b"") | line,
    )


TEXTS = lines_of(PIECES)
BYTES = TEXTS | lines_of(PIECES | WRONG) | st.binary(max_size=60)


@st.composite
def parallel(draw: st.DrawFn, most: int) -> list[bytes]:
    """Two texts or more; often with equally many lines, and more of them."""
    count = draw(st.integers(2, most))
    if draw(st.booleans()):
        return [draw(BYTES) for _ in range(count)]
    line = st.lists(PIECES, min_size=1, max_size=4).map(b" ".join)
    rows = draw(st.lists(st.tuples(*[line] * count), min_size=1, max_size=12))
    return [b"".join(row[side] + draw(ONCE) for row in rows) for side in range(count)]


NAMES = [
    b"plain",
    b"two words",
    b"'\"$(x);*?[",
    b"-",
    b"--overwrite",
    b"-o",
    b"\xe9\xff",
    "日本".encode(),
    b"new\nline",
    b"[bold]x[red]",
]

ODD = [
    "",
    " ",
    "-1",
    "0",
    "1",
    "2",
    "3",
    "7",
    "0.5",
    "1.0",
    "1e3",
    "-0.1",
    "nan",
    "inf",
    "1e999",
    "9" * 25,
    "-" + "9" * 25,
    "0x10",
    "1_0",
]
ODD += [
    "true",
    "none",
    "auto",
    "cpu",
    "cuda:99",
    "[]",
    "{}",
    "'",
    '"',
    "\udcff",
    "é",
    "٣",
    "-",
    "--",
    "a=b",
    "bpe",
    "beam",
    "None",
    "/",
    ".",
]
VALUES = st.sampled_from(ODD) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
"""Of options: mostly wrong. The numbers are small or absurd, since what is only large may rightly take long."""

NUMBERS = "1 2 3 5"
OPTIONS = {
    "preprocess": {
        "--valid-size": "0 1 2",
        "--tokenizer": "bpe unigram char word",
        "--vocab-size": "8 40 300 8000",
        "--normalization": "identity nfkc nmt_nfkc",
        "--character-coverage": "0.5 0.98 1",
        "--max-length": "1 5 100",
        "--max-ratio": "1 1.5 9",
        "--vocab-sample": NUMBERS,
        "--errors": "replace strict",
        "--seed": NUMBERS,
        "--target-lang": "de zh",
        "--workers": NUMBERS,
        "--valid-source": "",
        "--vocab-from": "",
        "--config": "",
        "--lowercase --separate-vocabs --byte-fallback --dedup --overwrite --quiet": None,
    },
    "train": {
        "--backend": "rnn transformer",
        "--size": "tiny",
        "--max-epochs": NUMBERS,
        "--max-minutes": "0.1 5",
        "--batch-tokens": "1 20 600",
        "--accumulate": NUMBERS,
        "--precision": "float32 bfloat16 float16 auto",
        "--seed": NUMBERS,
        "--device": "cpu auto",
        "--threads": "1 2",
        "--init-from": "",
        "--config": "",
        "--resume --overwrite --no-compile --quiet": None,
    },
    "translate": {
        "--format": "text jsonl",
        "--n-best": NUMBERS,
        "--search": "greedy sample beam",
        "--beam-size": NUMBERS,
        "--length-penalty": "-1 0 0.6 1 40",
        "--no-repeat-ngram": NUMBERS,
        "--max-length": NUMBERS,
        "--max-length-ratio": "0.1 1 2",
        "--temperature": "0 1e-9 0.5 1 1e9",
        "--top-k": NUMBERS,
        "--top-p": "1e-9 0.5 1",
        "--min-p": "0 0.1 1",
        "--seed": NUMBERS,
        "--overlong": "truncate split error",
        "--max-source": NUMBERS,
        "--errors": "replace strict",
        "--batch-tokens": "1 20 600",
        "--batch-lines": NUMBERS,
        "--precision": "float32 int8",
        "--device": "cpu auto",
        "--threads": "1 2",
        "--prefix": "",
        "--ensemble": "",
        "--config": "",
        "--unique --scores --alignments --continue --no-cache --quiet": None,
    },
    "score": {
        "--metric": "bleu chrf chrf++ ter",
        "--tokenize": "13a char intl none zh",
        "--target-lang": "de zh",
        "--bootstrap": "0 2 9",
        "--randomization": "0 2 9",
        "--seed": NUMBERS,
        "--format": "text json",
        "--errors": "replace strict",
        "--device": "cpu auto",
        "--threads": "1",
        "--source": "",
        "--data": "",
        "--config": "",
        "--lowercase --sentence --breakdown --quiet": None,
    },
}
"""Of each command: options with some right values (with none: of files), and last those that have no value."""


@st.composite
def options(draw: st.DrawFn, command: str) -> list[str]:
    """A few words for the command line, the values mostly right ones."""
    words = []
    for name, values in draw(st.lists(st.sampled_from(list(OPTIONS[command].items())), max_size=4)):
        if values is None:
            words.append(draw(st.sampled_from(name.split())))
            continue
        right = values.split() if draw(st.integers(0, 3)) else []
        value = draw(st.sampled_from(right) if right else VALUES)
        words += [f"{name}={value}"] if draw(st.booleans()) else [name, value]
    return words


# What is right


def parts(content: bytes) -> list[bytes]:
    """The lines of a file, as the contract says."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line.removesuffix(b"\r") for line in lines[:-1]] + lines[-1:] * bool(lines[-1])


def wrong_line(content: bytes) -> int | None:
    """The number of the first line that is not UTF-8."""
    for number, line in enumerate(parts(content), 1):
        try:
            line.decode()
        except UnicodeDecodeError:
            return number
    return None


@dataclass
class Told:
    code: int
    out: bytes
    err: str


def told(*words: str | Path, stdin: bytes = b"") -> Told:
    """What a command line does, with all that reaches the descriptor of stderr, native code's words too.

    Where it fails: that it does so in one line, unsurprised, without output.
    """
    streams = sys.stdin, sys.stdout, sys.stderr
    kept = os.dup(2)
    with tempfile.TemporaryFile() as errors:
        os.dup2(errors.fileno(), 2)
        sys.stdin, sys.stdout = io.TextIOWrapper(io.BytesIO(stdin)), io.TextIOWrapper(io.BytesIO())
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  closed below
        try:
            code = main([str(word) for word in words])
            sys.stdout.flush()
            sys.stderr.close()
            out = sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]
        finally:
            sys.stdin, sys.stdout, sys.stderr = streams
            os.dup2(kept, 2)
            os.close(kept)
        errors.seek(0)
        err = errors.read().decode()
    assert "Traceback" not in err and "unexpected" not in err, err
    if code:
        assert code in (1, 2), (code, err)
        said = [line for line in err.split("\n") if not line.startswith("nmt: warning: ")] if code == 1 else err.split("\n")
        assert said[-1] == "" and said[-2].startswith("nmt: error: ") and len(said[-2]) > 15, err
        assert sum(line.startswith("nmt: error: ") for line in said) == 1, err
        if code == 2:
            assert len(said) == 2 and not out, err
    event(f"{words[0]}: exit {code}")
    return Told(code, out, err)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny run of each backend, and the data of both."""
    folder = tmp_path_factory.mktemp("fuzzed")
    data = toys.dataset(folder / "toy", toys.reversed_digits(60, seed=1), valid=4)
    found = {"data": folder / "toy" / "data"}
    for backend in toys.TINY:
        found[backend] = folder / backend
        toys.run(data, found[backend], toys.config(backend, max_steps=2))
    return found


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """Other tests compute in as many threads as before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@contextmanager
def place() -> Iterator[Path]:
    """A folder for one example."""
    folder = tempfile.mkdtemp(prefix="fuzz")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)


def put(folder: Path, name: bytes, content: bytes, packing: str = "") -> Path:
    """A file whose name may be any bytes."""
    path = Path(os.fsdecode(os.path.join(os.fsencode(folder), name + packing.encode())))
    path.write_bytes({"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[packing](content))
    return path


def shown(path: Path) -> str:
    """A path as messages show it."""
    return os.fspath(path).replace("\n", "\\n").encode("utf-8", "backslashreplace").decode()


def names(folder: Path) -> set[str]:
    return {os.fspath(path.relative_to(folder)) for path in folder.rglob("*")}


# Translate


@pytest.mark.parametrize("backend", list(toys.TINY))
@examples(25)
@given(content=BYTES, packing=st.sampled_from(["", ".gz", ".xz", "-"]), replace=st.booleans(), name=st.sampled_from(NAMES))
def test_translate_gives_a_line_for_a_line_or_names_the_wrong_one(
    runs: dict[str, Path], backend: str, content: bytes, packing: str, replace: bool, name: bytes
) -> None:
    with place() as folder:
        path = None if packing == "-" else put(folder, name, content, packing)
        output = folder / "out.text"
        words = ["--max-length", "12", "-o", output, *(["--errors", "replace"] if replace else [])]
        found = told(
            "translate", runs[backend], *([path] if path else []), *words, "--device", "cpu", "--threads", "1", stdin=content
        )
        number = None if replace else wrong_line(content)
        if number is None:
            assert found.code == 0, found.err
            answers = output.read_bytes().decode().split("\n")
            assert len(answers) - 1 == len(parts(content)) and answers[-1] == ""
            for line, answer in zip(parts(content), answers, strict=False):
                assert line.strip(b" \t") or not answer
            assert ("U+FFFD" in found.err) == (wrong_line(content) is not None)
        else:
            assert found.code == 1
            assert f"nmt: error: {shown(path) if path else 'standard input'}, line {number}: byte 0x" in found.err
            assert not output.exists()
        left = names(folder) - {"out.text", *([path.name] if path else [])}
        assert left <= {"out.text.nmt-partial", "out.text.nmt-partial.json"} and (found.code or not left)


@examples(50)
@given(content=BYTES, words=options("translate"), to_file=st.booleans())
def test_translate_takes_or_refuses_any_option(runs: dict[str, Path], content: bytes, words: list[str], to_file: bool) -> None:
    with place() as folder:
        source = put(folder, b"source", content)
        output = folder / "out.text"
        cap = [] if any(word.startswith("--max-length") for word in words) else ["--max-length", "9"]
        target = ["-o", output] if to_file else []
        found = told("translate", runs["rnn"], source, *target, *cap, *words)
        if found.code == 0:
            answers = (output.read_bytes() if to_file else found.out).decode().split("\n")[:-1]
            if "jsonl" in " ".join(words):
                answers = [answer for answer in answers if json.loads(answer)["rank"] == 0]
            assert len(answers) == len(parts(content))
        elif to_file:
            assert names(folder) <= {"source", "out.text.nmt-partial", "out.text.nmt-partial.json"} and not found.out


# Score


@examples(60)
@given(texts=parallel(3), packing=st.sampled_from(["", ".gz", ".xz"]), words=options("score"))
def test_score_takes_or_refuses_any_text(runs: dict[str, Path], texts: list[bytes], packing: str, words: list[str]) -> None:
    with place() as folder:
        paths = [put(folder, name, text, packing) for name, text in zip((b"--hyp", b"ref \xe9", b"[other]"), texts, strict=False)]
        before = names(folder)
        found = told("score", paths[0], *paths[2:], "-r", paths[1], *words)
        assert names(folder) == before
        if not words:
            bad = [(path, wrong_line(text)) for path, text in zip(paths, texts, strict=True) if wrong_line(text)]
            counts = {len(parts(text)) for text in texts}
            assert found.code == (1 if bad or len(counts) > 1 or counts == {0} else 0), found.err
            if bad:
                assert any(f"nmt: error: {shown(path)}, line {number}: byte" in found.err for path, number in bad), found.err
            elif found.code:
                assert any(shown(path) in found.err for path in paths)
        assert not found.code or not found.out
        assert found.code or found.out


# Preprocess and train


@examples(40)
@given(pair=parallel(2), words=options("preprocess"), backend=st.sampled_from(list(toys.TINY)), name=st.sampled_from(NAMES))
@example(pair=[b"1 2\n3\n4\n"] * 2, words=["--valid-size=0"], backend="rnn", name=b"\xe9\xff")
def test_what_preprocess_takes_train_and_translate_take(pair: list[bytes], words: list[str], backend: str, name: bytes) -> None:
    with place() as folder:
        paths = [put(folder, name, text) for name, text in zip((b"-source", b"target \xe9"), pair, strict=True)]
        data, run = (folder / os.fsdecode(name + end) for end in (b"", b".run"))
        found = told("preprocess", *paths, "-o", data, *words)
        if found.code:
            assert names(folder) == {path.name for path in paths} and not found.out
            number, counts = [wrong_line(text) for text in pair], [len(parts(text)) for text in pair]
            if not words and any(number):
                assert any(f"{shown(path)}, line {n}: " in found.err for path, n in zip(paths, number, strict=True) if n), found.err
            elif not words and counts[0] != counts[1]:
                assert all(shown(path) in found.err for path in paths) and all(f"{count}" in found.err for count in counts)
            return
        tiny = [f"--set=model.{key}={value}" for key, value in toys.TINY[backend].items()]
        cpu = ["--device", "cpu", "--threads", "1"]
        trained = told("train", data, "-o", run, "--backend", backend, "--max-steps", "1", "--batch-tokens", "600", *tiny, *cpu)
        assert trained.code == 0 or "pair" in trained.err, trained.err
        if trained.code == 0:
            answers = told("translate", run, paths[0], "--errors", "replace", "--max-length", "5", *cpu)
            assert (answers.code, answers.out.count(b"\n")) == (0, len(parts(pair[0]))), answers.err
            answers.out.decode()


SETTINGS = {
    "model.backend": "rnn transformer",
    "model.layers": "1 2",
    "model.width": "4 8",
    "model.heads": "1 2 4",
    "model.dropout model.attention_dropout data.bpe_dropout train.label_smoothing": "0 0.5 0.99",
    "model.tie_embeddings model.bidirectional": "true false",
    "model.start": "bos eos",
    "model.cell": "rnn gru lstm",
    "model.attention": "additive dot bilinear scaled-dot none",
    "model.context": "initial every-step",
    "model.initial_state": "zero learned",
    "model.positions": "sinusoidal none",
    "model.embedding model.feed_forward": NUMBERS,
    "train.learning_rate train.clip_norm": "1e-9 0.1 1e9",
    "train.warmup train.accumulate train.valid_every train.save_every train.log_every train.keep_last train.patience": NUMBERS,
    "train.schedule": "constant inverse-sqrt linear cosine",
    "train.metric": "nll bleu chrf",
    "train.teacher_forcing": "0 0.5 1",
    "train.precision": "float32 bfloat16",
    "train train. . model.nothing nothing.key =": "",
}
"""Settings with some right values; last what is none."""


@st.composite
def assignments(draw: st.DrawFn) -> list[tuple[str, str]]:
    """A few settings, the values mostly right ones."""
    found = []
    for keys, values in draw(st.lists(st.sampled_from(list(SETTINGS.items())), max_size=3)):
        right = values.split() if draw(st.integers(0, 3)) else []
        found.append((draw(st.sampled_from(keys.split())), draw(st.sampled_from(right) if right else VALUES)))
    return found


@examples(50)
@given(
    words=options("train"),
    chosen=assignments(),
)
def test_train_takes_or_refuses_any_setting(runs: dict[str, Path], words: list[str], chosen: list[tuple[str, str]]) -> None:
    with place() as folder:
        before = names(runs["data"])
        backend = [] if any("backend" in word for word in (*words, *(key for key, _ in chosen))) else ["--backend", "rnn"]
        small = ["--set=model.layers=1", "--set=model.width=8", "--max-steps=1", *backend]
        assigned = [f"--set={key}={value}" for key, value in chosen]
        found = told("train", runs["data"], "-o", folder / "run", *small, *words, *assigned)
        assert not found.out and names(runs["data"]) == before
        if found.code:
            assert not list(folder.rglob("*.partial"))
            assert names(folder) == set() or found.code == 1, found.err
        else:
            assert (folder / "run" / "checkpoints").is_dir()


@examples(40)
@given(
    content=st.binary(max_size=40)
    | st.text(max_size=40).map(str.encode)
    | assignments().map(lambda found: "".join(f"{key} = {value}\n" for key, value in found).encode("utf-8", "surrogateescape")),
    command=st.sampled_from(list(OPTIONS)),
)
def test_any_configuration_file_is_read_or_named(runs: dict[str, Path], content: bytes, command: str) -> None:
    with place() as folder:
        path = put(folder, b"c \xe9.toml", content)
        text = put(folder, b"text", b"1 2\n3\n")
        commands: dict[str, list[str | Path]] = {
            "preprocess": [text, text, "-o", folder / "data"],
            "train": [runs["data"], "-o", folder / "run", "--max-steps=1", "--size=tiny", "--device=cpu"],
            "translate": [runs["rnn"], text, "--max-length=5"],
            "score": [text, "-r", text],
        }
        found = told(command, *commands[command], "--config", path)
        assert found.code == 0 or shown(path) in found.err or "model" in found.err or "train." in found.err, found.err


DAMAGE: list[Callable[[bytes, int], bytes]] = [
    lambda whole, at: whole[: at % max(1, len(whole))],
    lambda whole, at: b"",
    lambda whole, at: whole + b"\0",
    lambda whole, at: (
        bytes([*whole[: at % len(whole)], whole[at % len(whole)] ^ 0x55, *whole[at % len(whole) + 1 :]]) if whole else b"x"
    ),
]


@examples(40)
@given(which=st.integers(0, 50), how=st.sampled_from(DAMAGE), at=st.integers(0, 1 << 20), kind=st.sampled_from(["data", "rnn"]))
def test_damaged_data_and_models_are_refused_in_one_line(
    runs: dict[str, Path], which: int, how: Callable[[bytes, int], bytes], at: int, kind: str
) -> None:
    with place() as folder:
        copy = folder / "copy"
        shutil.copytree(runs[kind], copy, symlinks=True)
        files = sorted(path for path in copy.rglob("*") if path.is_file() and not path.is_symlink())
        hurt = files[which % len(files)]
        hurt.write_bytes(how(hurt.read_bytes(), at))
        text = put(folder, b"text", b"1 2\n3\n")
        tiny: list[Any] = ["--backend=rnn", "--max-steps=1", "--set=model.width=8", "--set=model.layers=1", "--device=cpu"]
        words = ["train", copy, "-o", folder / "run", *tiny] if kind == "data" else ["translate", copy, text, "--max-length=5"]
        found = told(*words)
        assert found.code == 0 or os.fspath(copy) in found.err, found.err
