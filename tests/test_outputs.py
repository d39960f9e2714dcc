"""Translations into outputs, with a translator that is a function of the line."""

import errno
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from nmt.data.files import new_directory
from nmt.data.text import open_text
from nmt.errors import NmtError, UsageError
from nmt.outputs import Job, Layout, Traffic, kept, plan, unfinished
from nmt.results import TextHypothesis, Translation


def translation(text: str, n_best: int = 1) -> Translation:
    hypotheses = tuple(TextHypothesis(f"{text}{i or ''}", -1.5 - i, -3.0, (text,), (-2.0, -1.0), True) for i in range(n_best))
    return Translation(hypotheses, ("▁a", "</s>"), False, False, np.array([[0.9, 0.1], [0.2, 0.8]], np.float32))


def shout(lines: Iterable[str], lookahead: int = 3, n_best: int = 1) -> Iterator[Translation]:
    """Upper case, reading ahead as a translator does."""
    held: list[str] = []
    for line in lines:
        held.append(line)
        if len(held) > lookahead:
            yield translation(held.pop(0).upper(), n_best)
    for line in held:
        yield translation(line.upper(), n_best)


def run(jobs: list[Job], layout: Layout | None = None, n_best: int = 1) -> int:
    traffic = Traffic(jobs, "strict")
    return sum(1 for _ in traffic.write(shout(traffic.lines(), n_best=n_best), layout or Layout()))


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    """Files of 0, 1, 5, 0 and 4 lines."""
    paths = []
    for number, count in enumerate((0, 1, 5, 0, 4)):
        path = tmp_path / f"in-{number}"
        path.write_text("".join(f"{number} {'abcde'[i]}\n" for i in range(count)))
        paths.append(str(path))
    return paths


def test_all_inputs_go_to_one_file_in_order(inputs: list[str], tmp_path: Path) -> None:
    output = tmp_path / "out"
    jobs = plan(inputs, str(output))
    assert Traffic(jobs, "strict").total() == 10
    assert run(jobs) == 10
    assert output.read_text() == "".join(Path(path).read_text() for path in inputs).upper()
    assert [path.name for path in tmp_path.glob("out*")] == ["out"]


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_directory_gets_one_file_for_each_input(inputs: list[str], tmp_path: Path, slash: str) -> None:
    output = tmp_path / "folder"
    if not slash:
        output.mkdir()
    assert run(plan(inputs, f"{output}{slash}")) == 10
    assert sorted(path.name for path in output.iterdir()) == [f"in-{number}" for number in range(5)]
    for path in inputs:
        assert (output / Path(path).name).read_text() == Path(path).read_text().upper()


def test_plans_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="standard input has no name"):
        plan(["-"], f"{tmp_path}")
    with pytest.raises(UsageError, match="two inputs are named a"):
        plan(["x/a", "y/a"], f"{tmp_path}")
    with pytest.raises(NmtError, match="name of the output is empty"):
        plan(["a"], "")
    with pytest.raises(NmtError, match="missing/out: cannot be written") as refused:
        plan(["a"], f"{tmp_path}/missing/out")
    assert not isinstance(refused.value, UsageError)
    (tmp_path / "a").write_text("precious\n")
    for folder in (f"{tmp_path}", f"{tmp_path}/"):
        with pytest.raises(UsageError, match="a would be replaced by its own translation"):
            plan(["/dev/null", f"{tmp_path}/a"], folder)


def test_places_that_may_not_be_written_are_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories, that is: a device or a pipe asks nothing of the directory it stands in."""
    monkeypatch.setattr(os, "access", lambda path, mode: not os.path.isdir(path))  # root may write anywhere
    for output in (f"{tmp_path}/out", f"{tmp_path}", f"{tmp_path}/folder/"):
        with pytest.raises(NmtError, match=r"cannot be written \(permission denied\)"):
            plan(["a"], output)
    os.mkfifo(tmp_path / "pipe")
    for output in ("/dev/null", f"{tmp_path}/pipe"):
        assert plan(["a"], output) == [Job(("a",), output)]


def test_an_output_may_be_its_input(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("a\nb\n")
    run(plan([str(path)], str(path)))
    assert path.read_text() == "A\nB\n"


@pytest.mark.parametrize("stop", range(10))
def test_a_stopped_job_goes_on_where_it_stopped(inputs: list[str], tmp_path: Path, stop: int) -> None:
    """Whatever line it stops at, in whatever file; what was half written is written again."""
    whole = tmp_path / "whole"
    whole.mkdir()
    run(plan(inputs, str(whole)))
    output = tmp_path / "output"
    output.mkdir()
    jobs = plan(inputs, str(output))
    traffic = Traffic(jobs, "strict")
    writing = traffic.write(shout(traffic.lines()), Layout())
    for _ in range(stop):
        next(writing)
    writing.close()
    for partial in output.glob("*.nmt-partial"):
        with partial.open("ab") as stream:
            stream.write(b"half a li")
    left = unfinished(jobs, 1)
    assert run(left) == 10 - stop
    assert {path.name: path.read_bytes() for path in output.iterdir()} == {path.name: path.read_bytes() for path in whole.iterdir()}
    assert unfinished(jobs, 1) == []


def test_going_on_counts_hypotheses_of_a_line_together(tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("a\nb\nc\n")
    jobs = plan([str(source)], str(output))
    run(jobs, Layout(jsonl=True), n_best=3)
    whole = output.read_text()
    output.unlink()
    rows = whole.splitlines(keepends=True)
    (tmp_path / "out.nmt-partial").write_text("".join(rows[:5]))  # the second line has two of its three
    left = unfinished(jobs, 3, jsonl=True)
    assert [job.done for job in left] == [1]
    run(left, Layout(jsonl=True), n_best=3)
    assert output.read_text() == whole
    assert [(each["line"], each["rank"]) for each in map(json.loads, rows)] == [(i, j) for i in range(3) for j in range(3)]


@pytest.mark.parametrize("rows", [1, 2, 4, 5])
def test_going_on_with_another_number_of_hypotheses_is_refused(tmp_path: Path, rows: int) -> None:
    partial = tmp_path / "out.nmt-partial"
    partial.write_text("".join(json.dumps({"line": i // 3, "rank": i % 3}) + "\n" for i in range(5)))
    before = partial.read_text()
    with pytest.raises(UsageError, match=r"out\.nmt-partial: was begun with another --n-best or --format"):
        unfinished([Job(("a",), f"{tmp_path}/out")], rows, jsonl=True)
    assert partial.read_text() == before
    partial.write_text("a text\n" * rows)
    with pytest.raises(UsageError, match="another --n-best or --format"):
        unfinished([Job(("a",), f"{tmp_path}/out")], rows, jsonl=True)


def test_going_on_with_more_lines_than_there_are_is_refused(inputs: list[str], tmp_path: Path) -> None:
    partial = tmp_path / "out.nmt-partial"
    partial.write_text("x\n" * 11)
    jobs = unfinished(plan(inputs, f"{tmp_path}/out"), 1)
    with pytest.raises(NmtError, match=r"out\.nmt-partial: has 1 line more than"):
        run(jobs)
    assert partial.read_text() == "x\n" * 11 and not (tmp_path / "out").exists()


def test_no_file_of_others_is_taken_for_an_unfinished_output(tmp_path: Path) -> None:
    source, output = tmp_path / "out.partial", tmp_path / "out"
    source.write_text("a\nb\n")
    run(plan([str(source)], str(output)))
    assert (source.read_text(), output.read_text()) == ("a\nb\n", "A\nB\n")
    taken = tmp_path / "out.nmt-partial"
    taken.write_text("c\n")
    (tmp_path / "link").symlink_to(taken)
    for inputs, prefix in (([taken], None), ([tmp_path / "link"], None), ([source], taken)):
        with pytest.raises(UsageError, match="unfinished output would be written"):
            plan([str(path) for path in inputs], str(output), str(prefix) if prefix else None)
    (tmp_path / "folder").mkdir()
    inner = tmp_path / "folder" / "link.nmt-partial"
    inner.symlink_to(source)
    with pytest.raises(UsageError, match="unfinished output would be written"):
        plan([str(source), str(tmp_path / "link")], str(tmp_path / "folder"))
    assert taken.read_text() == "c\n"


def test_what_cannot_be_gone_on_with_is_refused(tmp_path: Path) -> None:
    for output in ("-", f"{tmp_path}/out.gz"):
        with pytest.raises(UsageError, match="--continue"):
            unfinished([Job(("a",), output)], 1)


def test_a_failure_before_the_first_line_leaves_nothing_and_later_ones_keep_lines(tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"\xff\n")
    with pytest.raises(NmtError, match="line 1"):
        run(plan([str(source)], str(output)))
    assert not list(tmp_path.glob("out*"))
    source.write_bytes(b"a\nb\nc\nd\ne\n\xff\n")
    with pytest.raises(NmtError, match="line 6"):
        run(plan([str(source)], str(output)))
    assert [path.name for path in tmp_path.glob("out*")] == ["out.nmt-partial"]


def test_a_full_disk_names_the_output_and_says_how_to_go_on(tmp_path: Path) -> None:
    def full() -> Iterator[Translation]:
        yield translation("a")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # the system names no file

    jobs = plan(["a"], f"{tmp_path}/out")
    with pytest.raises(NmtError, match=r"out: cannot be written \(no space left on device\); .* --continue"):
        list(Traffic(jobs, "strict").write(full(), Layout()))
    assert kept(jobs)


def test_a_full_disk_names_the_directory_that_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    wanted = rf"^{re.escape(str(tmp_path / 'data'))}: cannot be written \(no space left on device\)$"
    with (
        pytest.raises(NmtError, match=wanted),
        new_directory(tmp_path / "data", False) as place,
        open_text(place / "text") as writer,
    ):
        writer.write("a")
    assert not list(tmp_path.iterdir())


def test_a_line_is_named_by_its_file(inputs: list[str]) -> None:
    traffic = Traffic([Job(tuple(inputs), "-", done=3), Job((inputs[4], inputs[4]), "-")], "strict")
    given = list(traffic.lines())
    assert len(given) == 7 + 8
    assert [traffic.place(number) for number in (1, 3, 4, 7, 8, 12)] == [
        f"{inputs[2]}, line 3",
        f"{inputs[2]}, line 5",
        f"{inputs[4]}, line 1",
        f"{inputs[4]}, line 4",
        f"{inputs[4]}, line 1",
        f"{inputs[4]}, line 1",
    ]


def test_a_file_at_standard_input_is_no_pipe(inputs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with open(inputs[2]) as stream:
        monkeypatch.setattr("sys.stdin", stream)
        stream.buffer.raw.readline()  # another program's, before us
        traffic = Traffic(plan(["-", inputs[4]], "-"), "strict")
        assert (traffic.streaming, traffic.total()) == (False, 4 + 4)
        assert len(list(traffic.lines())) == 8
    with os.fdopen(os.pipe()[0]) as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert Traffic(plan(["-"], "-"), "strict").streaming


def test_text_has_one_line_with_a_column_for_each_thing() -> None:
    assert Layout().rows(translation("x"), 7) == ["x"]
    assert Layout(scores=True, alignments=True).rows(translation("▁x"), 7) == ["▁x\t-1.500000\t0-0"]


def test_json_has_one_object_a_hypothesis() -> None:
    first, second = map(json.loads, Layout(jsonl=True, alignments=True).rows(translation("▁ü", 2), 7))
    assert first == {
        "line": 7,
        "rank": 0,
        "text": "▁ü",
        "score": -1.5,
        "logprob": -3.0,
        "tokens": ["▁ü"],
        "finished": True,
        "alignment": [[0, 0]],
    }
    assert (second["rank"], second["text"], "alignment" in second) == (1, "▁ü1", False)
