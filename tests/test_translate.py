"""Lines in, translations out: in order, complete, the same however they are batched and however they arrive."""

import itertools
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.alignment import align, pharaoh, words
from nmt.checkpoint import load_model, save_model
from nmt.data.subword import Recipe, Subword, train_subword
from nmt.device import choose_device, set_threads
from nmt.errors import NmtError, UsageError
from nmt.models import BACKENDS, build
from nmt.models.base import Memory, Seq2Seq
from nmt.models.quantized import quantize
from nmt.results import ABSENT, EMPTY, Statistics, Translation
from nmt.search import Beam, Greedy, Hypothesis, Sampling, Search
from nmt.stream import LOOKAHEAD, Sentence, arriving, in_order
from nmt.translate import Options, Translator
from nmt.vocab import BOS, EOS
from tests.fakes import Scripted, random_logits

SEARCHES = [Greedy(), Greedy(no_repeat_ngram=2), Beam(1), Beam(4, 0.6), Sampling(seed=3, samples=2)]
BLANKS = ["", "   ", "\u00a0\u3000", "\u200b", "\t"]


class Copier(Scripted):
    """Writes its source, surely but not certainly; looks at what it writes."""

    def __init__(self, vocabulary: int) -> None:
        noise = random_logits(vocabulary)

        def logits(src: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
            values = list(noise(src, prefix))
            values[src[min(len(prefix), len(src) - 1)]] += 12
            return values

        super().__init__(vocabulary, logits, BOS)

    def attention(self, prefix: Tensor, memory: Memory) -> Tensor:
        source = memory.src.shape[1]
        position = torch.arange(prefix.shape[1]).clamp(max=source - 1)
        return torch.nn.functional.one_hot(position, source).float().expand(len(prefix), -1, -1)


def sentences(count: int, seed: int, longest: int = 8) -> list[str]:
    generator = random.Random(seed)
    vocabulary = ["".join(generator.choices("abcdefghij", k=generator.randint(1, 7))) for _ in range(60)]
    return [" ".join(generator.choices(vocabulary, k=generator.randint(1, longest))) for _ in range(count)]


@pytest.fixture(scope="module")
def subword() -> Subword:
    recipe = Recipe("bpe", 60, "nmt_nfkc", lowercase=False, character_coverage=1.0, byte_fallback=False)
    return train_subword(sentences(300, seed=0), recipe, "letters").subword


@pytest.fixture
def copier(subword: Subword) -> Translator:
    return Translator([Copier(len(subword))], subword, subword)


def network(backend: str, subword: Subword, seed: int = 1) -> Seq2Seq:
    """Untrained, so that near ties abound."""
    torch.manual_seed(seed)
    settings = BACKENDS[backend].settings(layers=1, width=16, dropout=0.5)
    return build(backend, settings, len(subword), len(subword), True)


@pytest.fixture(params=[*BACKENDS, "int8"])
def translator(request: pytest.FixtureRequest, subword: Subword) -> Translator:
    model = network("transformer" if request.param == "int8" else request.param, subword)
    if request.param == "int8":
        quantize(model)
    return Translator([model], subword, subword)


def texts(translations: Iterator[Translation]) -> list[str]:
    return [translation.text for translation in translations]


# Lines


@pytest.mark.parametrize("search", SEARCHES, ids=repr)
def test_n_lines_in_n_lines_out(copier: Translator, search: Search) -> None:
    lines = [*BLANKS, "a b", *BLANKS, "c", "a b", ""]
    found = texts(copier.translate(lines, Options(search)))
    assert len(found) == len(lines)
    assert [line for line, text in zip(lines, found, strict=True) if text] == ["a b", "c", "a b"]
    assert list(copier.translate([], Options(search))) == []


def test_one_string_is_not_taken_for_many_lines(copier: Translator) -> None:
    with pytest.raises(TypeError, match="one string"):
        copier.translate("a b c")


def test_blank_lines_do_not_run_the_model(subword: Subword) -> None:
    model = Copier(len(subword))
    found = list(Translator([model], subword, subword).translate(BLANKS * 3, Options(Beam(3), n_best=3)))
    assert model.rows == []
    assert [translation.text for translation in found] == [""] * 15
    assert [len(translation.hypotheses) for translation in found] == [3] * 15
    assert all(translation.source == () and not translation.cut for translation in found)


@pytest.mark.parametrize("batch_tokens", [1, 40, 4000])
@pytest.mark.parametrize("batch_lines", [None, 1, 7])
def test_lines_keep_their_order(copier: Translator, batch_tokens: int, batch_lines: int | None) -> None:
    lines = sentences(60, seed=2)
    options = Options(Greedy(), batch_tokens=batch_tokens, batch_lines=batch_lines)
    assert texts(copier.translate(lines, options)) == lines
    assert texts(copier.translate(arriving(lines), options)) == lines


@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize("search", SEARCHES, ids=repr)
def test_workers_translate_as_one_process_does(backend: str, search: Search, subword: Subword) -> None:
    lines = [*sentences(40, seed=2), *BLANKS, "a"]
    options = Options(search, batch_tokens=100, attention=True)
    alone, together = (
        list(Translator([network(backend, subword)], subword, subword, workers=workers).translate(lines, options))
        for workers in (1, 3)
    )
    for one, other in zip(alone, together, strict=True):
        assert one.hypotheses == other.hypotheses
        assert one.attention is not None and other.attention is not None and np.array_equal(one.attention, other.attention)


def test_attention_takes_no_more_room_than_the_search(subword: Subword, monkeypatch: pytest.MonkeyPatch) -> None:
    """One long line among short ones: its length is not that of all."""
    model = network("transformer", subword)
    seen: list[tuple[int, ...]] = []
    encode = model.encode

    def watched(src: Tensor, src_lengths: Tensor) -> Memory:
        seen.append(tuple(src.shape))
        return encode(src, src_lengths)

    monkeypatch.setattr(model, "encode", watched)
    options = Options(Greedy(), attention=True, max_length=4, batch_tokens=100)
    found = list(Translator([model], subword, subword).translate(["a b " * 60, *["a"] * 40], options))
    assert all(translation.attention is not None for translation in found)
    assert all(rows * length <= 100 or rows == 1 for rows, length in seen)


def test_a_batch_holds_like_lengths_within_its_budget(subword: Subword) -> None:
    seen: list[tuple[int, ...]] = []
    real = 0

    class Spy(Copier):
        source_unit = 2

        def encode(self, src: Tensor, src_lengths: Tensor) -> Memory:
            nonlocal real
            seen.append(tuple(src.shape))
            real += int(src_lengths.sum())
            assert src.shape[1] - int(src_lengths.min()) in (0, 1)
            return super().encode(src, src_lengths)

    lines = sentences(300, seed=2)
    list(Translator([Spy(len(subword))], subword, subword).translate(lines, Options(Greedy(), batch_tokens=100)))
    assert sum(rows for rows, _ in seen) == len(lines)
    assert all(rows * length <= 100 or rows == 1 for rows, length in seen)
    assert len(seen) < len(lines) / 2 and real > 0.8 * sum(rows * length for rows, length in seen), "unlike lengths"
    seen.clear()  # rows of one word each cost as much of the vocabulary as others
    list(Translator([Spy(len(subword))], subword, subword).translate(["a"] * 100, Options(Greedy(), batch_tokens=400)))
    assert [rows for rows, _ in seen] == [25] * 4


def test_line_feeds_of_a_file_are_no_text(copier: Translator, subword: Subword, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encode = Subword.encode
    monkeypatch.setattr(Subword, "encode", lambda self, line: encoded.append(line) or encode(self, line))
    assert texts(copier.translate(["a\n", "b\r\n", "c"], Options(Greedy()), prefixes=["\n", "\r\n", ""])) == ["a", "b", "c"]
    list(copier.log_probs([("a\n", "b\r\n")]))
    assert set(encoded) == {"a", "b", "c", ""}


@pytest.mark.parametrize("search", SEARCHES, ids=repr)
def test_nothing_depends_on_company(translator: Translator, search: Search) -> None:
    """To the last bit, scores included: alone, in batches of any size, in another order, from a pipe."""
    lines = [*sentences(18, seed=4, longest=5), *sentences(5, seed=5, longest=1), ""]
    options = Options(search, max_length=8)
    alone = [next(translator.translate([line], options)) for line in lines]
    for batch_tokens in (40, 20000):
        other = replace(options, batch_tokens=batch_tokens)
        assert list(translator.translate(lines, other)) == alone
    assert list(translator.translate(lines[::-1], options))[::-1] == alone
    assert list(translator.translate(arriving(iter(lines)), replace(options, batch_lines=5))) == alone


def test_a_beam_of_one_is_greedy(translator: Translator) -> None:
    lines = sentences(20, seed=4)
    greedy = list(translator.translate(lines, Options(Greedy(), max_length=12)))
    assert list(translator.translate(lines, Options(Beam(1), max_length=12))) == greedy
    assert list(translator.translate(lines, Options(Sampling(temperature=0), max_length=12))) == greedy


def test_dropout_is_off_even_in_training(subword: Subword) -> None:
    model = network("transformer", subword)
    lines = sentences(5, seed=1)
    translator = Translator([model], subword, subword)
    before = list(translator.translate(lines, Options(Greedy(), max_length=9)))
    model.train()
    assert list(translator.translate(lines, Options(Greedy(), max_length=9))) == before
    model.train()
    pairs = [(line, line) for line in lines]
    assert list(translator.log_probs(pairs)) == list(translator.log_probs(pairs))


# Streams


def test_with_one_line_at_a_time_each_is_answered_before_the_next_is_read(copier: Translator) -> None:
    answers: list[str] = []

    def conversation() -> Iterator[str]:
        for number, line in enumerate(["a", "", "b c", "d"]):
            assert len(answers) == number, "the next line was read before the last was answered"
            yield line

    for translation in copier.translate(conversation(), Options(Greedy(), batch_lines=1)):
        answers.append(translation.text)
    assert answers == ["a", "", "b c", "d"]


def test_a_pipe_is_answered_as_it_flows(copier: Translator) -> None:
    """Two lines, then silence until both are answered: waiting for a full window would never end."""
    answered = threading.Event()

    def pipe() -> Iterator[str]:
        yield "a b"
        yield "c"
        assert answered.wait(timeout=60), "nothing came while the pipe was silent"
        yield "d"

    answers = []
    for translation in copier.translate(arriving(pipe()), Options(Greedy())):
        answers.append(translation.text)
        if len(answers) == 2:
            answered.set()
    assert answers == ["a b", "c", "d"]


def test_an_endless_input_is_read_no_further_than_needed(copier: Translator) -> None:
    read = itertools.count()
    endless = (line for line in itertools.cycle(sentences(50, seed=1)) if next(read) >= 0)
    found = texts(itertools.islice(copier.translate(endless, Options(Greedy(), batch_tokens=50)), 120))
    assert found == list(itertools.islice(itertools.cycle(sentences(50, seed=1)), 120))
    assert next(read) < 120 + LOOKAHEAD * 50


def test_output_flows_long_before_the_window_is_done(copier: Translator) -> None:
    model = copier._model
    assert isinstance(model, Scripted)
    found = copier.translate(sentences(1000, seed=1), Options(Greedy(), batch_tokens=500))
    next(found)
    first = len(model.rows)
    assert sum(1 for _ in found) == 999
    assert first < len(model.rows) / 3


@pytest.mark.parametrize("pipe", [False, True])
def test_lines_before_a_broken_one_are_answered(copier: Translator, pipe: bool) -> None:
    def broken() -> Iterator[str]:
        yield from ["a", "b b", "c"]
        raise NmtError("source.txt, line 4: not UTF-8")

    answers = []
    with pytest.raises(NmtError, match="line 4"):
        for translation in copier.translate(arriving(broken()) if pipe else broken(), Options(Greedy())):
            answers.append(translation.text)
    assert answers == ["a", "b b", "c"]


def test_a_reader_left_alone_ends() -> None:
    read = itertools.count()
    lines = arriving((str(next(read)) for _ in itertools.count()), ahead=5)
    assert next(line for line in lines if line is not None) == "0"
    lines.close()
    for thread in threading.enumerate():
        if thread.name == "reader":
            thread.join(timeout=60)
            assert not thread.is_alive()


def test_lack_of_memory_splits_the_batch() -> None:
    ran: list[int] = []

    def work(batch: list[Sentence[int]]) -> list[int]:
        ran.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [sentence.number for sentence in batch]

    lines = [(None, [Sentence([5, EOS], 2, [], 9, 2, number)]) for number in range(1, 12)]
    done = in_order(lines, work, budget=100, most_lines=None)
    assert [each.result for _, [each] in done] == list(range(1, 12))
    assert ran[0] == 11 and max(ran[1:]) <= 6


class Failing(Greedy):
    """A search that cannot be done."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        object.__setattr__(self, "error", error)

    def __call__(self, *_: object) -> list[list[Hypothesis]]:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("could not create a primitive"),
        RuntimeError("std::bad_alloc"),
    ],
)
def test_one_sentence_that_does_not_fit_is_named(copier: Translator, error: Exception) -> None:
    options = Options(Failing(error))
    with pytest.raises(NmtError, match=r"out of memory: input line 2 \(\d+ subwords\)"):
        list(copier.translate(["", "a b"], options))
    with pytest.raises(NmtError, match="out of memory: text, line 2 "):
        list(copier.translate(["", "a b"], options, where="text, line {}".format))


def test_other_errors_are_not_taken_for_lack_of_memory(copier: Translator) -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        list(copier.translate(["a"], Options(Failing(RuntimeError("shapes cannot be multiplied")))))


# Lengths


def test_length_limits(subword: Subword) -> None:
    forever = random_logits(len(subword), ends=-1000.0)
    translator = Translator([Scripted(len(subword), forever, BOS)], subword, subword)
    line = "abc def"
    source = len(subword.encode(line))
    for options, limit in (
        (Options(Beam(2)), source + 50),
        (Options(Beam(2), max_length=7), 7),
        (Options(Beam(2), max_length_ratio=1.5), -(-3 * source // 2)),
        (Options(Beam(2), max_length_ratio=0.01), 1),
    ):
        (found,) = translator.translate([line], options)
        (best,) = found.hypotheses
        assert (len(best.tokens), best.finished, found.cut) == (limit, False, True)
        assert sum(best.token_log_probs) == pytest.approx(best.log_prob) and len(best.token_log_probs) == limit


def test_no_length_limit_is_too_large() -> None:
    for options in (Options(max_length=10**19), Options(max_length_ratio=1e308)):
        assert options.limit(source=9, prefix=0) == 100_000


def test_what_was_cut_is_counted_and_said(copier: Translator) -> None:
    statistics = Statistics()
    lines = ["a b c d e f", "a", "", "a b c d e f g h"]
    for translation in copier.translate(lines, Options(Greedy(), max_source=8, max_length=5)):
        statistics.add(translation)
    assert (statistics.lines, statistics.truncated, statistics.split) == (4, 1, 0)
    assert statistics.cut == 2
    cut, truncated = statistics.messages()
    assert cut.startswith("2 lines ended at the length limit") and truncated.startswith("1 line longer")
    assert Statistics(lines=3).messages() == []


@pytest.mark.parametrize("most", [3, 8, 13])
def test_overlong_lines(copier: Translator, subword: Subword, most: int) -> None:
    line, short = " ".join(sentences(8, seed=3)), "a"
    ids = subword.encode(line)
    assert len(ids) > 3 * 13
    cut, whole = copier.translate([line, short], Options(Greedy(), max_source=most))
    assert (cut.truncated, whole.truncated, whole.text) == (True, False, short)
    assert cut.text == subword.decode(ids[:most])
    split, whole = copier.translate([line, short], Options(Beam(2), n_best=2, max_source=most, overlong="split"))
    assert (split.split, split.truncated, whole.split) == (True, False, False)
    parts = " ".join(split.source).split(" </s>")[:-1]
    assert all(len(part.split()) <= most for part in parts)
    assert [piece for piece in split.source if piece != "</s>"] == subword.pieces(ids)
    assert split.text.replace(" ", "") == line.replace(" ", "")
    if most == 13:  # longer than any word, so no word is cut
        assert split.text == line
    for hypothesis in split.hypotheses:
        assert sum(hypothesis.token_log_probs) == pytest.approx(hypothesis.log_prob)
        assert len(hypothesis.token_log_probs) == len(hypothesis.tokens) + 1
    assert split.hypotheses[0].score >= split.hypotheses[1].score
    answers = []
    with pytest.raises(NmtError, match=rf"line 2 has {len(ids)} subwords.*--max-source"):
        for translation in copier.translate([short, line, short], Options(Greedy(), max_source=most, overlong="error")):
            answers.append(translation.text)
    assert answers == [short]


def test_a_line_of_a_thousand_words_amid_short_ones(translator: Translator) -> None:
    lines = ["a b", " ".join(sentences(250, seed=1)), "c"]
    found = list(translator.translate(lines, Options(Greedy(), max_length=4)))
    assert [translation.truncated for translation in found] == [False, True, False]
    assert found[2] == next(translator.translate(["c"], Options(Greedy(), max_length=4)))


# N-best, prefixes, ensembles


@pytest.mark.parametrize("search", [Beam(5), Beam(5, 1.0), Sampling(samples=5)], ids=repr)
def test_n_best_is_exactly_n_best_first(translator: Translator, search: Search) -> None:
    lines = [*sentences(12, seed=6), ""]
    for n_best in (1, 3, 5):
        for translation in translator.translate(lines, Options(search, n_best=n_best, max_length=2)):
            rows = translation.to_json(7)
            assert [(row["line"], row["rank"]) for row in rows] == [(7, rank) for rank in range(n_best)]
            assert set(rows[0]) == {"line", "rank", "text", "score", "logprob", "tokens", "finished"}
            scores = [hypothesis.score for hypothesis in translation.hypotheses]
            assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("search", [Beam(80), Beam(80, 1.0, no_repeat_ngram=1)], ids=repr)
def test_a_list_is_filled_up_where_fewer_hypotheses_exist(translator: Translator, search: Search) -> None:
    lines = [*sentences(4, seed=6), ""]
    options = Options(search, n_best=80, max_length=1)
    *found, blank = translator.translate(lines, options)
    for translation in found:
        real = [each for each in translation.hypotheses if each.exists]
        assert 0 < len(real) < 80 == len(translation.hypotheses)
        assert translation.hypotheses[len(real) :] == (ABSENT,) * (80 - len(real))
        rows = translation.to_json(0)
        assert [row["rank"] for row in rows] == list(range(80))
        assert (rows[-1]["score"], rows[-1]["logprob"], rows[-1]["text"], rows[-1]["finished"]) == (None, None, "", False)
        json.dumps(rows, allow_nan=False)
    assert blank.hypotheses == (EMPTY,) * 80
    (distinct,) = translator.translate(lines[:1], replace(options, unique=True))
    assert all(each.exists for each in distinct.hypotheses)
    (split,) = translator.translate([" ".join(lines)], replace(options, overlong="split", max_source=4))
    assert len(split.hypotheses) == 80


def test_a_lone_surrogate_is_named_by_its_line(copier: Translator) -> None:
    with pytest.raises(NmtError, match="input line 2 holds a lone surrogate"):
        list(copier.translate(["a", "b\udcff"]))
    with pytest.raises(NmtError, match="the prefix of input line 2 holds a lone surrogate"):
        list(copier.translate(["a", "b"], prefixes=["", "\ud800"]))
    with pytest.raises(NmtError, match="target line 2 holds a lone surrogate"):
        list(copier.log_probs([("a", "b"), ("c", "\udcff")]))
    with pytest.raises(NmtError, match="source line 1 holds a lone surrogate"):
        list(copier.log_probs([("\udcff", "b")]))


def test_the_first_of_n_is_the_only_one_of_one(translator: Translator) -> None:
    lines = sentences(12, seed=6)
    many, one = (list(translator.translate(lines, Options(Beam(5, 0.6), n_best=n, max_length=9))) for n in (5, 1))
    assert [each.hypotheses[0] for each in many] == [each.hypotheses[0] for each in one]


def test_equal_texts_can_be_dropped(subword: Subword) -> None:
    # Two spellings of one text: "a" and "b" as two pieces or one do not matter to a search.
    translator = Translator([Scripted(len(subword), random_logits(len(subword), ends=3.0), BOS)], subword, subword)
    options = Options(Sampling(samples=40, temperature=0.7), n_best=40)
    for line in ("a", "b"):
        (every,) = translator.translate([line], options)
        (distinct,) = translator.translate([line], replace(options, unique=True))
        kept = [hypothesis.text for hypothesis in distinct.hypotheses]
        assert kept == list(dict.fromkeys(hypothesis.text for hypothesis in every.hypotheses))
        assert len(kept) < 40
        (first,) = translator.translate([line], replace(options, unique=True, n_best=2))
        assert first.hypotheses == distinct.hypotheses[:2]


@pytest.mark.parametrize("search", [Greedy(), Beam(3)], ids=repr)
@pytest.mark.parametrize("batch_tokens", [1, 4000])
def test_prefixes(translator: Translator, subword: Subword, search: Search, batch_tokens: int) -> None:
    lines = sentences(12, seed=7)
    options = Options(search, max_length=12, batch_tokens=batch_tokens)
    free = list(translator.translate(lines, options))
    assert list(translator.translate(lines, options, prefixes=[""] * 12)) == free
    forced = ["abc" if number % 3 == 0 else "j i h" if number % 3 == 1 else "" for number in range(12)]
    found = list(translator.translate(lines, options, prefixes=iter(forced)))
    for prefix, plain, translation in zip(forced, free, found, strict=True):
        assert translation.text.startswith(prefix)
        assert prefix or translation == plain


def test_the_beginning_of_the_free_translation_changes_nothing(copier: Translator) -> None:
    lines = sentences(12, seed=7)
    begun = [" ".join(line.split()[:2]) for line in lines]
    options = Options(Greedy())
    assert list(copier.translate(lines, options, prefixes=begun)) == list(copier.translate(lines, options))


def test_impossible_prefixes_are_reported(copier: Translator) -> None:
    with pytest.raises(NmtError, match=r"line 2.*☃"):
        list(copier.translate(["a", "b"], Options(), prefixes=["a", "☃"]))
    with pytest.raises(NmtError, match=r"line 1 has .* subwords, the limit is 1"):
        list(copier.translate(["a"], Options(max_length=1), prefixes=["a b c"]))
    with pytest.raises(NmtError, match="line 2 has no prefix"):
        list(copier.translate(["a", "b"], Options(), prefixes=["a"]))
    with pytest.raises(NmtError, match="more prefixes than the 1 input"):
        list(copier.translate(["a"], Options(), prefixes=["a", ""]))


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_a_model_twice_is_the_model(subword: Subword, backend: str) -> None:
    model = network(backend, subword)
    lines = sentences(20, seed=8)
    options = Options(Beam(3), n_best=3, max_length=10)
    one = list(Translator([model], subword, subword).translate(lines, options))
    two = list(Translator([model, model], subword, subword).translate(lines, options))
    assert one == two


def test_no_cache_is_the_same(subword: Subword) -> None:
    for backend in BACKENDS:
        model = network(backend, subword)
        lines = sentences(10, seed=8)
        options = Options(Beam(3), n_best=3, max_length=8)
        cached = list(Translator([model], subword, subword).translate(lines, options))
        plain = list(Translator([model], subword, subword, cache=False).translate(lines, options))
        assert [[each.text for each in one.hypotheses] for one in cached] == [
            [each.text for each in one.hypotheses] for one in plain
        ]


def test_models_on_disk(tmp_path: Path, subword: Subword) -> None:
    recipe = Recipe("bpe", 50, "nmt_nfkc", lowercase=False, character_coverage=1.0, byte_fallback=False)
    other = train_subword(sentences(50, seed=9), recipe, "others").subword
    models = [network("rnn", subword, seed) for seed in (1, 2)]
    for name, model, vocabulary in (("a", models[0], subword), ("b", models[1], subword), ("c", network("rnn", other), other)):
        config = {
            "model": {"backend": "rnn", "layers": 1, "width": 16, "dropout": 0.5},
            "vocabulary": {"source": len(vocabulary), "target": len(vocabulary), "shared": True},
            "languages": [None, None],
        }
        (tmp_path / name).mkdir()
        save_model(tmp_path / name, model, config, vocabulary, vocabulary)
    lines, options = sentences(10, seed=1), Options(Beam(2), max_length=8)
    loaded = Translator.load(tmp_path / "a", [tmp_path / "b"], device="cpu")
    assert list(loaded.translate(lines, options)) == list(Translator(models, subword, subword).translate(lines, options))
    with pytest.raises(NmtError, match="name of a model is empty"):
        Translator.load("", device="cpu")
    with pytest.raises(NmtError, match=r"c: its source vocabulary \(\d+ subwords\) is not that of .*a"):
        Translator.load(str(tmp_path / "a"), [str(tmp_path / "c")], device="cpu")


# Forced decoding


@pytest.mark.parametrize("search", [Greedy(), Beam(4, 0.6), Sampling(samples=3)], ids=repr)
def test_forced_log_probs_are_those_of_the_search(translator: Translator, subword: Subword, search: Search) -> None:
    lines = sentences(15, seed=10)
    options = Options(search, n_best=1 if search == Greedy() else 3, max_length=20)
    by_line = [translation.hypotheses for translation in translator.translate(lines, options)]
    ids = {piece: id for id, piece in enumerate(subword.pieces(range(len(subword))))}
    pairs, found = [], []
    for line, hypotheses in zip(lines, by_line, strict=True):
        for hypothesis in hypotheses:
            pairs.append((subword.encode(line), [ids[piece] for piece in hypothesis.tokens]))
            found.append(hypothesis.token_log_probs)
    for (_, target), (given, forced), searched in zip(pairs, translator.force(pairs), found, strict=True):
        assert given == target and len(forced) == len(target) + 1
        assert list(forced)[: len(searched)] == pytest.approx(list(searched), abs=1e-5)
        assert sum(forced[: len(searched)]) == pytest.approx(sum(searched), abs=1e-4)


def test_log_probs_do_not_depend_on_batching(translator: Translator) -> None:
    generator = random.Random(3)
    lines = [*sentences(30, seed=11), "", "a"]
    pairs = [(line, generator.choice([*lines, " ".join(lines[:9])])) for line in lines]
    alone = [next(translator.log_probs([pair])) for pair in pairs]
    for batch_tokens in (1, 300, 50000):
        found = list(translator.log_probs(pairs, batch_tokens))
        assert [each.tokens for each in found] == [each.tokens for each in alone]
        for one, many in zip(alone, found, strict=True):
            assert many.log_prob == pytest.approx(one.log_prob, abs=1e-5)
            assert sum(many.token_log_probs) == pytest.approx(many.log_prob)


def test_log_probs_by_hand(subword: Subword) -> None:
    """Of a network whose logits are known, by the definition."""
    script = random_logits(len(subword))
    translator = Translator([Scripted(len(subword), script, BOS)], subword, subword)
    pairs = [("a b", "c"), ("", "a"), ("abc", ""), ("d e", "f g h")]
    for (source, target), found in zip(pairs, translator.log_probs(iter(pairs)), strict=True):
        src, labels = (*subword.encode(source), EOS), (*subword.encode(target), EOS)
        rows = [torch.tensor(script(src, labels[:t]), dtype=torch.float64).log_softmax(0)[labels[t]] for t in range(len(labels))]
        assert found.tokens == tuple(subword.pieces(labels))
        assert found.token_log_probs == pytest.approx([float(row) for row in rows], abs=1e-5)
        assert found.log_prob == pytest.approx(float(sum(rows)), abs=1e-5)


# Attention


def test_attention_is_that_of_the_best_hypothesis(translator: Translator) -> None:
    lines = [*sentences(12, seed=12), ""]
    options = Options(Beam(3), max_length=10, attention=True)
    found = list(translator.translate(lines, options))
    for translation in found[:-1]:
        assert translation.attention is not None
        assert translation.attention.shape == (len(translation.hypotheses[0].token_log_probs), len(translation.source))
        assert translation.attention.sum(1) == pytest.approx(np.ones(len(translation.attention)), abs=1e-5)
    assert found[-1].alignment() == []
    again = translator.translate(lines, replace(options, batch_tokens=1))
    assert all(np.array_equal(one.attention, other.attention) for one, other in zip(found, again, strict=True))
    assert all(translation.attention is None for translation in translator.translate(lines, Options(Greedy(), max_length=2)))


@pytest.mark.parametrize("overlong", ["truncate", "split"])
def test_a_copy_is_aligned_with_itself(copier: Translator, overlong: str) -> None:
    lines = sentences(10, seed=13, longest=12)
    options = Options(Greedy(), attention=True, max_source=15, overlong=overlong)
    for line, translation in zip(lines, copier.translate(lines, options), strict=True):
        assert translation.alignment() == [(word, word) for word in range(len(translation.text.split()))]
        if overlong == "split":
            assert len(translation.alignment()) == len(line.split())


def test_a_network_without_attention_is_refused_at_once(subword: Subword) -> None:
    translator = Translator([Scripted(len(subword), random_logits(len(subword)), BOS)], subword, subword)
    with pytest.raises(NmtError, match="attention"):
        translator.translate(iter([]), Options(attention=True))


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["▁Ein", "▁Ha", "us", ".", "</s>"], [[0], [1, 2, 3]]),
        (["▁", "a", "b", "▁", "c", "</s>"], [[0, 1, 2], [3, 4]]),
        (["▁", "▁a", "▁", "</s>"], [[0, 1]]),
        (["▁a", "</s>", "▁b", "</s>"], [[0], [2]]),
        (["us", "▁b"], [[0], [1]]),
        (["</s>"], []),
    ],
)
def test_words_of_pieces(pieces: list[str], expected: list[list[int]]) -> None:
    assert words(pieces) == expected


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
def test_words_are_those_of_the_text(kind: str) -> None:
    lines = [*sentences(100, seed=0), "das ist gut , oder ? ja ."]
    recipe = Recipe(kind, 80, "nmt_nfkc", lowercase=False, character_coverage=1.0, byte_fallback=False)
    subword = train_subword(lines, recipe, "letters").subword
    for line in [*lines, "  two   spaces ", "☃ unknown ☃☃"]:
        pieces = subword.pieces(subword.encode(line))
        assert len(words(pieces)) == len(line.split())
        joined = ["".join(pieces[index] for index in word).replace("▁", "") for word in words(pieces)]
        if "<unk>" not in pieces:
            assert joined == line.split()


def test_links_add_up_the_weights_of_pieces() -> None:
    # The second target word's strongest single weight is at "a", but "b c" together have more.
    attention = np.array([[0.9, 0.0, 0.0, 0.1], [0.4, 0.3, 0.2, 0.1], [0.3, 0.3, 0.2, 0.2], [0.0, 0.0, 0.0, 1.0]], np.float32)
    links = align(["▁a", "▁b", "c", "</s>"], ["▁x", "▁y", "z"], attention)
    assert links == [(0, 0), (1, 1)] and pharaoh(links) == "0-0 1-1"
    assert align(["</s>"], ["▁x"], np.ones((2, 1), np.float32)) == []


# Options and devices


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 0}, "--n-best"),
        ({"n_best": 6}, "--n-best 6 is more than the 5"),
        ({"n_best": 2, "search": Greedy()}, "more than the 1 hypothesis "),
        ({"n_best": 4, "search": Sampling(samples=3)}, "more than the 3"),
        ({"max_length": 0}, "--max-length must be at least 1"),
        ({"max_length": 5, "max_length_ratio": 2.0}, "exclude"),
        ({"max_length_ratio": 0.0}, "--max-length-ratio"),
        ({"max_length_ratio": float("nan")}, "--max-length-ratio"),
        ({"batch_tokens": 0}, "--batch-tokens"),
        ({"batch_lines": 0}, "--batch-lines"),
        ({"max_source": -1}, "--max-source"),
        ({"overlong": "drop"}, "--overlong"),
    ],
)
def test_impossible_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Options(**options)


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("cpu") == choose_device("auto") == torch.device("cpu")
    for name in ("cuda", "cuda:0"):
        with pytest.raises(NmtError, match="no GPU"):
            choose_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(NmtError, match="only 2 GPUs"):
        choose_device("cuda:2")
    for name in ("gpu", "cuda:", "cuda:-1", "", "mps"):
        with pytest.raises(UsageError, match="--device"):
            choose_device(name)


def test_threads() -> None:
    before = torch.get_num_threads()
    try:
        set_threads(2)
        assert torch.get_num_threads() == 2
        set_threads(None)
        assert torch.get_num_threads() == 2
        with pytest.raises(UsageError, match="--threads"):
            set_threads(0)
        with pytest.raises(UsageError, match="--threads"):
            set_threads(100_000)
    finally:
        torch.set_num_threads(before)


def test_importing_the_package_is_light() -> None:
    program = (
        "import sys, nmt; assert 'torch' not in sys.modules and 'sacrebleu' not in sys.modules;"
        "from nmt import NmtError; assert 'torch' not in sys.modules;"
        "from nmt import Options, Translator; assert Translator.__module__ == 'nmt.translate'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="Traduttore"):
        __import__("nmt").Traduttore  # noqa: B018


def saved(place: Path, backend: str, subword: Subword) -> Path:
    """An untrained model on disk."""
    config = {
        "model": {"backend": backend, "layers": 1, "width": 16, "dropout": 0.5},
        "vocabulary": {"source": len(subword), "target": len(subword), "shared": True},
        "languages": [None, None],
    }
    place.mkdir()
    save_model(place, network(backend, subword), config, subword, subword)
    return place


@pytest.mark.parametrize("search", [Greedy(), Beam(3)], ids=repr)
def test_bfloat16_changes_log_probabilities_by_its_rounding_only(
    tmp_path: Path, subword: Subword, backend: str, search: Search
) -> None:
    """A bfloat16 has 8 bits: what a network of one layer makes of them is off by some hundredths."""
    path = saved(tmp_path / "model", backend, subword)
    plain, rounded = (Translator.load(path, device="cpu", precision=each) for each in ("float32", "bfloat16"))
    lines = sentences(20, seed=3)
    pairs = list(zip(lines, sentences(20, seed=4), strict=True))
    scored = zip(plain.log_probs(pairs), rounded.log_probs(pairs), strict=True)
    differences = np.concatenate([np.subtract(one.token_log_probs, other.token_log_probs) for one, other in scored])
    assert 0 < np.abs(differences).max() < 0.1 and abs(differences.mean()) < 0.01
    for model in (rounded, Translator.load(path, [path], device="cpu", precision="bfloat16")):
        found = [translation.hypotheses[0] for translation in model.translate(lines, Options(search))]
        values = torch.tensor([value for hypothesis in found for value in hypothesis.token_log_probs], dtype=torch.float64)
        assert torch.equal(values.float().double(), values) and not torch.equal(values.bfloat16().double(), values)


def test_bfloat16_is_refused_on_a_gpu_without_it(tmp_path: Path, subword: Subword, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "model", "rnn", subword)
    monkeypatch.setattr("nmt.translate.choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr("nmt.translate._load", lambda path, device: load_model(path))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Abacus")
    with pytest.raises(NmtError, match="Abacus cannot compute in it; use float32"):
        Translator.load(path, precision="bfloat16")


def test_int8_is_refused_where_it_would_be_slow(tmp_path: Path, subword: Subword, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "model", "rnn", subword)
    monkeypatch.setattr("nmt.device.available", lambda: False)
    with pytest.raises(NmtError, match="--precision int8 is for CPUs with"):
        Translator.load(path, device="cpu", precision="int8")
    monkeypatch.setattr("nmt.device.available", lambda: True)
    plain, integers = (Translator.load(path, device="cpu", precision=each) for each in ("float32", "int8"))
    (one,), (other,) = (list(each.translate(["a b c"], Options(Greedy()))) for each in (plain, integers))
    assert one.text and 0 < abs(one.hypotheses[0].log_prob - other.hypotheses[0].log_prob) < 1
