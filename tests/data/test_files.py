"""Directories and JSON files: whole in their place or not there at all."""

import json
import os
import resource
from pathlib import Path

import pytest

from nmt.data.files import check_directory, new_directory, read_json, write_json
from nmt.errors import NmtError


def test_no_room_left_is_said_with_the_place(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(NmtError, match="data: cannot be written"), new_directory(tmp_path / "data", False) as partial:
            (partial / "file").write_bytes(b"x" * 1_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "directory"
    with pytest.raises(RuntimeError, match="half way"), new_directory(path, overwrite=False) as partial:
        (partial / "file").write_text("x")
        raise RuntimeError("half way")
    assert os.listdir(path.parent) == []
    with new_directory(path, overwrite=False) as partial:
        write_json(partial / "config.json", {"format": 1, "checksums": {}, "time": 1})
        assert not path.exists()
    assert os.listdir(path.parent) == ["directory"]
    assert path.stat().st_mode & 0o777 == 0o777 & ~_umask()
    with pytest.raises(NmtError, match="--overwrite"), new_directory(path, overwrite=False):
        pass
    with new_directory(path, overwrite=True) as partial:
        write_json(partial / "config.json", {"format": 1, "checksums": {}, "time": 2})
    assert read_json(path / "config.json")["time"] == 2
    assert os.listdir(path.parent) == ["directory"]


def test_a_directory_of_others_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(NmtError, match="not a directory that nmt wrote"), new_directory(tmp_path, overwrite=True):
        pass
    assert (tmp_path / "thesis.tex").exists()
    with pytest.raises(NmtError, match="is not a directory"), new_directory(tmp_path / "thesis.tex", overwrite=True):
        pass
    (tmp_path / "empty").mkdir()
    with new_directory(tmp_path / "empty", overwrite=False):
        pass
    write_json(tmp_path / "config.json", {"compilerOptions": {}})
    with pytest.raises(NmtError, match="not a directory that nmt wrote"), new_directory(tmp_path, overwrite=True):
        pass


def test_a_run_and_what_is_to_be_read_are_never_replaced(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"format": 1, "kind": "data"})
    check_directory(tmp_path, True, ["-", tmp_path.parent / "corpus"])
    for path in (tmp_path, tmp_path / "corpus"):
        with pytest.raises(NmtError, match="which is to be read"):
            check_directory(tmp_path, True, [path])
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(NmtError, match="does not delete its checkpoints"):
        check_directory(tmp_path, True)


def test_json_that_is_damaged_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{\n  "a": 1,\n  "b": \n}')
    with pytest.raises(NmtError, match=r"config\.json, line 4"):
        read_json(path)
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(NmtError, match="not UTF-8"):
        read_json(path)
    with pytest.raises(NmtError, match="no such file"):
        read_json(tmp_path / "none.json")
    write_json(path, {"a": [1, 2.5, None]})
    assert json.loads(path.read_text()) == {"a": [1, 2.5, None]}
    assert os.listdir(tmp_path) == ["config.json"]


def test_json_may_hold_a_name_of_odd_bytes(tmp_path: Path) -> None:
    path = os.fsdecode(b"odd-\xff")
    write_json(tmp_path / "names.json", {"path": path, "ü": 1})
    assert read_json(tmp_path / "names.json") == {"path": path, "ü": 1}
    assert '"ü": 1' in (tmp_path / "names.json").read_text("utf-8")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
