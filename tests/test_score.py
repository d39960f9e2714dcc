"""Scores are those of sacreBLEU's own command, to the last digit, and what is wrong with the text is said."""

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt.arrays import Arrays
from nmt.data.text import check_counts
from nmt.doubts import about_hypothesis, about_reference, language_by_script, looks_tokenised
from nmt.errors import NmtError, UsageError
from nmt.score import compare, score, sentence_scores, validation_scores, without_empty
from nmt.scoreboard import as_json, as_text, by_sentence
from nmt.tokenizers import choose_tokenizer

WMT17 = Path(__file__).parents[2] / "shared" / "data" / "scorer" / "wmt17-en-de"

REFERENCE = ["The cat sat on the mat.", "It is a fine day, isn't it?", "", "Prices rose by 3.5% in May  ", "one"]
SECOND = ["A cat was sitting on the mat.", "What a fine day!", "no", "Prices went up 3.5% in May", "One."]
HYPOTHESIS = ["the cat sat on a mat .", "It's a fine day, is it not?", "x", " Prices rose by 3,5% in May", ""]
OTHER = ["A cat sat on the mat.", "It is a day.", "", "In May prices rose by 3.5%", "one"]

OPTIONS = {
    "bleu": [],
    "chrf": [],
    "chrf++": ["--chrf-word-order", "2"],
    "ter": [],
}


def sacrebleu(tmp_path: Path, systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]], *options: str) -> object:
    """What sacreBLEU's command prints as JSON, with all its digits."""
    names = []
    for number, lines in enumerate([*references, *systems]):
        path = tmp_path / f"{number}.txt"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
        names.append(str(path))
    refs, hypotheses = names[: len(references)], names[len(references) :]
    command = [sys.executable, "-m", "sacrebleu", *refs, "-i", *hypotheses, "-w", "12", "-f", "json", *options]
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True)
    return json.loads(run.stdout)


@pytest.mark.parametrize("metric", OPTIONS)
@pytest.mark.parametrize("lowercase", [False, True])
def test_number_and_signature_of_the_command(tmp_path: Path, metric: str, lowercase: bool) -> None:
    references = [REFERENCE, SECOND] if lowercase else [REFERENCE]
    options = ["-m", metric.rstrip("+"), *OPTIONS[metric]]
    if lowercase:
        options += ["--lowercase", "--chrf-lowercase"]
    theirs = sacrebleu(tmp_path, [HYPOTHESIS], references, *options)
    (ours,) = score(HYPOTHESIS, references, [metric], lowercase=lowercase)
    assert isinstance(theirs, dict)
    assert (ours.name, ours.signature) == (theirs["name"], theirs["signature"])
    assert round(ours.value, 12) == theirs["score"]
    assert ours.details == theirs.get("verbose_score", "")
    assert (ours.mean, ours.interval, ours.p_value) == (None, None, None)


@pytest.mark.parametrize("tokenize", ["none", "zh", "intl", "char", "13a"])
def test_every_tokenizer_at_hand(tmp_path: Path, tokenize: str) -> None:
    theirs = sacrebleu(tmp_path, [HYPOTHESIS], [REFERENCE], "-tok", tokenize)
    (ours,) = score(HYPOTHESIS, [REFERENCE], ["bleu"], tokenize=tokenize)
    assert isinstance(theirs, dict)
    assert (round(ours.value, 12), ours.signature) == (theirs["score"], theirs["signature"])


def test_confidence_interval_of_the_command(tmp_path: Path) -> None:
    theirs = sacrebleu(tmp_path, [HYPOTHESIS], [REFERENCE], "--confidence", "--confidence-n", "50")
    (ours,) = score(HYPOTHESIS, [REFERENCE], ["bleu"], bootstrap=50)
    assert isinstance(theirs, dict) and ours.mean is not None and ours.interval is not None
    assert ours.signature == theirs["signature"] and "seed:" in ours.signature
    assert (round(ours.mean, 9), round(ours.interval, 9)) == (
        round(theirs["confidence_mean"], 9),
        round(theirs["confidence_var"], 9),
    )


def test_paired_bootstrap_of_the_command(tmp_path: Path) -> None:
    generator = random.Random(1)
    words = ["the", "a", "cat", "dog", "sat", "ran", "on", "in", "mat", "house", "."]
    reference = [" ".join(generator.choices(words, k=8)) for _ in range(60)]
    systems = [[damaged(line, share, generator) for line in reference] for share in (0.5, 0.45, 0.05)]
    # BLEU only: for the other metrics the command fails to write its own numbers as JSON.
    theirs = sacrebleu(tmp_path, systems, [reference], "--paired-bs", "--paired-bs-n", "200")
    ours = compare(systems, [reference], ["bleu"], bootstrap=200)
    assert isinstance(theirs, list)
    for our, their in zip(ours, theirs, strict=True):
        for each in our:
            expected = their[each.name]
            assert (each.value, each.p_value) == (pytest.approx(expected["score"], abs=1e-9), expected["p_value"])
            assert (each.mean, each.interval) == (pytest.approx(expected["mean"]), pytest.approx(expected["ci"]))
            assert "bs:200|seed:12345" in each.signature
    assert [each.p_value for each in ours[0]] == [None]
    assert all(each.p_value is not None and each.p_value < 0.05 for each in ours[2])


def damaged(line: str, share: float, generator: random.Random) -> str:
    return " ".join("x" if generator.random() < share else word for word in line.split())


@pytest.mark.parametrize("trials", [0, 200])
def test_a_system_is_never_better_than_itself(trials: int) -> None:
    systems = [HYPOTHESIS, list(HYPOTHESIS), OTHER]
    baseline, same, other = compare(systems, [REFERENCE], bootstrap=100, randomization=trials)
    assert [each.value for each in baseline] == [each.value for each in same]
    assert [(each.p_value, each.identical) for each in same] == [(1.0, True)] * 2
    assert [(each.p_value, each.identical) for each in baseline] == [(None, False)] * 2
    assert not any(each.identical for each in other)
    named = ["first", "copy", "other"]
    assert [line.split().count("same") for line in as_text(named, [baseline, same, other])[1:4]] == [0, 2, 0]
    rows = json.loads("".join(as_json(named, [baseline, same, other])))
    assert [row.get("baseline") for row in rows] == [None] * 2 + ["first"] * 4
    assert [row["identical"] for row in rows[2:]] == [True, True, False, False]


def test_another_seed_gives_other_resamples() -> None:
    def means(seed: int) -> list[float | None]:
        return [each.mean for each in compare([HYPOTHESIS], [REFERENCE], bootstrap=50, seed=seed)[0]]

    assert means(1) == means(1) != means(2)


@pytest.mark.parametrize("metric", OPTIONS)
def test_empty_lines_among_others_are_no_references(metric: str) -> None:
    first, second = ["The cat sat.", "", "  ", "Prices rose."], ["A cat sat.", "A fine day.", "", ""]
    references, fewer = without_empty([first, second])
    assert references == [["The cat sat.", None, "", "Prices rose."], ["A cat sat.", "A fine day.", None, None]]
    assert fewer == 3
    (ours,) = score(HYPOTHESIS[:4], references, [metric])
    theirs = {"bleu": BLEU(force=True), "chrf": CHRF(), "chrf++": CHRF(word_order=2), "ter": TER()}[metric]
    assert ours.value == pytest.approx(theirs.corpus_score(HYPOTHESIS[:4], references).score, abs=1e-9)
    assert ours.signature == theirs.get_signature().format() and "nrefs:var" in ours.signature
    assert without_empty([first]) == ([first], 0)
    with pytest.raises(NmtError, match="line 2 has no reference"):
        score(["a", "b"], [["a", None]])


@pytest.mark.parametrize("bootstrap", [0, 100])
def test_on_tensors_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch, bootstrap: int) -> None:
    """As on a GPU, but on PyTorch's CPU."""
    how = ([REFERENCE, SECOND], list(OPTIONS))
    plain = score(HYPOTHESIS, *how, bootstrap=bootstrap), sentence_scores(HYPOTHESIS, *how)
    asked = []

    def on(device: str | None) -> Arrays:
        asked.append(device)
        return Arrays(torch, torch.device("cpu"))

    monkeypatch.setattr("nmt.score.Arrays.on", on)
    tensors = score(HYPOTHESIS, *how, bootstrap=bootstrap, device="cuda"), sentence_scores(HYPOTHESIS, *how, device="cuda")
    assert asked == ["cuda", "cuda"]
    assert tensors[1] == plain[1]
    for ours, theirs in zip(tensors[0], plain[0], strict=True):
        assert ours.value == pytest.approx(theirs.value, abs=1e-9)
        assert (ours.mean, ours.interval) == (theirs.mean, theirs.interval)
        assert (ours.name, ours.signature, ours.details) == (theirs.name, theirs.signature, theirs.details)


def test_sentence_scores_of_the_command(tmp_path: Path) -> None:
    for metric in ("bleu", "chrf", "ter"):
        files = []
        for name, lines in (("ref", REFERENCE), ("hyp", HYPOTHESIS)):
            files.append(tmp_path / name)
            files[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
        command = [sys.executable, "-m", "sacrebleu", files[0], "-i", files[1], "-sl", "-m", metric, "-w", "12"]
        run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True)
        ours = sentence_scores(HYPOTHESIS, [REFERENCE], [metric])
        assert len(ours) == len(HYPOTHESIS)
        for (each,), theirs in zip(ours, run.stdout.splitlines(), strict=True):
            assert theirs.startswith(f"{each.name}|{each.signature} = {each.value:.12f}")


@pytest.mark.skipif(not WMT17.is_dir(), reason="the WMT17 systems lie beside the project only where it is developed")
def test_published_system() -> None:
    system, reference = (
        gzip.decompress((WMT17 / f"{name}.gz").read_bytes()).decode("utf-8").split("\n")[:-1]
        for name in ("uedin-nmt.4722", "reference")
    )
    bleu, chrf = validation_scores(system, reference, "de")
    assert (round(bleu, 4), round(chrf, 4)) == (28.3012, 57.7227)
    assert about_hypothesis(system, [reference]) == about_reference(reference, [system], choose_tokenizer(None, "de")) == []


def test_chinese_needs_its_tokenizer() -> None:
    hypothesis, reference = ["今天是好天气"], ["今天是个好天气"]
    assert round(validation_scores(hypothesis, reference, "zh")[0], 1) == 43.0
    assert score(hypothesis, [reference], ["bleu"], target_lang="zh_CN")[0].signature.split("|")[3] == "tok:zh"
    assert validation_scores(hypothesis, reference, None)[0] == 0.0
    (told,) = about_reference(reference, [], choose_tokenizer(None, None))
    assert "Chinese" in told and "--tokenize zh" in told
    assert about_reference(reference, [], choose_tokenizer(None, "zh")) == about_reference(reference, [], None) == []


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("今日はいい天気ですね。", "Japanese"),
        ("カタカナ", "Japanese"),
        ("東京タワーに行きました", "Japanese"),
        ("오늘 날씨가 좋네요", "Korean"),
        ("วันนี้อากาศดี", "Thai"),
        ("今天 是 Mac 日", "Chinese"),
        ("Heute ist ein schöner Tag in 北京.", None),
        ("Сегодня хороший день", None),
        ("123 !?", None),
        ("", None),
    ],
)
def test_language_by_script(text: str, language: str | None) -> None:
    assert language_by_script([text]) == language


def test_tokenizer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.tokenizers.PACKAGES", {"ja-mecab": ("no_such_module", "sacrebleu[ja]")})
    with pytest.raises(NmtError, match=r"ja-mecab.*sacrebleu\[ja\]"):
        choose_tokenizer(None, "ja")
    assert choose_tokenizer("char", "ja") == "char"
    assert choose_tokenizer(None, None) == "13a"
    assert choose_tokenizer(None, "zho_Hans") == "zh" and choose_tokenizer(None, "th-TH") == "char"
    with pytest.raises(UsageError, match="13b"):
        choose_tokenizer("13b", None)


def test_what_looks_tokenised() -> None:
    tokenised = ["the cat , he says , sat .", "it is n't so .", "yes !"]
    assert looks_tokenised(tokenised)
    assert not looks_tokenised(REFERENCE)
    assert not looks_tokenised(["Vraiment ?", "« Oui » : c'est lui ; non !"])  # French spaces
    assert not looks_tokenised(["3.5 % of 1,000", "e.g. this", "what . is it.", "a.", "b."])
    mostly_right = ["a b."] * 500
    assert not looks_tokenised([*mostly_right, *["a b ."] * 99])
    assert looks_tokenised([*mostly_right, *["a b ."] * 100])
    tokens, case = about_hypothesis(tokenised, [["The cat sat."] * 3])
    assert "the hypothesis looks tokenised" in tokens and "--lowercase" in case
    (told,) = about_reference(tokenised, [], "13a")
    assert "the reference looks tokenised" in told


def test_lower_cased_output_is_told_unless_meant() -> None:
    assert any("--lowercase" in each for each in about_hypothesis(["the cat."], [["The cat."]]))
    assert about_hypothesis(["the cat."], [["The cat."]], lowercase=True) == []
    assert about_hypothesis(["the cat."], [["the cat."]]) == []
    assert any("--lowercase" in each for each in about_reference(["the cat."], [["The cat."]], "13a"))
    assert about_reference(["the cat."], [["The cat."]], "13a", lowercase=True) == []
    assert about_hypothesis(["1 2 3."], [["The cat."]]) == []  # has no letter that could be a capital


@pytest.mark.parametrize("line", ["the ca@@ t", "it &apos;s", "a well @-@ known", "▁the ▁cat", "&quot; yes"])
def test_marks_of_tokenizers_are_noticed(line: str) -> None:
    assert any("tokenised" in each for each in about_hypothesis([line], [[line]]))
    assert about_hypothesis([*["me@home and a @ b"] * 5, "R&D"], [["The cat"]], lowercase=True) == []


def test_lines_that_are_no_translations_are_noticed() -> None:
    assert about_hypothesis(["", "A cat.", " "], [["A", "B", "C"]]) == [
        "2 of the hypothesis's 3 lines are empty, and count as wrong"
    ]
    (told,) = about_hypothesis(["A cat.\t-1.25", "Two.\t-0.5"], [["A", "B"]])
    assert "cut -f 1" in told
    assert about_hypothesis(["A cat.\t-1.25", "Two."], [["A", "B"]]) == []


def test_order_of_lines_does_not_matter() -> None:
    order = [3, 0, 4, 2, 1]
    metrics = ["bleu", "chrf", "chrf++", "ter"]
    one = score(HYPOTHESIS, [REFERENCE, SECOND], metrics)
    other = score([HYPOTHESIS[i] for i in order], [[each[i] for i in order] for each in (REFERENCE, SECOND)], metrics)
    assert [each.value for each in one] == pytest.approx([each.value for each in other], abs=1e-9)


def test_more_references_never_hurt() -> None:
    mixed = [REFERENCE[0], SECOND[1], "", REFERENCE[3], SECOND[4]]
    both, first, second = (
        score(mixed, references, ["bleu"])[0].value for references in ([REFERENCE, SECOND], [REFERENCE], [SECOND])
    )
    assert both >= max(first, second)
    assert score(REFERENCE, [REFERENCE], ["bleu", "chrf", "ter"])[0].value == pytest.approx(100)


def test_one_right_line_of_three_is_not_perfect() -> None:
    reference = ["the cat sat on the mat", "it is a fine day today", "prices rose again in May"]
    assert score([reference[0], "no", "none"], [reference], ["bleu"])[0].value < 50


@pytest.mark.parametrize("metric", OPTIONS)
def test_a_tokenizer_that_is_none_is_refused_whatever_the_metric(metric: str) -> None:
    with pytest.raises(UsageError, match="13b"):
        score(HYPOTHESIS, [REFERENCE], [metric], tokenize="13b")


def test_sentences_of_two_systems_of_one_name_are_both_there() -> None:
    systems = [sentence_scores(lines, [REFERENCE], ["chrf", "ter"]) for lines in (HYPOTHESIS, OTHER)]
    rows = [json.loads(row) for row in by_sentence(["same", "same"], systems, jsonl=True)]
    assert [row["line"] for row in rows] == list(range(5))
    for number, row in enumerate(rows):
        scores = [{each.name: each.value for each in system[number]} for system in systems]
        assert row["systems"] == [{"system": "same", "scores": each} for each in scores]


def test_wrong_shapes_are_refused() -> None:
    for hypotheses, references in (("abc", [["a"]]), (["a"], "a"), (["a", "b"], ["a", "b"])):
        with pytest.raises(TypeError, match="list of lines"):
            score(hypotheses, references)
    with pytest.raises(NmtError, match=r"3 lines.* 2"):
        score(["a", "b", "c"], [["a", "b"]])
    with pytest.raises(NmtError, match=r"out\.txt has 2,134 lines, ref\.txt has 3,004"):
        check_counts("out.txt", 2134, "ref.txt", 3004)
    with pytest.raises(NmtError, match=r"^out has 1 line, ref has 2:"):
        check_counts("out", 1, "ref", 2)
    with pytest.raises(NmtError, match="no lines"):
        score([], [[]])
    with pytest.raises(UsageError, match="reference"):
        score(["a"], [])
    with pytest.raises(UsageError, match="meteor"):
        score(["a"], [["a"]], ["meteor"])
