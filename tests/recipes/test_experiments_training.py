"""Experiments that train: each runs in small from text to picture, and words say what figures say, whichever way these go."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from demo_corpus import write
from experiments import cells, common, context, forcing, length, order, scores, variants
from experiments.common import RNN, Corpus, Work
from experiments.joined import evenly, joined, mixture
from experiments.run import EXPERIMENTS
from experiments.run import write as write_result
from experiments.variants import ahead, than

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
        patch.setattr(common, "run", here)
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
        assert len(work.trainings) <= TRAININGS


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
    assert than(0.2, "that") == "as good as that (+0.20 BLEU)"
    assert than(1.5, "that") == "better than that by 1.50 BLEU" and than(-1.5, "that") == "worse than that by 1.50 BLEU"


def trained(bleu: float, p_value: float | None = 0.01, speed: float = 1000, nll: float = 2.0) -> dict[str, Any]:
    """What `variants.measured` says of a network."""
    curve = [{"step": step, "nll": nll, "ppl": 2.7**nll, "bleu": bleu * step / 200} for step in (100, 200)]
    return {"bleu": bleu, "p_value": p_value, "curve": curve, "training_seconds": 90.0, "tokens_per_second": speed}


def of_lengths(attention: Sequence[float], none: Sequence[float]) -> dict[str, Any]:
    def points(values: Sequence[float]) -> list[dict[str, float]]:
        return [{"pairs": pairs, "words": 12.0 * pairs, "bleu": each} for pairs, each in zip(length.PAIRS, values, strict=True)]

    return {"attention": {"points": points(attention)}, "none": {"points": points(none)}}


def test_the_sentence_on_length_goes_each_way() -> None:
    level, falling, slow = [30.0] * 6, [30.0, 25, 20, 15, 10, 5], [30.0, 29, 28, 27, 26, 25]
    said = length.sentence(of_lengths(level, falling))
    assert "With attention BLEU goes from 30.0 at 12 words a line to 30.0 at 48" in said
    assert "Without attention BLEU goes from 30.0 at 12 words a line to 15.0 at 48, the longest in training (-15.0); at 96" in said
    assert said.endswith("BLEU falls without attention by more than 0.5, as claimed, and with it by no more than that.")
    assert length.sentence(of_lengths(slow, falling)).endswith("as claimed, and with it by less.")
    for other in (of_lengths(falling, falling), of_lengths(falling, level), of_lengths(level, level)):
        assert length.sentence(other).endswith("the claim does not show here.")


def test_the_sentence_on_scores_goes_each_way() -> None:
    additive = trained(30, None)
    said = scores.sentence(
        {"additive": additive, "dot": trained(28, speed=1500), "bilinear": trained(31), "scaled-dot": trained(30.2, 0.3)}
    )
    assert "The dot product is worse than that by 2.00 BLEU, p = 0.010, at 1.50 times the speed" in said
    assert "The scaled dot product is as good as that (+0.20 BLEU)" in said
    assert "Better than the additive score is: bilinear score." in said
    assert "falls behind, and scaling helps (+2.20)." in said and said.endswith(
        "Faster than the additive score here is: dot product."
    )
    said = scores.sentence({"additive": additive, "dot": trained(32), "bilinear": trained(31, 0.4), "scaled-dot": trained(29)})
    assert "Better than the additive score is: dot product." in said and said.endswith(
        "Faster than the additive score here is: none."
    )
    assert "does not fall behind; scaling changes it by -3.00." in said
    both = scores.sentence({"additive": additive, "dot": trained(32), "bilinear": trained(31), "scaled-dot": trained(29)})
    assert "Better than the additive score are: dot product and bilinear score." in both
    none = scores.sentence({"additive": additive, "dot": trained(28), "bilinear": trained(28), "scaled-dot": trained(28)})
    assert "neither of the two" in none and "but scaling does not help (+0.00)" in none


@pytest.mark.parametrize(
    ("once", "always", "p_value", "words"),
    [(20, 22, 0.01, "step helps."), (22, 20, 0.01, "step harms."), (20, 20.2, 0.01, "which."), (20, 22, 0.3, "which.")],
)
def test_the_sentence_on_context_goes_each_way(once: float, always: float, p_value: float, words: str) -> None:
    assert context.sentence({"initial": trained(once, None), "every-step": trained(always, p_value)}).endswith(words)


def of_shares(decaying: float, constant: float, long: float) -> dict[str, Any]:
    def halves(long: float) -> dict[str, float]:
        return {"words": 11.0, "short": 30.0, "long": long}

    found = {ratio: trained(constant) | {"halves": halves(28 + long)} for ratio in forcing.RATIOS}
    found[forcing.ALWAYS] = trained(30, None, speed=2000, nll=1.5) | {"halves": halves(28)}
    found["decaying"] |= {"bleu": decaying}
    return found


def test_the_sentence_on_teacher_forcing_goes_each_way() -> None:
    said = forcing.sentence(of_shares(decaying=31, constant=29, long=2))
    assert "has BLEU 30.00" in said and "0.9 -1.00 (p = 0.010)" in said and "from 1 down to 0.5 +1.00" in said
    assert "The share that decays helps, as claimed." in said
    assert "sentences of more than 11 words change by +2.00, the others by +0.00" in said
    assert ": long ones fare better than short ones." in said
    assert "is 2.000 with it and 1.500 without; training runs at 0.50 times the speed" in said
    said = forcing.sentence(of_shares(decaying=29, constant=31, long=-2))
    assert "that are certain, but 0.9, 0.75 and 0.5 do." in said and "long ones fare worse than short ones." in said
    said = forcing.sentence(of_shares(decaying=29, constant=29.5, long=0.1))
    assert "nor does any other." in said and ": no difference of more than 0.5." in said


def test_halves_are_scored_apart() -> None:
    references = ["a b c d", "a b c d", "a b c d e f g h", "a b c d e f g h"]
    found = forcing.halves([*references[:2], "x", "y"], references)
    assert found["words"] == 6 and found["short"] == pytest.approx(100) and found["long"] < 1


def of_cells(rnn: float, gru: float, lstm: float, bleu: float = 25) -> dict[str, Any]:
    """Norms that shrink by these factors a step; before training none does."""

    def norms(factor: float) -> dict[str, list[float]]:
        return {"before": [3.0] * 41, "after": [2.0 * factor**n for n in range(41)]}

    factors = {"rnn": rnn, "gru": gru, "lstm": lstm}
    return {cell: trained(20 if cell == "rnn" else bleu) | {"norms": norms(factor)} for cell, factor in factors.items()}


def test_the_sentence_on_cells_goes_each_way() -> None:
    figures = of_cells(0.5, 0.9, 0.95)
    assert cells.by_step(figures, "gru", "after") == pytest.approx(0.9)
    assert cells.left(figures, "rnn", "after") == pytest.approx(0.5**40)
    said = cells.sentence(figures)
    assert (
        "After training the gradient 41 steps back is this share of that one step back: vanilla RNN 9.1e-13 (0.50 a step)" in said
    )
    assert "keeps before training: neither GRU nor LSTM." in said and "keeps after training: GRU and LSTM." in said
    assert "vanilla RNN 20.00, GRU 25.00, LSTM 25.00; better than the vanilla RNN: GRU and LSTM." in said
    assert said.endswith("The claim holds here.")
    said = cells.sentence(of_cells(0.9, 0.5, 0.99, bleu=20))
    assert "keeps after training: LSTM." in said and "better than the vanilla RNN: neither." in said
    assert said.endswith("does not show here for both, after training.")


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


def of_orders(four: float, same: float, bag: float) -> dict[str, Any]:
    def texts(four: float, bag: float) -> dict[str, Any]:
        return {
            text: {"bleu": last, "precisions": [60.0, 40.0, 20.0, last]}
            for text, last in (("test", four), ("shuffled", four), ("bag", bag))
        }

    return {
        "sinusoidal": {"texts": texts(20, 1), "same": 0.02},
        "none": {"texts": texts(four, bag), "same": same},
    }


def test_the_sentence_on_order_goes_each_way() -> None:
    said = order.sentence(of_orders(10, 1.0, 1))
    assert "Sinusoidal positions: BLEU 20.00, 60.0 % of the words and 20.0 % of the 4-grams are right" in said
    assert "100% of the right words are left, and 50% of the right 4-grams: what is lost is order more than words." in said
    assert (
        "does not reach the network without positions, and positions are worth +10.00 BLEU: the claim holds here." in said
        and "in some order all the same" in said
    )
    said = order.sentence(of_orders(20, 0.5, 15))
    assert (
        "what is lost is not the order." in said
        and "reaches the network without positions" in said
        and "the claim does not hold here." in said
        and "hardly in a better order" in said
    )


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
