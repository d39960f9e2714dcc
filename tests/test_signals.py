"""Wishes to stop."""

import signal

import pytest

from nmt.signals import ONE_WISH, deferred


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which tests set."""
    now = [100.0]
    monkeypatch.setattr("nmt.signals.seconds", lambda: now[0])
    return now


def test_signals_at_the_same_time_are_one_wish_and_a_later_one_acts_at_once(clock: list[float]) -> None:
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt), deferred(told.append) as caught:
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        clock[0] += ONE_WISH / 2
        signal.raise_signal(signal.SIGTERM)
        assert caught == [signal.SIGINT]
        assert len(told) == 1
        clock[0] += ONE_WISH
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_so(clock: list[float]) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred(lambda _: None) as caught:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            assert caught == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
