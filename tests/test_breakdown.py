"""Groups of sentences are scored as sacreBLEU scores them alone, every line is in one of them, and lists hold what they say."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from nmt.breakdown import FAULTS, Rarest, breakdown, rarest
from nmt.score import compare, sentence_scores
from nmt.scoreboard import of_breakdown
from nmt.vocab import UNK
from tests.command_line import out, refused, text
from tests.toys import dataset, words

generator = random.Random(1)
STOCK = ["the", "a", "cat", "dog", "sat", "ran", "on", "in", "mat.", "house,"]
REFERENCE = [" ".join(generator.choices(STOCK, k=generator.randint(1, 60))) for _ in range(80)]
SOURCE = [line.upper() for line in REFERENCE]
SYSTEMS = [
    [" ".join(generator.choice(STOCK) if generator.random() < share else word for word in line.split()) for line in REFERENCE]
    for share in (0.3, 0.2, 0.2)
]


def test_groups_are_scored_as_texts_of_their_own() -> None:
    seen = Rarest("word", [generator.choice((None, 0, 1, 9, 10, 5000)) for _ in SOURCE])
    found = breakdown(["a", "b", "c"], SYSTEMS, [REFERENCE], SOURCE, ["bleu", "chrf"], known=seen)
    lengths = [len(line.split()) for line in SOURCE]
    in_group = {
        "1–10": [size <= 10 for size in lengths],
        "11–20": [10 < size <= 20 for size in lengths],
        "51 or more": [size > 50 for size in lengths],
        "0": [count == 0 for count in seen.counts],
        "1–9": [count in (1, 9) for count in seen.counts],
        "1,000 or more": [count == 5000 for count in seen.counts],
    }
    for system, lines in zip(found["systems"], SYSTEMS, strict=True):
        by_length, by_count, by_fault = system["partitions"]
        assert sum(group["lines"] for group in by_length["groups"]) == len(SOURCE)
        assert sum(group["lines"] for group in by_count["groups"]) == sum(count is not None for count in seen.counts)
        assert [group["group"] for group in by_fault["groups"]] == [name for name in FAULTS if name in ("repeated", "other")]
        groups = {group["group"]: group for group in (*by_length["groups"], *by_count["groups"])}
        for name, members in in_group.items():
            ours = [line for line, inside in zip(lines, members, strict=True) if inside]
            theirs = [line for line, inside in zip(REFERENCE, members, strict=True) if inside]
            bleu = BLEU(force=True).corpus_score(ours, [theirs])
            right = {"BLEU": bleu.score, "chrF2": CHRF().corpus_score(ours, [theirs]).score}
            assert groups[name]["scores"] == pytest.approx(right, abs=1e-9)
            assert (groups[name]["lines"], groups[name]["length_ratio"]) == (len(ours), bleu.sys_len / bleu.ref_len)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_the_worst_the_best_and_those_that_differ_most(metric: str) -> None:
    found = breakdown(["a", "b", "c"], SYSTEMS, [REFERENCE], SOURCE, [metric])
    scores = [[row[0].value for row in sentence_scores(lines, [REFERENCE], [metric])] for lines in SYSTEMS]
    descending = metric != "ter"
    for system, values in zip(found["systems"], scores, strict=True):
        best, worst = sorted(values, reverse=descending)[:5], sorted(values, reverse=not descending)[:5]
        for right, listed in ((best, system["best"]), (worst, system["worst"])):
            assert [each["outputs"][0]["score"] for each in listed] == pytest.approx(right)
            assert all(each["outputs"][0]["score"] == pytest.approx(values[each["line"]]) for each in listed)
            assert all(each["source"] == SOURCE[each["line"]] for each in listed)
    for pair, values in zip(found["differences"], scores[1:], strict=True):
        right = sorted((abs(x - y) for x, y in zip(scores[0], values, strict=True)), reverse=True)[:5]
        listed = [[output["score"] for output in each["outputs"]] for each in pair["sentences"]]
        assert [abs(x - y) for x, y in listed] == pytest.approx(right)
    assert [pair["systems"] for pair in found["differences"]] == [["a", "b"], ["a", "c"]]
    shown = of_breakdown(found)
    assert sum(line.startswith("  line ") for line in shown) == 3 * 10 + 2 * 5


def test_a_system_differs_nowhere_from_itself() -> None:
    found = breakdown(["a", "a"], [SYSTEMS[0]] * 2, [REFERENCE], SOURCE, ["chrf"])
    assert found["differences"] == [{"systems": ["a", "a"], "sentences": []}]
    (score,) = compare(SYSTEMS[:1], [REFERENCE], ["chrf"], bootstrap=0)[0]
    assert of_breakdown(found)[-3:] == ["  none", "", f"chrF2|{score.signature}"]


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("Eine Katze sitzt.", "other"),
        ("A cat is sitting.", "copied"),
        ("Eine Katze is sitting here.", "copied"),
        ("Berlin", "other"),
        ("Eine Katze und eine Katze und eine Katze", "repeated"),
        ("ja ja ja", "repeated"),
        ("die die Katze sah", "other"),
        ("hahahahaha", "repeated"),
        ("3 3 3", "repeated"),
        ("Halt!!!!!!!!", "repeated"),
        ("Katze ......", "repeated"),
        ("好。。。。", "repeated"),
        ("😀😀😀😀", "repeated"),
        ("他说，他说，他说，他说，", "repeated"),
        ("Nun ...", "other"),
        ("So!!! Ja?!", "other"),
        ("Aaaah", "other"),
        ("1000000000", "other"),
        (" ".join([f"w{number}" for number in range(50)] * 2), "repeated"),
        (" ".join(f"w{number}" for number in range(50_000)), "other"),
    ],
)
def test_kinds_of_output(output: str, kind: str) -> None:
    source, reference = "A cat is sitting here in Berlin.", "Eine Katze sitzt in Berlin."
    (system,) = breakdown(["a"], [[output]], [[reference]], [source], ["chrf"])["systems"]
    assert [group["group"] for group in system["partitions"][-1]["groups"]] == [kind]
    (system,) = breakdown(["a"], [[output]], [[output or None], [reference]], [source], ["chrf"])["systems"]
    assert [group["group"] for group in system["partitions"][-1]["groups"]] == [kind if kind == "empty" else "other"]


def test_what_comes_of_nothing_is_counted_and_shown() -> None:
    source, reference = ["", "a cat", "  ", "a dog"], ["", "eine Katze", "", "ein Hund"]
    (system,) = breakdown(["a"], [["", "eine Katze", "was da", "ein Hund"]], [reference], source, ["chrf"])["systems"]
    by_length, by_fault = system["partitions"]
    assert [(group["group"], group["lines"]) for group in by_length["groups"]] == [("0", 2), ("1–10", 2)]
    assert sum(group["lines"] for group in by_fault["groups"]) == 4
    assert [each["line"] for each in system["worst"]] == [2, 1, 3]
    assert [each["line"] for each in system["best"]] == [1, 3, 2]


def test_the_rarest_word_is_counted_in_the_training_data(tmp_path: Path) -> None:
    pairs = words(300, 1)
    data = dataset(tmp_path / "made", pairs, 0, tokenizer="bpe", vocab_size=60)
    counts = Counter(word for source, _ in pairs for word in source.split())
    lines = [pairs[7][0], pairs[8][0].split()[0], "zzz", "", f"{pairs[0][0]} abcabcabc"]
    found = rarest(lines, (data.train.src[i].tolist() for i in range(300)), data.source.encode, data.source.decode, UNK)
    right = [min((counts[word] for word in line.split()), default=None) for line in lines]
    assert (found.unit, found.counts) == ("word", right)


def test_without_spaces_subwords_are_counted() -> None:
    ids = {"今": 4, "天": 5, "气": 6}
    training = [[4, 5], [5, 6], [5]]
    found = rarest(["今天", "天天", "天气龙"], training, lambda line: [ids.get(each, UNK) for each in line], str, UNK)
    assert (found.unit, found.counts) == ("subword", [1, 3, 0])


def test_at_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pairs = words(60, 2)
    data = dataset(tmp_path / "made", pairs, 0, tokenizer="bpe", vocab_size=60)
    source, reference = text(tmp_path / "source", *(s for s, _ in pairs)), text(tmp_path / "reference", *(t for _, t in pairs))
    system = text(tmp_path / "system", *(t[:-2] for _, t in pairs))
    command = ["score", system, reference, "-r", reference, "--breakdown", "-q"]
    found = json.loads(out(capsys, *command, "-s", source, "--data", data.path, "--format", "json"))
    assert [each["system"] for each in found["systems"]] == [str(system), str(reference)]
    assert [each["by"] for each in found["systems"][0]["partitions"]] == [
        *("source words", "times the rarest source word was in training", "output"),
    ]
    shown = out(capsys, *command, "-s", source)
    assert shown.startswith(f"{system}\n\nsource words  lines   BLEU  chrF2  length ratio\n")
    assert f"{system} and {reference} differ most by chrF2" in shown
    short = text(tmp_path / "short", "a")
    assert refused(capsys, *command, "-s", short)[0] == 1
    assert refused(capsys, *command)[1].startswith("--breakdown and --source go together")
    assert refused(capsys, "score", system, "-r", reference, "--data", data.path)[1] == "--data is about --breakdown"
    assert refused(capsys, *command, "-s", source, "--sentence")[0] == 2
    assert refused(capsys, *command, "-s", source, "--data", tmp_path)[0] == 1
