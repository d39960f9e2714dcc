"""Tables of several systems: every figure is there, in columns that a terminal shows straight."""

import random

import pytest
from rich.cells import cell_len

from nmt.console import layout
from nmt.score import Score, compare, score
from nmt.scoreboard import as_text, without_folder

generator = random.Random(3)
REFERENCE = [" ".join(generator.choices(["the", "a", "cat", "dog", "sat", "ran", "on", "mat"], k=8)) for _ in range(60)]
SYSTEMS = [
    [" ".join("x" if generator.random() < share else word for word in line.split()) for line in REFERENCE]
    for share in (0.5, 0.4, 0.05)
]


def made(name: str, value: float, interval: float, p_value: float | None, identical: bool = False, trials: str = "") -> Score:
    return Score(name, value, f"nrefs:1|bs:1000|seed:12345{trials}|version:2.6.0", "", value, interval, p_value, identical)


def test_several_systems_are_a_table() -> None:
    scores = [
        [made("BLEU", 22.668, 0.604, None), made("chrF2", 51.95, 0.46, None)],
        [made("BLEU", 9.5, 10.594, 0.00099), made("chrF2", 51.69, 0.44, 0.0599)],
        [made("BLEU", 22.668, 0.604, 1, identical=True), made("chrF2", 51.95, 0.46, 1, identical=True)],
    ]
    assert as_text(["wmt/C-3MA.gz", "wmt/online/A.gz", "wmt/same"], scores) == [
        "              BLEU    95 %       p  chrF2   95 %       p",
        "C-3MA.gz     22.67 ±  0.60          51.95 ± 0.46",
        "online/A.gz   9.50 ± 10.59  0.0010  51.69 ± 0.44  0.0599",
        "same         22.67 ±  0.60    same  51.95 ± 0.46    same",
        "",
        "BLEU|nrefs:1|bs:1000|seed:12345|version:2.6.0",
        "chrF2|nrefs:1|bs:1000|seed:12345|version:2.6.0",
        "p: paired bootstrap against C-3MA.gz",
        "same: no sentence counts otherwise than the baseline's",
    ]


@pytest.mark.parametrize(("trials", "test"), [(0, "paired bootstrap"), (100, "approximate randomisation")])
def test_every_figure_is_there_within_100_columns(trials: int, test: str) -> None:
    names = [f"/data/{'long' * 12}{number}" for number in range(3)]
    scores = compare(SYSTEMS, [REFERENCE], ["bleu", "chrf", "chrf++", "ter"], bootstrap=100, randomization=trials)
    lines = as_text(names, scores)
    first, second, (*signatures, last) = (part.split("\n") for part in "\n".join(lines).split("\n\n"))
    assert max(map(len, first + second)) <= 100
    for table, metrics in ((first, (0, 1)), (second, (2, 3))):
        assert table[0].split() == [word for metric in metrics for word in (scores[0][metric].name, "95", "%", "p")]
        for name, row, shown in zip(names, scores, table[1:], strict=True):
            figures = [name.removeprefix("/data/")]
            for each in (row[metric] for metric in metrics):
                figures += [f"{each.value:.2f}", "±", f"{each.interval:.2f}"]
                figures += [] if each.p_value is None else [f"{each.p_value:.4f}"]
            assert shown.split() == figures
    assert signatures == [f"{each.name}|{each.signature}" for each in scores[0]]
    assert last == f"p: {test} against {figures[0][:-1]}0"


def test_without_resamples_there_are_no_intervals_and_no_p_values() -> None:
    lines = as_text(["a", "b", "c"], compare(SYSTEMS, [REFERENCE], ["chrf"], bootstrap=0))
    assert lines[0].split() == ["chrF2"]
    assert [len(line.split()) for line in lines[1:5]] == [2, 2, 2, 0]
    assert len(lines) == 6


def test_one_system_is_sacrebleus_own_line() -> None:
    plain, sure = score(SYSTEMS[0], [REFERENCE], ["bleu"]), score(SYSTEMS[0], [REFERENCE], ["bleu"], bootstrap=50)
    assert as_text(["a"], [plain]) == [f"BLEU|{plain[0].signature} = {plain[0].value:.2f} {plain[0].details}"]
    middle = f"(μ = {sure[0].mean:.2f} ± {sure[0].interval:.2f})"
    assert as_text(["a"], [sure]) == [f"BLEU|{sure[0].signature} = {sure[0].value:.2f} {middle} {sure[0].details}"]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["out/a", "out/b"], ["a", "b"]),
        (["out/run1/a", "out/run2/a"], ["run1/a", "run2/a"]),
        (["out/ab", "out/ac/d"], ["ab", "ac/d"]),
        (["a", "out/a"], ["a", "out/a"]),
        (["/a/x", "/b/x"], ["/a/x", "/b/x"]),
        (["out/a", "out/a"], ["a", "a"]),
        (["a", "b"], ["a", "b"]),
    ],
)
def test_a_folder_that_all_share_is_left_out(names: list[str], shown: list[str]) -> None:
    assert without_folder(names) == shown


def test_wide_letters_keep_columns_straight() -> None:
    lines = layout(["系统", "分"], [["a", "1.00"], ["翻译一", "12.00"]])
    assert [cell_len(line) for line in lines] == [13, 13, 13]
    assert lines[1] == "a        1.00"
