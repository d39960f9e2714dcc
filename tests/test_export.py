"""Exported models, and the engine that runs them: it must find what our own search finds, with the same numbers."""

import json
import math
import random
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor

from nmt.checkpoint import SOURCE, TARGET, save_model
from nmt.data.files import made_as
from nmt.data.subword import Recipe, Subword, train_subword
from nmt.errors import NmtError
from nmt.models import BACKENDS, build
from nmt.models.base import Seq2Seq
from nmt.models.transformer import DecoderLayer, EncoderLayer, Transformer
from nmt.results import TextHypothesis
from nmt.run import opened
from nmt.search import Beam, Greedy, Search
from nmt.search.pool import Paths, Sentences
from nmt.translate import Options, Translator
from nmt.vocab import BOS, EOS, PAD, SYMBOLS, UNK
from tests.command_line import out, refused, text
from tests.toys import config, dataset, reversed_digits, run

needs_ctranslate2 = pytest.mark.skipif(
    find_spec("ctranslate2") is None, reason="ctranslate2 is not installed: pip install 'nmt[ctranslate2]'"
)

CPU = torch.device("cpu")
SHAPES: dict[str, tuple[dict[str, object], bool, float]] = {
    "one layer": ({"layers": 1}, True, 1.5),
    "two layers, starts from </s>": ({"layers": 2, "start": "eos"}, True, 3.0),
    "three and one layers, two vocabularies": ({"encoder_layers": 3, "decoder_layers": 1}, False, 1.5),
    "one and two layers, two vocabularies, nothing tied": (
        {"encoder_layers": 1, "decoder_layers": 2, "tie_embeddings": False, "start": "eos"},
        False,
        1.5,
    ),
    "one vocabulary, nothing tied, no positions": ({"layers": 2, "tie_embeddings": False, "positions": "none"}, True, 3.0),
}
"""Settings, whether both sides have one vocabulary, and how readily the network ends: some lines do, and some do not."""


def lines(count: int, seed: int, alphabet: str = "abcdefgh") -> list[str]:
    generator = random.Random(seed)
    stock = ["".join(generator.choices(alphabet, k=generator.randint(1, 6))) for _ in range(60)]
    return [" ".join(generator.choices(stock, k=generator.randint(1, 9))) for _ in range(count)]


def subword(alphabet: str, size: int) -> Subword:
    recipe = Recipe("bpe", size, "nmt_nfkc", lowercase=False, character_coverage=1.0, byte_fallback=False)
    return train_subword(lines(200, 0, alphabet), recipe, alphabet).subword


SUBWORDS = subword("abcdefgh", 40), subword("pqrstuvw", 50)


def settle(model: Transformer, ends: float) -> None:
    """Make an untrained Transformer say various things about various lines, be sure of them, and never say `<unk>`."""
    encoder, decoder = cast(list[EncoderLayer], list(model.encoder)), cast(list[DecoderLayer], list(model.decoder))
    with torch.no_grad():
        for reader in encoder:
            reader.attention.inputs.weight *= 3
            reader.attention.output.weight *= 2
        for writer in decoder:
            writer.attention.inputs.weight *= 3
            writer.cross.query.weight *= 3
            writer.cross.output.weight *= 8
        model.memory.weight *= 2
        for name, parameter in model.named_parameters():
            if name.endswith(("norm.weight", "bias")):  # as they begin, most mistakes with them would not show
                parameter += 0.2 * torch.randn_like(parameter)
        # One unit of the last layer becomes constant, and with it one column of the output matrix a bias.
        last = decoder[-1].after_feed_forward.norm
        last.weight *= 2
        last.weight[0], last.bias[0] = 0, 1
        model.output.weight[:, 0] = 0
        model.output.weight[[PAD, UNK, BOS]] = 0
        model.output.weight[[PAD, UNK, BOS], 0] = -12
        model.output.weight[EOS, 0] = ends


def saved(place: Path, settings: dict[str, object], shared: bool = True, backend: str = "transformer", ends: float = 1.5) -> Path:
    """A model directory: an untrained network of width 16."""
    source, target = SUBWORDS[0], SUBWORDS[0 if shared else 1]
    settings = {"width": 16, "dropout": 0.0, **({"heads": 4, "feed_forward": 24} if backend == "transformer" else {}), **settings}
    torch.manual_seed(3)
    model = build(backend, BACKENDS[backend].settings(**settings), len(source), len(target), shared)
    if backend == "transformer":
        settle(cast(Transformer, model), ends)
    description = {
        "model": {"backend": backend, **settings},
        "vocabulary": {"source": len(source), "target": len(target), "shared": shared},
        "languages": [None, None],
    }
    place.mkdir()
    save_model(place, model, description, source, target)
    return place


class WithoutLateEnds(Beam):
    """Our beam search but for what the engine's does otherwise: of a step's candidates only the first `size` may end."""

    def candidates(self, model: Seq2Seq, hidden: Tensor, live: Paths, sentences: Sentences) -> tuple[Paths, Tensor]:
        paths, rows = super().candidates(model, hidden, live, sentences)
        late = paths.ended()
        late[:, : self.size] = False
        log_prob = paths.log_prob.masked_fill(late, -math.inf)
        order = log_prob.sort(dim=1, descending=True, stable=True).indices
        return Paths(paths.tokens, paths.token_log_probs, log_prob).pick(order), rows.gather(1, order)


def both(
    path: Path, search: Search, size: int, texts: list[str], **options: object
) -> list[tuple[tuple[TextHypothesis, ...], tuple[TextHypothesis, ...]]]:
    """The hypotheses of each line by our own search, and by the engine."""
    from nmt.engine import CTranslate2

    translator = Translator.load(path, device="cpu", threads=1)
    ours = Options(search, **options)  # type: ignore[arg-type]
    theirs = Options(CTranslate2.load(path, size, ours.positions(), CPU), **options)  # type: ignore[arg-type]
    pairs = zip(translator.translate(texts, ours), translator.translate(texts, theirs), strict=True)
    return [(own.hypotheses, other.hypotheses) for own, other in pairs]


def assert_same(own: TextHypothesis, other: TextHypothesis) -> None:
    assert (other.text, other.tokens, other.finished) == (own.text, own.tokens, own.finished)
    assert other.token_log_probs == pytest.approx(own.token_log_probs, abs=1e-4)
    assert (other.log_prob, other.score) == pytest.approx((own.log_prob, own.score), rel=2e-5, abs=1e-4)


@needs_ctranslate2
@pytest.mark.parametrize("shape", SHAPES)
def test_the_engine_finds_what_our_search_finds(tmp_path: Path, shape: str) -> None:
    settings, shared, ends = SHAPES[shape]
    path = saved(tmp_path / "model", settings, shared, ends=ends)
    texts = [*lines(30, seed=1), "", "x " * 3]  # a blank line, and characters without a piece
    found = both(path, Greedy(), 1, texts, max_length=12)
    assert len({own.text for (own,), _ in found}) > 3, "hardly a test of anything"
    for (own,), (other,) in found:
        assert_same(own, other)
    found = both(path, WithoutLateEnds(4), 4, texts, max_length=30)
    ended = [(own, other) for (own,), (other,) in found if own.finished]  # where the limit cuts, the searches part
    assert len(ended) > 5, "hardly a test of anything"
    for own, other in ended:
        assert_same(own, other)


@needs_ctranslate2
def test_a_trained_network_says_the_same_in_both(tmp_path: Path) -> None:
    pairs = reversed_digits(20, seed=1)
    settings = config("transformer", {"width": 32}, label_smoothing=0.0, max_steps=150, batch_tokens=500, valid_every=150)
    run(dataset(tmp_path / "data", [*pairs * 20, *pairs], 20), tmp_path / "run", settings)
    texts = [source for source, _ in [*pairs, *reversed_digits(20, seed=2)]]
    for search, size in ((Greedy(), 1), (WithoutLateEnds(4), 4)):
        found = both(tmp_path / "run", search, size, texts)
        assert len({own.text for (own,), _ in found}) > 20, "hardly a test of anything"
        for (own,), (other,) in found:
            assert_same(own, other)
    found = both(tmp_path / "run", Beam(4), 4, texts)
    assert sum(own.text == other.text for (own,), (other,) in found) >= 32
    assert all(other.score <= own.score + 1e-4 for (own,), (other,) in found)


@needs_ctranslate2
@pytest.mark.parametrize("limit", [1, 2, 7])
def test_an_n_best_list_is_whole_and_scored_by_the_network(tmp_path: Path, limit: int) -> None:
    from nmt.engine import CTranslate2

    path = saved(tmp_path / "model", {"layers": 2})
    translator = Translator.load(path, device="cpu")
    options = Options(CTranslate2.load(path, 5, 100, CPU), n_best=5, max_length=limit)
    texts = lines(20, seed=2)
    source, ids = SUBWORDS[0], {piece: id for id, piece in enumerate(SUBWORDS[0].pieces(range(len(SUBWORDS[0]))))}
    for line, translation in zip(texts, translator.translate(texts, options), strict=True):
        assert len({each.tokens for each in translation.hypotheses}) == 5
        scores = [each.score for each in translation.hypotheses]
        assert scores == sorted(scores, reverse=True)
        for each in translation.hypotheses:
            assert len(each.tokens) <= limit and not {SYMBOLS[PAD], SYMBOLS[UNK], SYMBOLS[BOS]} & set(each.tokens)
            assert each.finished or len(each.tokens) == limit
            ((_, forced),) = translator.force([(source.encode(line), [ids[token] for token in each.tokens])])
            assert each.token_log_probs == pytest.approx(forced[: len(each.tokens) + each.finished], abs=1e-4)


@needs_ctranslate2
def test_the_longest_sentences_have_positions(tmp_path: Path) -> None:
    path = saved(tmp_path / "model", {"layers": 1}, ends=-30)
    for (own,), (other,) in both(path, Greedy(), 1, ["abc " * 90, "a"], max_source=50, max_length_ratio=3):
        assert_same(own, other)
    assert len(own.tokens) == 3 and not own.finished


@needs_ctranslate2
def test_the_command_translates_with_the_engine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = saved(tmp_path / "model", {"layers": 1})
    source = text(tmp_path / "source", *lines(30, seed=4))
    for words in (["--search", "greedy"], ["--beam-size", "1", "--max-length", "9", "--batch-tokens", "100", "--threads", "2"]):
        texts = out(capsys, "translate", path, source, *words)
        assert out(capsys, "translate", path, source, *words, "--engine", "ctranslate2") == texts
    rows = out(capsys, "translate", path, source, "--format", "jsonl", "--n-best", "3", "--engine", "ctranslate2").splitlines()
    assert [(row["line"], row["rank"]) for row in map(json.loads, rows)] == [
        (line, rank) for line in range(30) for rank in range(3)
    ]


@needs_ctranslate2
def test_an_exported_directory_is_used_as_it_says(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "model", {"layers": 2}, shared=False, ends=6)  # all lines end before the limit
    assert out(capsys, "export", path, "--format", "ctranslate2", "-o", tmp_path / "exported") == ""
    whole = ["README.md", "config.json", "model.bin", SOURCE, "source_vocabulary.json", TARGET, "target_vocabulary.json"]
    assert sorted(each.name for each in (tmp_path / "exported").iterdir()) == whole
    texts = lines(10, seed=5)
    expected = out(capsys, "translate", path, text(tmp_path / "source", *texts), "--engine", "ctranslate2").splitlines()
    monkeypatch.chdir(tmp_path / "exported")
    (program,) = re.findall(r"```python\n(.*?)```", Path("README.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(program, names)
    assert [names["translate"](line) for line in texts] == expected  # type: ignore[operator]


@needs_ctranslate2
def test_only_what_nmt_exported_is_replaced(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, place = saved(tmp_path / "model", {"layers": 1}), tmp_path / "exported"
    words = ["export", path, "--format", "ctranslate2", "-o", place]
    out(capsys, *words)
    before = (place / "model.bin").read_bytes()
    assert made_as(place) == "export"
    code, told = refused(capsys, *words)
    assert code == 1 and "--overwrite" in told
    code, told = refused(capsys, "translate", place)
    assert code == 1 and "model.safetensors" in told
    with pytest.raises(NmtError, match="is an exported model, not a run"), opened(place, resume=False, overwrite=True):
        pass
    (place / "model.bin").write_bytes(b"")
    out(capsys, *words, "--overwrite")
    assert (place / "model.bin").read_bytes() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text('{"add_source_eos": true}')
    code, told = refused(capsys, *words[:-1], tmp_path / "mine", "--overwrite")
    assert code == 1 and "not a directory that nmt wrote" in told


@needs_ctranslate2
def test_an_rnn_is_refused_and_leaves_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = saved(tmp_path / "model", {"layers": 1, "embedding": 16}, backend="rnn")
    for words in (
        ["export", path, "--format", "ctranslate2", "-o", tmp_path / "new"],
        ["translate", path, "--engine", "ctranslate2"],
    ):
        code, told = refused(capsys, *words)
        assert code == 1 and "its backend is rnn" in told
    assert [each.name for each in tmp_path.iterdir()] == ["model"]


def test_without_the_package_it_is_said_how_to_get_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "model", {"layers": 1})
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    for words in (
        ["export", path, "--format", "ctranslate2", "-o", tmp_path / "new"],
        ["translate", path, "--engine", "ctranslate2"],
    ):
        code, told = refused(capsys, *words)
        assert code == 1 and "pip install 'nmt[ctranslate2]'" in told
    assert [each.name for each in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    "words",
    [
        *(["--search", "sample"], ["--length-penalty", "1"], ["--no-repeat-ngram", "3"], ["--prefix", "p"], ["--ensemble", "m"]),
        *(["--alignments"], ["--attention", "d"], ["--no-cache"]),
    ],
    ids=" ".join,
)
def test_what_the_engine_cannot_do_is_refused_by_name(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, told = refused(capsys, "translate", "missing", "--engine", "ctranslate2", *words)
    assert code == 2 and words[0] in told
