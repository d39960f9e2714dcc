"""The bugs that `make planted` plants have their places in the code as it is."""

import pytest

from tests.planted import BUGS, ROOT, Bug


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_planted_bug_has_one_place(bug: Bug) -> None:
    assert (ROOT / bug.file).read_text().count(bug.right) == 1
    assert bug.right != bug.wrong
