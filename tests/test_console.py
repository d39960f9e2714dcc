"""What a person sees on stderr, with a clock of our own."""

import re

import pytest

from nmt import console
from nmt.console import Console, duration, fail, layout, rate


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its only item is the time."""
    now = [0.0]
    monkeypatch.setattr(console, "seconds", lambda: now[0])
    return now


def test_elsewhere_than_in_a_terminal_progress_is_a_plain_line_now_and_then(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Console().progress("translating", "lines", total=800) as progress:
        for _ in range(200):
            clock[0] += 0.125
            progress.advance(2, "beam 5")
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert len(lines) == 2  # at 10 and at 20 of 25 seconds
    assert lines[0] == "translating: 160/800 lines, 16 lines/s, 0:40 left, beam 5"
    assert lines[1] == "translating: 320/800 lines, 16 lines/s, 0:30 left, beam 5"


def test_rate_and_time_left_do_not_count_what_was_done_before(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Console().progress("training", "steps", total=110, start=90) as progress:
        clock[0] += 10
        progress.advance(10)
    assert capsys.readouterr().err == "training: 100/110 steps, 1.0 steps/s, 0:10 left\n"


def test_work_of_unknown_length_has_no_time_left(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Console().progress("reading", "lines") as progress:
        clock[0] += 10
        progress.advance(5)
    assert capsys.readouterr().err == "reading: 5 lines, 0.5 lines/s\n"


@pytest.mark.parametrize(("total", "until", "told"), [(None, 70, "1:00"), (1000, 70, "1:00"), (10, 70, "0:10"), (10, 5, "0:00")])
def test_work_that_stops_at_a_time_is_over_by_then(
    clock: list[float], capsys: pytest.CaptureFixture[str], total: int | None, until: float, told: str
) -> None:
    with Console().progress("training", "updates", total, until=until) as progress:
        clock[0] += 10
        progress.advance(5)
    assert f", 0.5 updates/s, {told} left\n" in capsys.readouterr().err


def test_a_worker_may_tell_a_speed_of_its_own(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Console().progress("training", "updates", 20, speed=False) as progress:
        clock[0] += 10
        progress.advance(5, "loss 3.210, 900 tokens/s")
    assert capsys.readouterr().err == "training: 5/20 updates, 0:30 left, loss 3.210, 900 tokens/s\n"


def test_quiet_says_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    quiet = Console(quiet=True)
    quiet.say("hello")
    quiet.warn("careful")
    quiet.table("title", ["a"], [["1"]])
    with quiet.progress("reading", "lines") as progress:
        clock[0] += 100
        progress.advance()
    assert capsys.readouterr() == ("", "")


def test_messages_are_neither_wrapped_nor_read_as_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    told = "[bold]a path[/] /" + "very/" * 30 + "long"
    Console().say(told)
    Console().warn(told)
    assert capsys.readouterr().err == f"{told}\nnmt: warning: {told}\n"


def test_a_terminal_gets_a_bar_that_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with Console().progress("translating", "lines", total=4) as progress:
        progress.advance(2, "note")
    out, err = capsys.readouterr()
    assert out == ""
    assert "2/4 lines" in err and "note" in err
    assert err.endswith("\x1b[2K")  # the bar's line is erased


@pytest.mark.parametrize(("columns", "has_bar"), [("120", True), ("60", False)])
def test_a_narrow_terminal_has_all_figures_and_no_bar(
    columns: str, has_bar: bool, clock: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("TTY_COMPATIBLE", "1"), ("FORCE_COLOR", "1"), ("COLUMNS", columns)):
        monkeypatch.setenv(name, value)
    note = "epoch 0.25, loss 3.210, best bleu 21.05, 12,345 tokens/s"
    with Console().progress("training", "updates", total=4000, speed=False) as progress:
        clock[0] += 1
        progress.advance(2, note)
    err = capsys.readouterr().err
    shown = " ".join(re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", err).split())
    assert f"2/4,000 updates, 33:19 left, {note}" in shown
    assert ("━" in err) == has_bar


@pytest.mark.parametrize(("output", "draws"), [("-", False), ("file", True), (None, True)])
def test_no_bar_is_drawn_over_data(
    output: str | None, draws: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with Console(output=output).progress("translating", "lines", total=4) as progress:
        progress.advance()
    assert ("translating" in capsys.readouterr().err) == draws


def test_tables_align_and_never_cut() -> None:
    assert layout(["dropped", "pairs"], [["too long", "12"], ["empty", "1,003"]], "report") == [
        "report",
        "  dropped   pairs",
        "  too long     12",
        "  empty     1,003",
    ]


def test_a_failure_is_one_line_whatever_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    fail("a\nb\r\udcff: no such file")
    assert capsys.readouterr().err == "nmt: error: a\\nb\\r\\udcff: no such file\n"


@pytest.mark.parametrize(("length", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3600, "1:00:00"), (90061, "25:01:01")])
def test_duration(length: float, text: str) -> None:
    assert duration(length) == text


def test_rate() -> None:
    assert [rate(amount) for amount in (0.0412, 0.35, 9.94, 1234.5)] == ["0.041", "0.35", "9.9", "1,234"]
