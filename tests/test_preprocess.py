"""Preprocess: what goes in comes out, paired, once, and the report counts it; against filters written the slow way."""

import gzip
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import nmt.data.corpus
from nmt.data.corpus import Corpus
from nmt.data.report import Report
from nmt.data.shards import Dataset, ParallelData
from nmt.data.text import read_lines
from nmt.errors import NmtError, UsageError
from nmt.preprocess import Options, preprocess
from nmt.vocab import UNK
from tests.memory import output_of, peak

ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]


class Recorder:
    """A voice that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []
        self.done: Counter[str] = Counter()

    def say(self, message: str) -> None:
        self.said.append(message)

    def warn(self, message: str) -> None:
        self.warned.append(message)

    @contextmanager
    def progress(self, label: str, unit: str, total: int | None = None) -> Iterator["Bar"]:
        yield Bar(self, label)


class Bar:
    def __init__(self, recorder: Recorder, label: str) -> None:
        self.recorder, self.label = recorder, label

    def advance(self, amount: int = 1) -> None:
        self.recorder.done[self.label] += amount


def corpus(size: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Distinct pairs: numbers spelled digit by digit."""
    numbers = random.Random(seed).sample(range(10, 10_000_000), size)
    return tuple([" ".join(words[int(digit)] for digit in str(number)) for number in numbers] for words in (ENGLISH, GERMAN))


def write(path: Path, lines: list[str], end: str = "\n") -> str:
    path.write_bytes("".join(line + end for line in lines).encode())
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> Options:
    """300 pairs, and options to preprocess them to `out`."""
    source, target = corpus(300)
    return Options(write(tmp_path / "a.en", source), write(tmp_path / "a.de", target), str(tmp_path / "out"), vocab_size=100)


def run(options: Options) -> tuple[Report, Recorder]:
    recorder = Recorder()
    return preprocess(options, recorder), recorder


def made_of(source: list[str], target: list[str], tmp_path: Path, **options: object) -> tuple[Report, Dataset]:
    """The data and the report of a corpus, all of it for training unless said otherwise."""
    paths = write(tmp_path / "s", source), write(tmp_path / "t", target)
    base = Options(*paths, str(tmp_path / "data"), vocab_size=300, valid_size=0, overwrite=True)
    report, _ = run(replace(base, **options))
    return report, Dataset.open(tmp_path / "data")


def pairs(dataset: Dataset, data: ParallelData) -> list[tuple[str, str]]:
    return [(dataset.source.decode(data.src[i].tolist()), dataset.target.decode(data.tgt[i].tolist())) for i in range(len(data))]


def content(directory: str | Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in Path(directory).rglob("*")}


def test_every_pair_is_in_training_or_validation_once(files: Options) -> None:
    report, recorder = run(files)
    data = Dataset.open(Path(files.output))
    everything = list(zip(read_lines(files.source), read_lines(files.target), strict=True))
    train, valid = pairs(data, data.train), pairs(data, data.valid)
    assert sorted(train + valid) == sorted(everything)
    assert train == [pair for pair in everything if pair in set(train)]  # in their order
    assert len(valid) == 3
    assert valid == list(zip(read_lines(data.valid_source), read_lines(data.valid_target), strict=True))
    assert recorder.said == ["no validation set given: 3 of 300 pairs are set aside (seed 1)"]
    assert report.values["pairs"] == {"read": 300, "train": 297, "valid": 3}
    assert recorder.done == {"reading": 300, "training vocabulary": 297, "encoding": 300}
    assert json.loads((Path(files.output) / "report.json").read_text("utf-8")) == report.values


@pytest.mark.parametrize(("size", "expected"), [(2, 1), (199, 1), (200, 2)])
def test_the_default_validation_share(tmp_path: Path, size: int, expected: int) -> None:
    report, _ = made_of(*corpus(size), tmp_path, valid_size=None)
    assert report.values["pairs"] == {"read": size, "train": size - expected, "valid": expected}


def test_the_validation_choice_is_seeded_and_uniform(files: Options) -> None:
    chosen = Counter[str]()
    for seed in range(20):
        run(replace(files, seed=seed, valid_size=30, tokenizer="char", overwrite=True))
        chosen.update(read_lines(Dataset.open(Path(files.output)).valid_source))
    lines = list(read_lines(files.source))
    thirds = [sum(chosen[line] for line in lines[i : i + 100]) for i in (0, 100, 200)]
    assert sum(thirds) == 20 * 30
    assert all(abs(third - 200) < 5 * (600 * 1 / 3 * 2 / 3) ** 0.5 for third in thirds)
    assert 40 < sum(count > 2 for count in chosen.values()) < 160  # binomial: not always the same lines


def test_the_same_text_and_seed_give_the_same_bytes(files: Options, tmp_path: Path) -> None:
    run(files)
    expected = content(files.output)
    crlf = [
        write(tmp_path / f"crlf.{side}", list(read_lines(path)), "\r\n")
        for side, path in (("en", files.source), ("de", files.target))
    ]
    bom = [str(tmp_path / "bom.en.gz"), str(tmp_path / "bom.de")]
    Path(bom[0]).write_bytes(gzip.compress(b"\xef\xbb\xbf" + Path(files.source).read_bytes().removesuffix(b"\n")))
    Path(bom[1]).write_bytes(b"\xef\xbb\xbf" + Path(files.target).read_bytes())
    for source, target, workers in ((files.source, files.target, 3), (*crlf, 1), (*bom, None)):
        output = str(tmp_path / "again" / "elsewhere")
        run(replace(files, source=source, target=target, output=output, workers=workers, overwrite=True))
        assert content(output) == expected
    run(replace(files, seed=2, overwrite=True))
    assert content(files.output) != expected


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    odd = ["a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei", "a\rb", "a\0b", "x"]
    report, data = made_of(odd, ["1", "2", "3", "4"], tmp_path, normalization="identity", byte_fallback=True, vocab_size=400)
    assert report.values["pairs"]["train"] == 4
    assert pairs(data, data.train) == list(zip(odd, "1234", strict=True))


def test_a_blank_on_one_side_drops_the_pair(tmp_path: Path) -> None:
    report, data = made_of(["a", "", "c"], ["x", "y", "z"], tmp_path)
    assert pairs(data, data.train) == [("a", "x"), ("c", "z")]
    assert report.values["dropped"]["empty"] == {"count": 1, "first_lines": [2]}


def test_what_encodes_to_nothing_is_empty(tmp_path: Path) -> None:
    blanks = ["", " ", "\u00a0\u3000", "\u200b", "\t", "\u200b\u200b"]
    report, data = made_of([*blanks, "a", *["a"] * 6], [*["a"] * 6, "a", *blanks], tmp_path)
    assert pairs(data, data.train) == [("a", "a")]
    assert report.values["dropped"]["empty"] == {"count": 12, "first_lines": [1, 2, 3, 4, 5]}


def test_unequal_line_counts_stop_it_with_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nmt.data.corpus, "CHUNK", 4)
    short, long = write(tmp_path / "short", ["a"] * 9), write(tmp_path / "long", ["b"] * 23)
    for source, target in ((short, long), (long, short)):
        options = Options(source, target, str(tmp_path / "out"))
        with pytest.raises(NmtError, match=r"(short has 9 lines and .*long has 23|long has 23 lines and .*short has 9)"):
            run(options)
        with pytest.raises(NmtError, match=r"(short has 9 lines and .*long has 23|long has 23 lines and .*short has 9)"):
            run(replace(options, source=long, target=long, valid_source=source, valid_target=target))
    assert not (tmp_path / "out").exists()


def test_the_length_limit_counts_subwords_without_the_end(tmp_path: Path) -> None:
    lines = ["abcde"[:size] for size in (4, 5, 3)] + ["abcdea"]
    report, data = made_of(lines, ["a"] * 4, tmp_path, tokenizer="char", max_length=6)  # one more for the space before a word
    assert [source for source, _ in pairs(data, data.train)] == ["abcd", "abcde", "abc"]
    assert report.values["dropped"]["too_long"] == {"count": 1, "first_lines": [4]}
    assert report.values["source"]["length"]["longest"] == 6
    with pytest.raises(NmtError, match=r"no pairs left of 4 .*too_long 4 \(first in line 1\); --max-length is 3"):
        made_of(lines, ["a"] * 4, tmp_path, tokenizer="char", max_length=3)


def test_the_ratio_is_one_of_subwords_either_way(tmp_path: Path) -> None:
    source, target = ["abc", "abcdefg", "a", "ab"], ["abc", "a", "abcdefg", "abcde"]
    report, data = made_of(source, target, tmp_path, tokenizer="char", max_ratio=2)  # 8 : 2 is out, 6 : 3 is in
    assert [pair[0] for pair in pairs(data, data.train)] == ["abc", "ab"]
    assert report.values["dropped"]["ratio"] == {"count": 2, "first_lines": [2, 3]}


def test_repeated_pairs_are_kept_unless_unwanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nmt.data.corpus, "CHUNK", 2)
    source, target = ["a", "a", "b", "a", "a", "b"], ["x", "y", "x", "x", "y", "x"]
    assert len(made_of(source, target, tmp_path)[1].train) == 6
    report, data = made_of(source, target, tmp_path, dedup=True)
    assert pairs(data, data.train) == [("a", "x"), ("a", "y"), ("b", "x")]
    assert report.values["dropped"]["duplicate"] == {"count": 3, "first_lines": [4, 5, 6]}


def test_without_repeats_validation_is_disjoint_from_training(tmp_path: Path) -> None:
    source, target = corpus(40)
    report, data = made_of(source * 3, target * 3, tmp_path, dedup=True, valid_size=10)
    assert len(data.valid) == 10
    assert not set(pairs(data, data.valid)) & set(pairs(data, data.train))
    assert report.values["validation"]["also_in_train"] == 0
    report, data = made_of(source * 3, target * 3, tmp_path, valid_size=10)
    assert report.values["validation"]["also_in_train"] == sum(
        pair in set(pairs(data, data.valid)) for pair in pairs(data, data.train)
    )


def test_invalid_bytes_stop_it_or_drop_the_pair(tmp_path: Path) -> None:
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_bytes(b"eins\nzw\xe9i\ndrei\nvier\n")
    target.write_bytes(b"one\ntwo\nthree\nf\xffour\n")
    options = Options(str(source), str(target), str(tmp_path / "data"), valid_size=0)
    with pytest.raises(NmtError, match=r"s, line 2: byte 0xe9"):
        run(options)
    assert not (tmp_path / "data").exists()
    report, _ = run(replace(options, errors="replace"))
    data = Dataset.open(tmp_path / "data")
    assert pairs(data, data.train) == [("eins", "one"), ("drei", "three")]
    assert report.values["dropped"]["invalid_utf8"] == {"count": 2, "first_lines": [2, 4]}
    again = replace(options, output=str(tmp_path / "again"), errors="replace", valid_size=None)
    report, recorder = run(replace(again, valid_source=str(source), valid_target=str(target)))
    assert report.values["validation"]["invalid_utf8_replaced"] == 2
    assert any("replaced in 2 pairs" in warning for warning in recorder.warned)


def test_given_validation_text_is_kept_whole(files: Options, tmp_path: Path) -> None:
    source, target = ["one", "", "two " * 300, "three\r", "\ufefffour", "five"], ["eins", "zwei", "zwei", "drei", "vier", "  "]
    valid = {
        "valid_source": write(tmp_path / "v.en", source),
        "valid_target": write(tmp_path / "v.de", target),
    }
    report, recorder = run(replace(files, **valid, max_length=50))
    data = Dataset.open(Path(files.output))
    source[3] = "three"  # its carriage return stood before the line feed
    assert list(read_lines(data.valid_source)) == source
    assert list(read_lines(data.valid_target)) == target
    assert len(data.train) == 300
    assert [pair[0] for pair in pairs(data, data.valid)] == ["one", "three", "four"]
    assert report.values["pairs"] == {"read": 300, "train": 300, "valid": 6}
    assert report.values["validation"]["left_out"]["too_long"] == {"count": 1, "first_lines": [3]}
    assert any("3 of 6 validation pairs are empty or longer than 50 subwords" in warning for warning in recorder.warned)


def test_training_pairs_that_stand_in_the_validation_set_are_counted(files: Options) -> None:
    _, recorder = run(replace(files, valid_source=files.source, valid_target=files.target))
    assert any(warning.startswith("300 training pairs also stand in the validation set") for warning in recorder.warned)


def test_validation_is_chosen_among_pairs_that_pass(tmp_path: Path) -> None:
    source, target = corpus(60)
    for i in range(0, 60, 2):
        source[i] += " one" * 60
    report, data = made_of(source, target, tmp_path, valid_size=20, max_length=40)
    assert (len(data.valid), len(data.train)) == (20, 10)
    assert report.values["dropped"]["too_long"] == {"count": 30, "first_lines": [1, 3, 5, 7, 9]}
    assert len(list(read_lines(data.valid_source))) == 20


def test_the_validation_set_has_no_part_in_the_vocabulary(tmp_path: Path) -> None:
    source, target = corpus(50)
    marked = [f"{line} {chr(0x4E00 + i)}" for i, line in enumerate(source)]
    _, data = made_of(marked, target, tmp_path, valid_size=5)
    assert all(UNK in data.source.encode(line) for line in read_lines(data.valid_source))
    assert not any(UNK in data.train.src[i] for i in range(len(data.train)))


def test_nothing_left_says_why(tmp_path: Path) -> None:
    with pytest.raises(NmtError, match="hold no lines"):
        made_of([], [], tmp_path)
    with pytest.raises(NmtError, match=r"no pairs left of 2; dropped: empty 2 \(first in line 1\)"):
        made_of(["", "a"], ["b", " "], tmp_path)
    with pytest.raises(NmtError, match=r"2 of 2 pairs .*give --valid-size 0"):
        made_of(["a", "b"], ["b", "c"], tmp_path, valid_size=2)
    with pytest.raises(NmtError, match=r"1 of 1 pairs .*give --valid-size 0"):
        made_of(["a"], ["b"], tmp_path, valid_size=None)
    assert not (tmp_path / "data").exists()


def test_a_shared_vocabulary_is_one_of_both_sides(files: Options) -> None:
    run(files)
    data = Dataset.open(Path(files.output))
    assert data.shared
    assert data.source.fingerprint == data.target.fingerprint
    assert UNK not in data.source.encode("fünf five")
    run(replace(files, shared_vocab=False, overwrite=True))
    data = Dataset.open(Path(files.output))
    assert not data.shared
    assert UNK in data.source.encode("fünf")
    assert UNK not in data.target.encode("fünf")
    assert pairs(data, data.valid) == list(zip(read_lines(data.valid_source), read_lines(data.valid_target), strict=True))


def test_vocabularies_that_do_not_fit_the_text(files: Options) -> None:
    report, recorder = run(replace(files, vocab_size=8000))
    size = report.values["vocabulary"]["source"]
    assert recorder.warned == [f"vocabulary: {size:,} subwords are the most that the text supports, not 8,000"]
    with pytest.raises(NmtError, match=r"vocabulary of 10 is too small.*--vocab-size \d+ or more.*--character-coverage"):
        run(replace(files, vocab_size=10, overwrite=True))
    assert (Path(files.output) / "config.json").exists()  # the first one's


def test_a_borrowed_vocabulary(files: Options, tmp_path: Path) -> None:
    run(replace(files, shared_vocab=False, lowercase=True))
    source, target = corpus(50, seed=1)
    report, data = made_of(source, target, tmp_path, vocab_from=files.output, valid_size=5)
    for side in ("source", "target"):
        assert (Path(files.output) / f"{side}.model").read_bytes() == (data.path / f"{side}.model").read_bytes()
    assert not data.shared
    assert data.source.encode("ONE") == data.source.encode("one")
    assert report.values["vocabulary"]["borrowed"]
    _, recorder = run(replace(files, vocab_from=files.output, lowercase=True, output=str(tmp_path / "third")))
    assert recorder.warned == [f"the subword models come from {files.output} as they are: --vocab-size, --lowercase not used"]
    with pytest.raises(NmtError, match=r"config\.json: no such file"):
        run(replace(files, vocab_from=str(tmp_path), output=str(tmp_path / "fourth")))


def test_the_trainer_sees_a_sample_of_exact_size(files: Options) -> None:
    report, recorder = run(replace(files, vocab_sample=50))
    assert recorder.done["training vocabulary"] == 50
    assert report.values["vocabulary"]["trained_on_pairs"] == 50
    assert "subwords are trained on 50 of 297 pairs (seed 1; --vocab-sample)" in recorder.said


def test_the_report_counts_what_a_slow_count_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nmt.data.corpus, "CHUNK", 7)
    source, target = corpus(100)
    source[3] += " ☃☃"
    source[60] += " ☃ Ж"
    report, data = made_of(source, target, tmp_path, character_coverage=0.998)
    side = report.values["source"]
    ids = [data.source.encode(line) for line in source]
    lengths = sorted(map(len, ids))
    assert side["subwords"] == sum(lengths)
    assert side["words"] == sum(len(line.split()) for line in source)
    assert side["subwords_per_word"] == pytest.approx(sum(lengths) / side["words"], abs=1e-4)
    assert (side["length"]["shortest"], side["length"]["longest"]) == (lengths[0], lengths[-1])
    assert (side["length"]["median"], side["length"]["90%"]) == (lengths[49], lengths[89])
    assert side["unknown_subwords"] == sum(line.count(UNK) for line in ids)
    assert side["characters_not_covered"] == {"count": 4, "most_frequent": [["☃", 3], ["Ж", 1]]}
    same = sum(data.source.decode(line_ids) == line for line_ids, line in zip(ids, source, strict=True))
    assert side["round_trip"] == {"lines": 100, "same": same} == {"lines": 100, "same": 98}
    cells = [cell for table in report.tables() for row in table.rows for cell in row]
    assert "4 (☃ Ж)" in cells
    assert all(len(row) == len(table.columns) for table in report.tables() for row in table.rows)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
def test_every_tokenizer(files: Options, kind: str) -> None:
    run(replace(files, tokenizer=kind))
    data = Dataset.open(Path(files.output))
    assert sorted(pairs(data, data.train) + pairs(data, data.valid)) == sorted(
        zip(read_lines(files.source), read_lines(files.target), strict=True)
    )


def test_pipes_work_as_files_do(files: Options, tmp_path: Path) -> None:
    run(files)
    fifos = []
    threads = []
    for name, path in (("en", files.source), ("de", files.target)):
        fifo = tmp_path / f"fifo.{name}"
        os.mkfifo(fifo)
        fifos.append(str(fifo))
        threads.append(threading.Thread(target=fifo.write_bytes, args=[Path(path).read_bytes()], daemon=True))
        threads[-1].start()
    run(replace(files, source=fifos[0], target=fifos[1], output=str(tmp_path / "piped")))
    for thread in threads:
        thread.join()
    assert content(tmp_path / "piped") == content(files.output)


def test_one_writer_may_feed_both_pipes(tmp_path: Path) -> None:
    """It first writes all of the one, then all of the other, more than a pipe holds, whichever is waited for."""
    source, target = corpus(5000)
    fifos = [tmp_path / "s", tmp_path / "t"]
    for fifo in fifos:
        os.mkfifo(fifo)

    def feed() -> None:
        with open(fifos[0], "wb") as first, open(fifos[1], "wb") as second:
            second.write("".join(f"{line}\n" for line in target).encode())
            first.write("".join(f"{line}\n" for line in source).encode())

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    report, _ = run(Options(str(fifos[0]), str(fifos[1]), str(tmp_path / "out"), vocab_size=60))
    thread.join()
    assert report.values["pairs"]["read"] == 5000


def test_standard_input_as_one_side(files: Options, tmp_path: Path) -> None:
    run(files)
    program = (
        "import sys; sys.path.insert(0, 'tests'); from test_preprocess import Recorder; from nmt.preprocess import *;"
        f"preprocess(Options('-', {files.target!r}, {str(tmp_path / 'piped')!r}, vocab_size=100), Recorder())"
    )
    root = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", program], input=Path(files.source).read_bytes(), check=True, cwd=root)
    assert content(tmp_path / "piped") == content(files.output)


def test_bad_bytes_in_a_pipe_are_named_by_the_pipe(files: Options, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    thread = threading.Thread(target=fifo.write_bytes, args=[b"a\n\xff\n"], daemon=True)
    thread.start()
    with pytest.raises(NmtError, match=r"/fifo, line 2"):
        run(replace(files, source=str(fifo)))
    thread.join()


def test_nothing_that_exists_is_overwritten_unasked(files: Options) -> None:
    run(files)
    before = content(files.output)
    with pytest.raises(NmtError, match="--overwrite"):
        run(replace(files, seed=2))
    assert content(files.output) == before
    run(replace(files, seed=2, overwrite=True))
    assert content(files.output) != before


@pytest.mark.parametrize(
    "options",
    [
        {"valid_source": "x"},
        {"valid_source": "x", "valid_target": "y", "valid_size": 3},
        {"valid_size": -1},
        {"vocab_size": 0},
        {"max_length": 0},
        {"max_ratio": 0.5},
        {"max_ratio": float("nan")},
        {"workers": 0},
        {"character_coverage": 0.0},
        {"character_coverage": 1.1},
        {"vocab_size": 3_000_000_000},
        {"vocab_size": 10**30},
        {"workers": 100_000},
    ],
)
def test_impossible_options_are_usage_errors(options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="--"):
        Options("s", "t", "o", **options)


def test_missing_and_repeated_inputs_are_refused_first(files: Options, tmp_path: Path) -> None:
    with pytest.raises(NmtError, match="none: no such file"):
        run(replace(files, valid_source=str(tmp_path / "none"), valid_target=files.target))
    with pytest.raises(UsageError, match="same stream"):
        run(replace(files, source="-", target="-"))
    assert sorted(os.listdir(tmp_path)) == ["a.de", "a.en"]


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    """Ten times the pairs, less than twice the peak; the larger text alone would be more than that."""
    program = (
        "import sys; from tests.memory import peak; from tests.test_preprocess import Recorder; from nmt.preprocess import *;"
        "how = dict(vocab_size=200, tokenizer='word', vocab_sample=1000, valid_size=10, workers=1);"
        "preprocess(Options(*sys.argv[1:], **how), Recorder()); print(peak())"
    )
    peak()  # skips where there is no telling
    generator = random.Random(1)
    stock = ["".join(generator.choices("abcdefgh", k=30)) for _ in range(80)]
    peaks, sizes = [], []
    for count in (4_096, 40_960):
        place = tmp_path / str(count)
        place.mkdir()
        paths = [write(place / side, [" ".join(generator.choices(stock, k=40)) for _ in range(count)]) for side in ("s", "t")]
        peaks.append(int(output_of(program, *paths, place / "out")))
        sizes.append(sum(os.path.getsize(path) for path in paths))
    assert sizes[1] > peaks[0], "this test could not fail"
    assert peaks[1] < 2 * peaks[0]


def test_what_preprocess_did_not_write_is_never_deleted(files: Options) -> None:
    run(files)
    for name in ("notes.txt", "train.source.txt", ".hidden", "run/model.safetensors"):
        path = Path(files.output, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        with pytest.raises(NmtError, match=rf"{name.split('/')[0]}: does not belong to the data in .*; move it"):
            run(replace(files, overwrite=True))
        assert path.read_text() == "mine"
        path.unlink()
    Path(files.output, "run").rmdir()
    run(replace(files, overwrite=True))


def test_a_validation_set_without_a_usable_pair_is_said(files: Options, tmp_path: Path) -> None:
    valid = {"valid_source": write(tmp_path / "v.en", ["", " "]), "valid_target": write(tmp_path / "v.de", ["", "eins"])}
    _, recorder = run(replace(files, **valid))
    assert [warning for warning in recorder.warned if "validat" in warning] == [
        "none of the 2 validation pairs has 1 to 250 subwords on both sides: nothing will be validated in training"
    ]


def test_the_configuration_has_the_checksum_of_each_file(files: Options) -> None:
    run(files)
    config = json.loads(Path(files.output, "config.json").read_text())
    known = {**config["sha256"], **{f"{side}.model": config["vocabulary"][f"{side}_sha256"] for side in ("source", "target")}}
    names = sorted(path.name for path in Path(files.output).iterdir() if path.name != "config.json")
    assert names == sorted(known)
    assert all(hashlib.sha256(Path(files.output, name).read_bytes()).hexdigest() == known[name] for name in names)


def test_an_output_that_holds_an_input_is_refused(files: Options) -> None:
    run(files)
    inside = write(Path(files.output) / "raw.en", ["one"] * 300)
    with pytest.raises(NmtError, match="which is to be read"):
        run(replace(files, source=inside, overwrite=True))
    assert os.path.exists(inside)


def test_a_validation_set_that_cannot_be_filled_is_said(files: Options, tmp_path: Path) -> None:
    """Of 300 pairs 20 are short enough, and 100 are drawn for a set of 50."""
    lines = [f"{number:03}" if number % 15 == 0 else f"{number:03}" * 9 for number in range(300)]
    source, target = write(tmp_path / "b.en", lines), write(tmp_path / "b.de", lines)
    report, recorder = run(replace(files, source=source, target=target, tokenizer="char", max_length=10, valid_size=50))
    aside = report.values["pairs"]["valid"]
    assert 0 < aside < 20
    assert any(f"{aside} pairs are set aside for validation, not 50" in message for message in recorder.warned)


def test_a_limit_costs_nothing_however_high(files: Options) -> None:
    assert run(files)[0].values["source"] == run(replace(files, max_length=10**15, overwrite=True))[0].values["source"]


def test_no_room_for_the_copy_of_a_pipe_is_not_said_of_the_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.data.corpus.rereadable", lambda path: False)
    path = write(tmp_path / "a", ["x" * 1000] * 1000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(NmtError, match=r"copy\.(source|target): cannot be written"):
            Corpus(path, path, "strict", tmp_path / "copy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("key", ["format", "vocabulary", "splits", "languages"])
def test_an_edited_configuration_is_named(files: Options, key: str) -> None:
    run(files)
    path = Path(files.output, "config.json")
    config = json.loads(path.read_text())
    for changed in ({name: value for name, value in config.items() if name != key}, {**config, key: None}):
        path.write_text(json.dumps(changed))
        with pytest.raises(NmtError, match=r"config\.json: is damaged or was edited"):
            Dataset.open(path.parent)
