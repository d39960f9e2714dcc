"""What `nmt info` says of a run whose log is not what training wrote."""

import json
from pathlib import Path

import pytest

from nmt.errors import NmtError
from nmt.info import describe
from tests.toys import config, dataset, reversed_digits, run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("info")
    run(dataset(place / "corpus", reversed_digits(60, seed=1), valid=5), place / "run", config("rnn", max_steps=2))
    return place / "run"


@pytest.mark.parametrize(
    "odd",
    [
        "{}",
        "[]",
        "3",
        "null",
        '"event"',
        "not JSON",
        "",
        '{"event": "train"}',
        '{"event": "valid", "best": true}',
        "[" * 100_000,
        "\udcff",
    ],
)
def test_an_odd_line_of_the_log_is_named(odd: str, trained: Path) -> None:
    log = trained / "log.jsonl"
    before = log.read_bytes()
    first, *rest = before.splitlines(keepends=True)
    log.write_bytes(first + odd.encode("utf-8", "surrogateescape") + b"\n" + b"".join(rest))
    try:
        with pytest.raises(NmtError, match=r"log\.jsonl, line 2: is damaged"):
            describe(trained)
    finally:
        log.write_bytes(before)


def test_a_line_that_a_kill_cut_short_is_passed_over(trained: Path) -> None:
    log = trained / "log.jsonl"
    before, found = log.read_bytes(), describe(trained)
    assert found["last"]["step"] == 2 and found["best"]["step"] == 2
    try:
        log.write_bytes(before + json.dumps({"event": "train", "step": 3}).encode()[:-5])
        assert describe(trained) == found
    finally:
        log.write_bytes(before)
