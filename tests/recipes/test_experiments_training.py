"""Experiments that train: each runs in small from text to picture, and words say what figures say, whichever way these go."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import training
from demo_corpus import write
from experiments import cells, common, context, forcing, length, order, scores, variants
from experiments.common import RNN, Corpus, Work
from experiments.joined import evenly, joined, mixture
from experiments.run import EXPERIMENTS
from experiments.run import write as write_result
from experiments.variants import ahead, speed, than

from nmt.cli import main
from nmt.models import build
from nmt.models.rnn import Settings

TRAINED = {name: each for name, each in EXPERIMENTS.items() if name not in ("cache", "beams", "sampling")}
"""The others only use what these train."""
TRAININGS = 16
"""Of all of them together: those that they share are made once."""


def here(words: Sequence[str | Path]) -> None:
    """In this process: to start another one takes longer than these trainings."""
    assert main([*map(str, words[1:]), "--quiet"]) == 0


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    folder = tmp_path_factory.mktemp("experiments")
    write(folder / "text", "en", "de", {"train": 300, "valid": 10, "test": 15}, seed=1)

    def sides(part: str) -> common.Sides:
        return folder / "text" / f"{part}.en", folder / "text" / f"{part}.de"

    with pytest.MonkeyPatch.context() as patch:
        for module in (common, training):
            patch.setattr(module, "run", here)
        yield Work(folder / "work", Corpus(sides("train"), sides("valid"), sides("test")), small=True)


@pytest.mark.parametrize("name", TRAINED)
def test_it_runs_from_text_to_picture(name: str, work: Work, tmp_path: Path) -> None:
    experiment = TRAINED[name]
    figures = json.loads(json.dumps(experiment.measure(work)))
    write_result(experiment, {"figures": figures}, tmp_path / f"{name}.json")
    found = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert len({len(row) for row in found["table"]}) == 1 and found["sentence"].endswith(".")
    assert (tmp_path / f"{name}.svg").stat().st_size > 5000
    if name == list(TRAINED)[-1]:
        assert len(work.models) <= TRAININGS


def test_lines_are_joined_in_order_and_none_is_lost(tmp_path: Path) -> None:
    assert joined(["a", "b c", "d", "e"], [1, 2, 3, 9]) == ["a", "b c d", "e"]
    assert evenly(["a", "b", "c"], 2) == ["a b", "c"] and evenly(["a", "b"], 1) == ["a", "b"]
    for side, letter in (("en", "s"), ("de", "t")):
        (tmp_path / f"train.{side}").write_text("".join(f"{letter}{n}\n" for n in range(100)))
    source, target = mixture((tmp_path / "train.en", tmp_path / "train.de"), 4, tmp_path / "joined")
    ours, theirs = (path.read_text().split("\n")[:-1] for path in (source, target))
    assert " ".join(ours).split() == [f"s{n}" for n in range(100)]
    assert [line.replace("s", "t") for line in ours] == theirs
    assert {len(line.split()) for line in ours} == {1, 2, 3, 4}


def test_scores_are_compared_with_the_first() -> None:
    references = [f"line {n} of a small text" for n in range(40)]
    found = variants.tested({"bad": ["line"] * 40, "good": references, "again": ["line"] * 40}, references)
    assert found["bad"]["p_value"] is None and found["good"]["bleu"] == pytest.approx(100)
    assert found["good"]["p_value"] < 0.01 and found["again"]["p_value"] == 1


def test_small_gains_and_chance_ones_are_not_said_to_be_gains() -> None:
    assert ahead(0.6, 0.01) and not ahead(0.6, 0.2) and not ahead(0.4, 0.01) and not ahead(-2, 0.01)
    assert than(0.2, 0.3, "that") == "about as good as that (+0.20 BLEU, p = 0.300)"
    assert than(1.5, 0.01, "that") == "better than that (+1.50 BLEU, p = 0.010)"
    assert than(-1.5, 0.01, "that") == "worse than that (-1.50 BLEU, p = 0.010)"
    assert than(-0.8, 0.07, "that") == "perhaps worse than that, not certainly (-0.80 BLEU, p = 0.070)"


HERE = {"processes": 2, "device": "2 cores", "versions": {"torch": "2.0"}, "commit": "abc"}


def trained(bleu: float, p_value: float | None = 0.01, speed: float = 1000, nll: float = 2.0) -> dict[str, Any]:
    """What `variants.measured` says of a network."""
    curve = [{"step": step, "nll": nll, "ppl": 2.7**nll, "bleu": bleu * step / 200} for step in (100, 200)]
    how = {"training_seconds": 90.0, "tokens_per_second": speed, "made": HERE}
    return {"bleu": bleu, "p_value": p_value, "curve": curve, **how}


def test_speeds_are_compared_only_where_nothing_else_differed() -> None:
    figures = {"one": trained(30, speed=1500), "other": trained(30)}
    assert speed(figures, "one", "other") == 1.5
    for key, value in (("processes", 1), ("device", "a GPU"), ("versions", {"torch": "2.1"}), ("commit", "def")):
        assert speed(figures | {"one": trained(30) | {"made": HERE | {key: value}}}, "one", "other") is None
    for made in ({}, HERE | {"device": "2 cores; a GPU"}):  # not recorded; each went on elsewhere, nobody knows when
        assert speed({name: trained(30) | {"made": made} for name in figures}, "one", "other") is None


GAINS = (-2.0, -0.7, -0.3, 0.3, 0.7, 2.0)
P_VALUES = (0.001, 0.03, 0.2)


def called(gain: float, p_value: float) -> str:
    """How a difference is to be called."""
    if -0.5 <= gain <= 0.5:
        return "alike"
    return "open" if p_value >= 0.05 else "better" if gain > 0 else "worse"


def names_after(words: str, said: str) -> set[str]:
    """Of the list that follows these words and ends with a sentence or before another claim."""
    found = re.search(rf"{re.escape(words)}: (.+?)(?:\. |; |\.$)", said)
    assert found is not None, (words, said)
    return set(re.split(", | and ", found[1])) - {"none"}


def of_lengths(attention: Sequence[float], none: Sequence[float]) -> dict[str, Any]:
    def points(values: Sequence[float]) -> list[dict[str, float]]:
        return [{"pairs": pairs, "words": 12.0 * pairs, "bleu": each} for pairs, each in zip(length.PAIRS, values, strict=True)]

    return {"attention": {"points": points(attention)}, "none": {"points": points(none)}}


def test_the_sentence_on_length_goes_each_way() -> None:
    level, falling, slow = [30.0] * 6, [30.0, 25, 20, 15, 10, 5], [30.0, 29, 28, 27, 26, 25]
    said = length.sentence(of_lengths(level, falling))
    assert "has 12 words on average, one of 4 pairs, as many as a line of training has at most, 48, one of 8 pairs 96." in said
    assert "With attention BLEU goes from 30.0 with one pair a line to 30.0 with 4 (+0.0); with 8 it is 30.0." in said
    assert "Without attention BLEU goes from 30.0 with one pair a line to 15.0 with 4 (-15.0); with 8 it is 5.0." in said
    assert said.endswith("falls by more than 0.5 without attention and not with it: the claim holds here.")
    assert length.sentence(of_lengths(slow, falling)).endswith("by more than 0.5 less: the claim shows in part.")
    for other in (of_lengths(falling, falling), of_lengths(falling, level), of_lengths(level, level)):
        assert length.sentence(other).endswith("the claim does not show here.")
    # What falls less than it grows with attention does not fall for that.
    assert "falls by more than 0.5 not without attention" in length.sentence(
        of_lengths([30, 30, 30, 30.6, 0, 0], [24, 24, 24, 23.55, 0, 0])
    )


def test_words_on_length_say_what_the_figures_say() -> None:
    changes = (-9.0, -1.2, -0.7, -0.4, 0.0, 0.4, 0.7)
    for with_attention, without in product(changes, changes):
        said = length.sentence(of_lengths([30, 30, 30, 30 + with_attention, 1, 1], [25, 25, 25, 25 + without, 1, 1]))
        worse, more = without < -0.5, with_attention - without > 0.5
        assert ("claim holds here" in said) == (worse and more and with_attention >= -0.5), said
        assert ("shows in part" in said) == (worse and more and with_attention < -0.5), said
        assert ("0.5 not without attention" in said) == (not worse), said
        assert ("is within 0.5 of that or worse" in said) == (worse and not more), said


def of_scores(dot: dict[str, Any], bilinear: dict[str, Any], scaled: dict[str, Any], p_value: float = 0.01) -> dict[str, Any]:
    figures = {"additive": trained(30, None), "dot": dot, "bilinear": bilinear, "scaled-dot": scaled}
    return figures | {"scaling": {"bleu": scaled["bleu"], "p_value": p_value}}


def test_the_sentence_on_scores_goes_each_way() -> None:
    said = scores.sentence(of_scores(trained(28, speed=1500), trained(31), trained(30.2, 0.3)))
    assert "The dot product is worse than that (-2.00 BLEU, p = 0.010)." in said
    assert "The scaled dot product is about as good as that (+0.20 BLEU, p = 0.300)" in said
    assert "better than the additive one by more than 0.5 BLEU with p < 0.05: bilinear score." in said
    assert "The plain dot product falls behind; scaled it is better than plain (+2.20 BLEU, p = 0.010)." in said
    assert (
        "dot product 1.50, bilinear score 1.00, scaled dot product 1.00; faster by a factor of more than 1.05: dot product." in said
    )
    said = scores.sentence(of_scores(trained(29.2, 0.07), trained(31, 0.4), trained(29.9, 0.07), 0.3))
    assert "The bilinear score is perhaps better than that, not certainly (+1.00 BLEU, p = 0.400)" in said
    assert "may fall behind, which is not certain; scaled it is perhaps better than plain, not certainly" in said
    assert said.endswith("faster by a factor of more than 1.05: none.")
    elsewhere = trained(31) | {"made": HERE | {"device": "a GPU"}}
    said = scores.sentence(of_scores(trained(32, speed=1500), trained(31), elsewhere))
    assert "factor" not in said and "Speeds are not compared" in said


def test_words_on_scores_say_what_the_figures_say() -> None:
    phrases = {"better": "is better than", "worse": "is worse than", "alike": "is about as good as", "open": "is perhaps "}
    networks = {"dot": "dot product", "bilinear": "bilinear score", "scaled-dot": "scaled dot product"}
    for (gain, p_value), (other, uncertain), last in product(product(GAINS, P_VALUES), product(GAINS, P_VALUES), P_VALUES):
        figures = of_scores(trained(30 + gain, p_value), trained(30 + other, uncertain), trained(30, 1.0), last)
        said = scores.sentence(figures)
        gains = {"dot": (gain, p_value), "bilinear": (other, uncertain), "scaled-dot": (0, 1.0)}
        assert all(f"The {name} {phrases[called(*gains[key])]}" in said for key, name in networks.items()), said
        assert f"; scaled it {phrases[called(-gain, last)]}" in said
        better = {networks[key] for key in ("dot", "bilinear") if called(*gains[key]) == "better"}
        assert names_after("p < 0.05", said) == better
        assert ("product falls behind;" in said) == (called(gain, p_value) == "worse")
        assert ("may fall behind" in said) == (called(gain, p_value) == "open" and gain < 0)


@pytest.mark.parametrize(
    ("once", "always", "p_value", "words"),
    [
        (20, 22, 0.01, "step helps."),
        (22, 20, 0.01, "step harms."),
        (20, 20.2, 0.01, "little which."),
        (20, 22, 0.3, "is not known."),
    ],
)
def test_the_sentence_on_context_goes_each_way(once: float, always: float, p_value: float, words: str) -> None:
    assert context.sentence({"initial": trained(once, None), "every-step": trained(always, p_value)}).endswith(words)


def test_words_on_context_say_what_the_figures_say() -> None:
    ends = {"better": "helps.", "worse": "harms.", "alike": "it matters little which.", "open": "which is better is not known."}
    for gain, p_value in product(GAINS, P_VALUES):
        said = context.sentence({"initial": trained(30, None), "every-step": trained(30 + gain, p_value)})
        assert said.endswith(ends[called(gain, p_value)]) and sum(said.endswith(end) for end in ends.values()) == 1


def of_shares(decaying: float, constant: float, long: float, p_value: float = 0.01) -> dict[str, Any]:
    def halves(long: float) -> dict[str, float]:
        return {"words": 11.0, "short": 30.0, "long": long}

    found = {ratio: trained(constant, p_value) | {"halves": halves(28 + long)} for ratio in forcing.RATIOS}
    found[forcing.ALWAYS] = trained(30, None, speed=2000, nll=1.5) | {"halves": halves(28)}
    found["decaying"] |= {"bleu": decaying}
    return found


def test_the_sentence_on_teacher_forcing_goes_each_way() -> None:
    said = forcing.sentence(of_shares(decaying=31, constant=29, long=2))
    assert "has BLEU 30.00" in said and "0.9 -1.00 (p = 0.010)" in said and "from 1 down to 0.5 +1.00" in said
    assert "The share that decays helps, as claimed." in said and "multiplied by their number: none." in said
    assert "sentences of more than 11 words change by +2.00, the others by +0.00; how much of that is chance" in said
    assert "is 2.000 with it and 1.500 without; training runs at 0.50 times the speed." in said
    said = forcing.sentence(of_shares(decaying=29, constant=31, long=-2))
    assert "The share that decays harms: the claim does not show here." in said
    assert "multiplied by their number: 0.9, 0.75 and 0.5." in said
    # One of three with p = 0.02 is what chance may do; and longer training elsewhere is no speed.
    figures = of_shares(decaying=30.2, constant=31, long=0.1, p_value=0.02)
    figures["decaying"] |= {"made": {}}
    said = forcing.sentence(figures)
    assert "makes a difference of no more than 0.5" in said and "multiplied by their number: none." in said
    assert said.endswith("and 1.500 without.")


def test_words_on_teacher_forcing_say_what_the_figures_say() -> None:
    words = {
        "better": "decays helps, as claimed.",
        "worse": "decays harms: the claim does not show",
        "alike": "no more than 0.5: the claim does not show",
        "open": "is not certain.",
    }
    for decaying, constant, p_value in product(GAINS, GAINS, P_VALUES):
        said = forcing.sentence(of_shares(30 + decaying, 30 + constant, 0, p_value))
        assert [key for key, each in words.items() if each in said] == [called(decaying, p_value)], said
        assert bool(re.search(r"number: 0\.9, 0\.75 and 0\.5\.", said)) == (called(constant, 3 * p_value) == "better")


def test_halves_are_scored_apart() -> None:
    references = ["a b c d", "a b c d", "a b c d e f g h", "a b c d e f g h"]
    found = forcing.halves([*references[:2], "x", "y"], references)
    assert found["words"] == 6 and found["short"] == pytest.approx(100) and found["long"] < 1


def of_cells(rnn: float, gru: float, lstm: float, bleu: float = 25, p_value: float = 0.01) -> dict[str, Any]:
    """Norms that shrink by these factors a step; before training none does."""

    def norms(factor: float) -> dict[str, list[float]]:
        return {"before": [3.0] * 41, "after": [2.0 * factor**n for n in range(41)]}

    factors = {"rnn": rnn, "gru": gru, "lstm": lstm}
    return {cell: trained(20 if cell == "rnn" else bleu, p_value) | {"norms": norms(factors[cell])} for cell in factors}


def test_the_sentence_on_cells_goes_each_way() -> None:
    figures = of_cells(0.5, 0.95, 0.99)
    assert cells.by_step(figures, "gru", "after") == pytest.approx(0.95)
    assert cells.left(figures, "rnn", "after") == pytest.approx(0.5**40)
    said = cells.sentence(figures)
    assert "these shares are left 41 steps back (less than 0.01: it vanishes; 0.1 to 10: it is kept)" in said
    assert "After training in the vanilla RNN it vanishes (9.1e-13, a factor of 0.50 a step), in the GRU it is kept (0.13, " in said
    assert "Before training in the vanilla RNN it is kept (1, a factor of 1.00 a step)" in said
    assert "vanilla RNN 20.00, GRU 25.00, LSTM 25.00; better than the vanilla RNN by more than 0.5 BLEU" in said
    assert "p < 0.05: GRU and LSTM." in said and said.endswith("After training the claim holds here.")
    # All vanish, and none does: in neither do gates keep what would vanish.
    for figures, more in ((of_cells(0.5, 0.55, 0.6), "GRU and LSTM"), (of_cells(1, 1.1, 1.2, bleu=20), "GRU and LSTM")):
        assert (
            f"does not hold here as it stands; more than 10 times what is left in the vanilla RNN is left in: {more}."
            in cells.sentence(figures)
        )
    said = cells.sentence(of_cells(1.0, 1.1, 0.9, bleu=20))
    assert "in the GRU it explodes (45" in said and "in the LSTM it shrinks (0.015" in said and "p < 0.05: none." in said


def test_words_on_cells_say_what_the_figures_say() -> None:
    def becomes(factor: float) -> str:
        share = factor**40
        return "vanishes" if share < 1 / 100 else "shrinks" if share < 1 / 10 else "is kept" if share <= 10 else "explodes"

    factors = (0.5, 0.88, 0.91, 0.96, 1.0, 1.05, 1.1)
    for each in product(factors, repeat=3):
        said = cells.sentence(of_cells(*each))
        after = said[said.index("After training in the vanilla RNN") :]
        fates = [becomes(factor) for factor in each]
        assert re.findall(r"it (vanishes|shrinks|is kept|explodes) \(", after) == fates
        assert said.endswith("training the claim holds here.") == (fates == ["vanishes", "is kept", "is kept"])
        if "as it stands" in said:
            more = {name for name, factor in zip(("GRU", "LSTM"), each[1:], strict=True) if factor**40 > 10 * each[0] ** 40}
            assert names_after("is left in", said) == more
    for gain, p_value in product(GAINS, P_VALUES):
        said = cells.sentence(of_cells(0.5, 1, 1, 20 + gain, p_value))
        assert names_after("p < 0.05", said) == ({"GRU", "LSTM"} if called(gain, p_value) == "better" else set())


def test_gradients_of_a_linear_recurrence_shrink_by_its_factor() -> None:
    settings = Settings(layers=1, width=16, embedding=16, cell="rnn", attention="none")
    model: Any = build("rnn", settings, 20, 20, True).eval()
    decoder = model.decoder
    with torch.no_grad():
        for weight in (*decoder.begin.parameters(), *decoder.recurrent.layers.parameters()):
            weight.zero_()
        # All states are 0, where tanh is the identity: each step back multiplies the gradient by the factor.
        decoder.recurrent.layers.weight_hh_l0.copy_(0.5 * torch.eye(16))
    generator = torch.Generator().manual_seed(1)
    pairs = [([4, 5, 3][-size:], torch.randint(4, 20, (8,), generator=generator).tolist()) for size in (3, 2, 3)]
    found = cells.gradients(model, pairs)
    assert found == pytest.approx([found[0] * 0.5**n for n in range(8)]) and found[0] > 0


def of_orders(four: float, same: float, bag: float, p_value: float = 0.01) -> dict[str, Any]:
    def texts(four: float, bag: float) -> dict[str, Any]:
        return {
            text: {"bleu": last, "precisions": [60.0, 40.0, 20.0, last]}
            for text, last in (("test", four), ("shuffled", four), ("bag", bag))
        }

    return {
        "sinusoidal": {"texts": texts(20, 1), "same": 0.02},
        "none": {"texts": texts(four, bag), "same": same, "p_value": p_value},
    }


def test_the_sentence_on_order_goes_each_way() -> None:
    said = order.sentence(of_orders(10, 1.0, 1))
    assert "Sinusoidal positions: BLEU 20.00, 60.0 % of the words and 20.0 % of the 4-grams are right" in said
    assert "100% as many words are right as with them, and 50% as many 4-grams: order suffers more than words do." in said
    assert "does not reach the network without positions (more than 95% of its translations are the same)" in said
    assert "positions help by more than 0.5 BLEU with p < 0.05 (+10.00 BLEU, p = 0.010): the claim holds here." in said
    assert "in some order all the same (10.0 % of 4-grams right; 1.0 % when its words are shuffled)" in said
    said = order.sentence(of_orders(20, 0.5, 15))
    assert "order does not suffer more than words do." in said and "reaches the network without positions (no more" in said
    assert "do not help" in said and "the claim does not show here." in said and "not twice as good" in said


def test_words_on_order_say_what_the_figures_say() -> None:
    for gain, p_value, same, bag in product(GAINS, P_VALUES, (0.5, 0.94, 0.96, 1.0), (1.0, 12.0)):
        said = order.sentence(of_orders(20 - gain, same, bag, p_value))
        helps = called(gain, p_value) == "better"
        assert ("positions help by" in said) == helps and ("does not reach" in said) == (same > 0.95)
        assert ("claim holds here" in said) == (helps and same > 0.95) != ("claim does not show" in said)
        assert ("suffers more" in said) == ((20 - gain) / 20 < 0.9) and ("all the same" in said) == (20 - gain >= 2 * bag)


def test_shuffled_lines_have_the_same_words() -> None:
    lines = ["a b c d e f g h", "", "one two"]
    found = order.shuffled(lines)
    assert [sorted(line.split()) for line in found] == [sorted(line.split()) for line in lines]
    assert found != lines and found == order.shuffled(lines)


def test_precisions_are_those_of_bleu() -> None:
    # 3 of 4 words, 2 of 3 pairs, 1 of 2 triples, none of 1: smoothed.
    found = order.scored(["a b c x"], ["a b c d"])
    assert found["precisions"][:3] == [75.0, 66.7, 50.0]


def test_base_networks_are_shared() -> None:
    assert scores.SCORES["additive"].settings == forcing.RATIOS["1"].settings == length.NETWORKS["attention"].settings == RNN
    assert cells.CELLS["gru"].settings == context.CONTEXTS["every-step"].settings == length.NETWORKS["none"].settings
