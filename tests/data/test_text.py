"""Lines, against byte-level definitions of what a line is."""

import gzip
import io
import lzma
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.text import _patient, check_inputs, check_output, open_text, read_lines
from nmt.errors import NmtError, UsageError

SEPARATORS = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei\x00j\rk"
lines_of_text = st.lists(
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]) | st.sampled_from("\r\ufeff\0\u2028"))
)


def expected(data: bytes) -> list[str]:
    """The definition, said the slow way: byte by byte."""
    lines, line = [], bytearray()
    data = data.removeprefix(b"\xef\xbb\xbf")
    for i, byte in enumerate(data):
        if byte == 10:
            lines.append(bytes(line).decode("utf-8", "replace"))
            line.clear()
        elif not (byte == 13 and data[i + 1 : i + 2] == b"\n"):
            line.append(byte)
    return lines + [bytes(line).decode("utf-8", "replace")] * bool(line)


@given(lines_of_text, st.sampled_from(["", ".gz", ".xz"]))
def test_what_is_written_is_read_back_exactly(lines: list[str], suffix: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, f"text{suffix}")
        with open_text(path) as writer:
            for line in lines:
                writer.write(line)
        assert list(read_lines(path)) == lines
        assert os.listdir(directory) == [path.name]


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", "ü\u2028\x85".encode(), b"\xff", b"\xc3"])).map(
        b"".join
    )
)
def test_only_a_line_feed_ends_a_line_whatever_the_bytes(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "text")
        path.write_bytes(data)
        replaced: list[int] = []
        lines = list(read_lines(path, "replace", replaced.append))
    assert lines == expected(data)
    assert replaced == [i for i, line in enumerate(data.split(b"\n"), 1) if line != line.decode("utf-8", "ignore").encode()]


def test_separators_of_other_kinds_do_not_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(f"{SEPARATORS}\nx\n".encode())
    assert list(read_lines(path)) == [SEPARATORS, "x"]


def test_blocks_of_a_large_file_join_without_loss(tmp_path: Path) -> None:
    lines = [f"{i} {'ä€😀' * (i % 50)}" for i in range(30_000)]
    lines[7] = "x" * 1_000_000
    lines[9] = ""
    path = tmp_path / "text"
    path.write_bytes("\r\n".join(lines).encode())
    assert list(read_lines(path)) == lines


def test_bad_bytes_are_named_by_line_after_all_lines_before_it(tmp_path: Path) -> None:
    path = tmp_path / "latin1"
    path.write_bytes(b"gut\nauch gut\ncaf\xe9\nnie gelesen\n")
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["gut", "auch gut"]
    with pytest.raises(NmtError, match=r"latin1, line 3: byte 0xe9 at position 4 .*--errors replace"):
        next(lines)


@pytest.mark.parametrize("kind", ["missing", "directory", "truncated.gz", "not.gz", "truncated.xz", "trailing.gz"])
def test_what_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    content = os.urandom(10_000).hex().encode()
    match kind:
        case "directory":
            path.mkdir()
        case "truncated.gz":
            path.write_bytes(gzip.compress(content)[:-200])
        case "not.gz":
            path.write_bytes(b"plain text\n")
        case "truncated.xz":
            path.write_bytes(lzma.compress(content)[:-200])
        case "trailing.gz":
            path.write_bytes(gzip.compress(content) + b"rubbish that is no archive")
    with pytest.raises(NmtError, match=kind):
        list(read_lines(path))


def test_joined_archives_are_one_text(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"a\nb") + gzip.compress(b"c\nd\n"))
    assert list(read_lines(path)) == ["a", "bc", "d"]


def test_compressed_output_has_no_time_and_no_name_in_it(tmp_path: Path) -> None:
    for name in ("one.gz", "two.gz"):
        with open_text(tmp_path / name) as writer:
            writer.write("line")
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()


def test_a_pipe_gives_each_line_when_it_arrives(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    go_on = threading.Event()

    def feed() -> None:
        with open(fifo, "wb", buffering=0) as pipe:
            pipe.write(b"first\nsec")
            assert go_on.wait(20)
            pipe.write(b"ond\n")

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    lines = read_lines(fifo)
    assert next(lines) == "first"  # hangs here, were it to wait for a full block
    go_on.set()
    assert list(lines) == ["second"]
    feeder.join()


@pytest.mark.parametrize("read", ["for line in read_lines('-')", "for line in read_lines('/dev/stdin')"])
def test_a_stream_that_does_not_block_is_waited_for(read: str) -> None:
    program = f"from nmt.data.text import read_lines\n{read}: print(line, flush=True)"
    source, feed = os.pipe()
    os.set_blocking(source, False)
    with subprocess.Popen([sys.executable, "-c", program], stdin=source, stdout=subprocess.PIPE) as process:
        os.close(source)
        assert process.stdout is not None
        with os.fdopen(feed, "wb", buffering=0) as pipe:
            for line in (b"one\n", b"two\n"):
                time.sleep(0.5)  # it finds nothing yet, and must not take that for the end
                pipe.write(line)
                assert process.stdout.readline() == line
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_reading_goes_on_where_a_read_finds_nothing() -> None:
    source, feed = os.pipe()
    os.set_blocking(source, False)
    with os.fdopen(source, "rb", buffering=0) as raw:
        read = _patient(raw)
        threading.Timer(0.2, os.write, (feed, b"late")).start()
        assert read(10) == b"late"
        threading.Timer(0.2, os.close, (feed,)).start()
        assert read(10) == b""


def test_standard_input_is_utf8_in_any_locale_and_given_line_by_line() -> None:
    program = """
from nmt.data.text import read_lines, open_text
with open_text("-") as output:
    for line in read_lines("-"):
        output.write(line)
        output.flush()
"""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, env=environment) as process:
        assert process.stdin and process.stdout
        for line in ("\ufeffgrün\r\n".encode(), f"{SEPARATORS}\n".encode()):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == line.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
        process.stdin.write(b"no line feed")
        process.stdin.close()
        assert process.stdout.read() == b"no line feed\n"


def test_standard_input_without_a_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb")))
    check_inputs("-")
    assert list(read_lines("-")) == ["a", "b"]


def test_one_stream_cannot_be_two_inputs(tmp_path: Path) -> None:
    fifo, file = tmp_path / "fifo", tmp_path / "file"
    os.mkfifo(fifo)
    file.write_bytes(b"a\n")
    check_inputs(file, file)
    for pair in (("-", "-"), (fifo, fifo)):
        with pytest.raises(UsageError, match="the same stream"):
            check_inputs(*pair)
    for path, message in ((tmp_path, "is a directory"), (tmp_path / "none", "no such file")):
        with pytest.raises(NmtError, match=message):
            check_inputs(file, path)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"a\n")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user reads everything")
    with pytest.raises(NmtError, match="secret: cannot be read"):
        check_inputs(path)
    with pytest.raises(NmtError, match="secret: cannot be read"):
        list(read_lines(path))


def test_a_name_of_odd_bytes(tmp_path: Path) -> None:
    path = os.path.join(tmp_path, os.fsdecode(b"caf\xe9"))
    with open_text(path) as writer:
        writer.write("ü")
    assert list(read_lines(path)) == ["ü"]


def test_a_failed_output_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old\n")
    with pytest.raises(RuntimeError, match="half way"), open_text(path) as writer:
        writer.write("new")
        raise RuntimeError("half way")
    assert path.read_bytes() == b"old\n"
    assert os.listdir(tmp_path) == ["out"]
    with pytest.raises(NmtError, match="--overwrite"), open_text(path, overwrite=False):
        pass
    with pytest.raises(NmtError, match="--overwrite"):
        check_output(path, overwrite=False)
    for other in ("-", "/dev/null", tmp_path / "new"):
        check_output(other, overwrite=False)
    for other, message in ((tmp_path, "is a directory"), (tmp_path / "no" / "x", "no directory"), ("", "is empty")):
        with pytest.raises(NmtError, match=message):
            check_output(other)
    with pytest.raises(NmtError, match="is a directory"), open_text(tmp_path):
        pass
    with pytest.raises(ValueError, match="line feed"), open_text(path) as writer:
        writer.write("a\nb")


def test_no_room_left_is_said_with_the_place(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(NmtError, match="out: cannot be written"), open_text(tmp_path / "out") as writer:
            for _ in range(1000):
                writer.write("x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []


def test_a_reader_may_stop_early(tmp_path: Path) -> None:
    for name, opened in (("a", open), ("a.gz", gzip.open), ("a.xz", lzma.open)):
        with opened(tmp_path / name, "wb") as stream:
            stream.write(b"a\n" * 1_000_000)
        lines = read_lines(tmp_path / name)
        assert next(lines) == "a"
        lines.close()


def test_output_through_a_link_and_into_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    with open_text(tmp_path / "link") as writer:
        writer.write("a")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"a\n"
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[list[str]] = []
    reader = threading.Thread(target=lambda: got.append(list(read_lines(fifo))), daemon=True)
    reader.start()
    with open_text(fifo) as writer:
        writer.write("through")
    reader.join()
    assert got == [["through"]]
    read, write = os.pipe()  # what /dev/stdout and `>(gzip)` are: no path leads there, only the descriptor's own
    with open_text(f"/dev/fd/{write}") as writer:
        writer.write("through")
    os.close(write)
    with open(read, "rb") as stream:
        assert stream.read() == b"through\n"
