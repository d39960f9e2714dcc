"""The page of a run: all that the run holds is on it, what is missing has a reason, and no text is taken for markup."""

import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from nmt.cli import main
from nmt.data.shards import Dataset
from nmt.data.text import read_lines
from nmt.report.charts import COLORS
from nmt.report.gather import gather
from nmt.report.page import visible
from nmt.report.samples import MOST_BINS, Bin, groups, translated
from nmt.run import opened, read_log
from tests.command_line import out, refused
from tests.toys import QUIET, config, dataset, events, run, words

ODD = [
    "<b>bold</b> & 'quoted' \"twice\" </script><script>alert(1)</script>",
    "{{ runs }} {% raw %} ▁ </s> <s> <pad>",
    "مرحبا بالعالم، كيف الحال؟",
    "今天天气很好。",
    "नमस्ते दुनिया \u200d☃ \x01\x1b[31m",
    "long " + "x" * 3000,
]
"""Lines that a careless page would break on."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data whose validation text is partly odd, with a run of each kind trained on it, as a person would name them."""
    place = tmp_path_factory.mktemp("report")
    pairs = words(90, seed=1)
    pairs += [(line, line.upper()) for line in ODD] + words(24, seed=2)
    data = dataset(place / "text", pairs, valid=30, tokenizer="bpe", vocab_size=200, source_lang="en", target_lang="de")
    for backend in ("transformer", "rnn"):
        settings = config(backend, max_steps=12, valid_every=5, save_every=6, log_every=2, batch_tokens=4000)
        run(data, place / backend, settings)
    return place


@pytest.fixture
def copy(place: Path, tmp_path: Path) -> Path:
    """A run to be harmed, with its data where it was trained."""
    shutil.copytree(place / "text", tmp_path / "text")
    shutil.copytree(place / "transformer", tmp_path / "run")
    return tmp_path / "run"


class Page(HTMLParser):
    """A page as a browser reads it: its text, the elements, their attributes; a failure where tags do not match."""

    VOID = ("meta", "link", "br", "img", "input", "hr")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag == "p":
            self.texts.append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if "p" in self.open:
            self.texts[-1] += data

    def attributes(self, name: str) -> Iterator[str]:
        return (value for _, attributes in self.seen if (value := attributes.get(name)) is not None)


def page(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The page on standard output."""
    return out(capsys, "report", *words, "-o", "-", "--threads", "1", "--quiet")


def missing(text: str) -> list[str]:
    """What a page says it lacks."""
    found = re.search(r'<section class="missing".*?</section>', text, re.DOTALL)
    return re.findall(r"<li>(.*?)</li>", found[0], re.DOTALL) if found else []


def test_all_text_is_on_the_page_as_it_is_and_nothing_is_fetched(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.report.page.SHOWN", 30)  # all
    text = page(capsys, place / "transformer")
    found = Page(text)
    assert {visible(line.upper()) for line in ODD} <= set(found.texts)
    assert visible(ODD[2]) in found.texts and visible(ODD[3]) in found.texts  # which the network reads as <unk>
    assert text.count("<script>") == 1 and "alert(1)</script>" not in text.replace("&lt;/script&gt;", "")
    for name in ("src", "href", "xlink:href"):
        assert all(value.startswith(("#", "data:")) for value in found.attributes(name))
    assert not re.search(r"url\((?!#)|@import", text)
    assert missing(text) == []
    ids = list(found.attributes("id"))
    assert len(ids) == len(set(ids))
    assert "\x01" not in text and "\x1b" not in text


def test_curves_are_the_log(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readings = [json.loads(each) for each in Page(page(capsys, place / "rnn", "--lines", "0")).attributes("data-reading")]
    assert len(readings) == 6  # loss, nll, scores, rate, norm, speed
    trained, validated = events(place / "rnn", "train"), events(place / "rnn", "valid")
    expected = [
        [(trained, "loss")],
        [(trained, "nll"), (validated, "nll")],
        [(validated, "bleu"), (validated, "chrf")],
        [(trained, "lr")],
    ]
    for reading, lines in zip(readings, expected, strict=False):
        for (at, heights), (logged, key) in zip(reading["points"], lines, strict=True):
            assert at == [event["step"] for event in logged]
            assert heights == pytest.approx([event[key] for event in logged], rel=1e-3)
    norms = [sorted(event["grad_norms"]) for event in trained]
    assert readings[4]["points"][0][1] == pytest.approx([each[round((len(each) - 1) / 2)] for each in norms], rel=1e-3)


def test_the_same_run_gives_the_same_page(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert page(capsys, place / "rnn") == page(capsys, place / "rnn")


def test_a_page_that_exists_is_kept(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "page.html"
    words = ("report", place / "rnn", "--lines", "0", "-o", target)
    assert main([str(word) for word in words]) == 0
    capsys.readouterr()
    before = target.read_bytes()
    code, message = refused(capsys, *words)
    assert code == 1 and "--overwrite" in message and target.read_bytes() == before
    target.write_text("old")
    assert main([*(str(word) for word in words), "--overwrite"]) == 0
    assert target.read_bytes() == before


def test_scores_by_length_are_those_of_the_lines(place: Path) -> None:
    found = translated(gather(place / "rnn", "rnn"), None, 25, "cpu", 1, QUIET)
    assert found is not None
    data = place / "text" / "data"
    assert found.source == list(read_lines(data / "valid.source.txt"))[:25]
    (group,) = groups([found])
    bins = group.bins()
    assert len(bins) <= MOST_BINS and sorted(line for each in bins for line in each.lines) == list(range(25))
    for each in bins:
        assert all(each.least <= len(found.source[line].split()) <= each.most for line in each.lines)
        texts = [found.translations[line].text for line in each.lines]
        references = [found.reference[line] for line in each.lines]
        assert found.scores(each.lines)["BLEU"] == BLEU(force=True).corpus_score(texts, [references]).score
    worst = group.worst(25)
    assert [found.chrf[line] for line in worst] == sorted(found.chrf) and group.worst(3) == worst[:3]


def test_an_empty_line_of_an_empty_reference_is_not_bad(place: Path, tmp_path: Path) -> None:
    pairs = [*words(50, seed=7), ("", ""), ("a", ""), (" ", " "), ("", "b")]
    data = dataset(tmp_path / "text", pairs, valid=8)
    run(data, tmp_path / "run", config("rnn", max_steps=2))
    found = translated(gather(tmp_path / "run", "run"), None, 8, "cpu", 1, QUIET)
    assert found is not None and sorted(groups([found])[0].worst(8)) == [0, 1, 2, 3, 5, 7]


def test_lines_of_one_length_are_one_bin() -> None:
    assert Bin(3, 3, [0]).label == "3" and Bin(3, 5, [0]).label == "3–5"


def test_several_runs_are_set_side_by_side(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = page(capsys, place / "transformer", place / "rnn")
    Page(text)
    settings = [json.loads((place / name / "config.json").read_text()) for name in ("transformer", "rnn")]
    flat = [
        {f"{table}.{key}": each[table][key] for table in ("model", "data", "train") for key in each[table]} for each in settings
    ]
    differing = {key for key in flat[0].keys() | flat[1].keys() if flat[0].get(key, "–") != flat[1].get(key, "–")}
    section = re.search(r'<section id="configuration">.*?</section>', text, re.DOTALL)
    assert section is not None
    assert set(re.findall(r'<th scope="row">([^<]*)</th>', section[0])) == differing
    assert set(re.findall(r"<dt>([^<]*)</dt>", section[0])) == (flat[0].keys() | flat[1].keys()) - differing
    for sentence in re.findall(r'<article class="sentence">.*?</article>', text, re.DOTALL):
        assert sentence.count('class="source"') == 1 and sentence.count('class="target"') == 2
    assert "Sentences that differ most" in text


def test_the_metric_that_chose_each_model_is_marked(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Dataset.open(place / "text" / "data")
    run(data, tmp_path / "by_accuracy", config("rnn", max_steps=2, valid_every=2, metric="accuracy"))
    text = page(capsys, place / "rnn", tmp_path / "by_accuracy", "--lines", "0")
    rows = re.findall(r'<tr><th scope="row">validation (\w+)</th><td>(.*?)</td><td>(.*?)</td></tr>', text)
    marked = {metric: ["best, update" in cell for cell in cells] for metric, *cells in rows}
    assert marked == {"BLEU": [True, False], "accuracy": [False, True], "chrF": [False, False], "nll": [False, False]}


def test_runs_of_other_data_have_parts_of_their_own(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = dataset(tmp_path / "other", words(50, seed=7), valid=12)
    run(data, tmp_path / "third", config("rnn", max_steps=2))
    text = page(capsys, place / "rnn", tmp_path / "third")
    Page(text)
    assert "Translations of rnn<" in text and "Translations of third<" in text


def test_runs_of_one_name_are_told_apart(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        shutil.copytree(place / "rnn", tmp_path / name / "run")
    assert "a/run, b/run – nmt report" in page(capsys, tmp_path / "a" / "run", tmp_path / "b" / "run", "--lines", "0")


def test_colours_begin_again_after_the_last(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"run{number}" for number in range(len(COLORS) + 1)]
    for name in names:
        (tmp_path / name).symlink_to(place / "rnn")
    text = page(capsys, *(tmp_path / name for name in names), "--lines", "0")
    defined = re.findall(r"(--run\d+): light-dark", text)
    assert len(defined) == len(COLORS) and set(re.findall(r"var\((--run\d+)\)", text)) == set(defined)
    swatches = re.findall(r"var\(--run(\d+)\)", text[text.index("<h1>") : text.index("</h1>")])
    assert swatches == [*map(str, range(len(COLORS))), "0"]


# Runs that are not whole


def test_a_run_that_has_only_begun(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "log.jsonl").unlink()
    (copy / "model.safetensors").unlink()
    text = page(capsys, copy)
    Page(text)
    curves, scores, translations = missing(text)
    assert "after update 2." in curves and "after update 5." in scores and "nothing was validated" in translations
    assert "data-reading" not in text and "train.warmup" in text


def test_a_run_that_was_killed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(copy / "checkpoints" / "step-12")
    log = copy / "log.jsonl"
    log.write_bytes(log.read_bytes() + b'{"event": "train", "st')
    (told,) = missing(page(capsys, copy))
    assert "--resume goes on after update 6, and loses" in told and "up to 12" in told


def test_a_run_in_training_is_not_called_stopped(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(copy / "checkpoints" / "step-12")
    with opened(copy, resume=True, overwrite=False):
        text = page(capsys, copy, "--lines", "0")
    assert "in training</p>" in text and missing(text) == []


def test_a_damaged_line_of_the_log_is_named_and_those_before_it_are_drawn(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = copy / "log.jsonl"
    first, *rest = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(first + b'{"event": "train"}\n' + b"".join(rest))
    text = page(capsys, copy, "--lines", "0")
    assert any("line 2: is damaged" in each for each in missing(text))
    readings = [json.loads(each) for each in Page(text).attributes("data-reading")]
    assert {tuple(reading["points"][0][0]) for reading in readings} == {(2,)}


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        *(("train", key, value) for key in ("loss", "lr") for value in ('"<script>"', "[1]", "1e400", "NaN", "true", "9" * 400)),
        *(("train", "grad_norms", value) for value in ("3", "null", '["x"]', "[1, [2]]")),
        *(("train", key, "null") for key in ("step", "epoch", "tokens_per_second", "skipped", "seconds")),
        *(("valid", key, "[1]") for key in ("step", "nll", "ppl", "bleu", "chrf", "best")),
    ],
)
def test_a_line_that_training_cannot_have_written_is_damaged(kind: str, key: str, value: str, copy: Path) -> None:
    log = copy / "log.jsonl"
    lines = log.read_text().splitlines()
    number = max(n for n, line in enumerate(lines) if json.loads(line)["event"] == kind)
    lines[number] = json.dumps({**json.loads(lines[number]), key: "HERE"}).replace('"HERE"', value)
    log.write_text("".join(f"{line}\n" for line in lines))
    events, damage = read_log(copy)
    assert len(events) == number and damage is not None and f"line {number + 1}: is damaged" in damage


def test_the_largest_numbers_of_a_log_are_drawn(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = copy / "log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines[::2]:
        line.update({key: sign * 9.9e304 for key, sign in (("loss", 1), ("nll", -1), ("lr", 1)) if key in line})
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    text = page(capsys, copy, "--lines", "0")
    assert missing(text) == [] and len(list(Page(text).attributes("data-reading"))) == 6


def test_a_run_without_its_data(copy: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(copy.parent / "text")
    text = page(capsys, copy)
    (told,) = missing(text)
    assert "no longer" in told and "--data" in told and "Sample translations" not in text
    assert page(capsys, copy, "--data", place / "text" / "data").count('class="sentence"') > 8


def test_data_moved_along_with_the_run_is_found(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "elsewhere").mkdir()
    shutil.move(copy, tmp_path / "elsewhere" / "run")
    shutil.move(tmp_path / "text", tmp_path / "elsewhere" / "text")
    assert missing(page(capsys, tmp_path / "elsewhere" / "run")) == []


def test_other_data_is_used_and_told(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = dataset(tmp_path / "other", words(50, seed=7), valid=12)
    text = page(capsys, copy, "--data", other.path)
    (told,) = missing(text)
    assert "is not the data" in told and "All 12 lines of" in text
    assert "The first 11 of 12 lines of" in page(capsys, copy, "--data", other.path, "--lines", "11")


def test_without_a_tokenizer_all_but_bleu_is_shown(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dataset(tmp_path / "text", words(50, seed=7), valid=12, target_lang="th")
    run(data, tmp_path / "thai", config("rnn", max_steps=2, valid_every=2))
    monkeypatch.setattr("nmt.tokenizers.PACKAGES", {"char": ("no_such_module", "sacrebleu[th]")})
    text = page(capsys, tmp_path / "thai", place / "rnn")
    (told,) = missing(text)
    assert "thai" in told and "sacrebleu[th]" in told
    of_the_thai, of_the_other = re.findall(r"lines of the validation text:(.*?)</p>", text, re.DOTALL)
    assert "BLEU" not in of_the_thai and "chrF" in of_the_thai and "BLEU" in of_the_other and "chrF" in of_the_other
    titles = re.findall(r"<h3>(.*?) <small>by the length", text)
    assert titles == ["chrF", "BLEU", "chrF"] and text.count('class="sentence"') > 16


@pytest.mark.parametrize("content", [None, "{}", "[]", "not JSON", '{"pairs": 3}', {"versions": None}, {"pairs": {"read": "x"}}])
def test_a_run_without_a_report_of_its_data(
    content: str | dict[str, object] | None, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads((copy / "report.json").read_text())
    (copy / "report.json").unlink()
    if content is not None:
        (copy / "report.json").write_text(content if isinstance(content, str) else json.dumps({**whole, **content}))
    text = page(capsys, copy, "--lines", "0")
    assert any("report of preprocess" in each for each in missing(text)) and "Nothing is known of the data" in text


def test_a_run_without_validation_and_without_attention(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = dataset(tmp_path / "none", words(50, seed=3), valid=0)
    run(data, tmp_path / "run", config("rnn", max_steps=2))
    assert any("no validation set" in each for each in missing(page(capsys, tmp_path / "run")))
    other = dataset(tmp_path / "some", words(50, seed=3), valid=12)
    run(other, tmp_path / "plain", config("rnn", {"attention": "none"}, max_steps=2))
    text = page(capsys, tmp_path / "plain")
    (told,) = (each for each in missing(text) if "attention" in each)
    assert told == "Attention cannot be shown: the model has no attention (attention = none)." and 'class="sentence"' in text


def test_a_run_that_goes_on_has_one_curve(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = copy.parent / "text" / "data"
    assert main(["train", str(data), "-o", str(copy), "--resume", "--max-steps", "15", "--quiet"]) == 0
    text = page(capsys, copy, "--lines", "0")
    reading = json.loads(next(Page(text).attributes("data-reading")))
    assert reading["points"][0][0] == [2, 4, 6, 8, 10, 12, 14, 15]


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("--data", "nowhere"), 1, "nowhere: no such directory"),
        (("--data", "RUN"), 1, "not a directory that nmt preprocess made"),
        (("--data", "EMPTY"), 1, "has no validation set"),
        (("--device", "cuda:99"), 1, "--device cuda:99"),
        (("--device", "abacus"), 2, "--device"),
        (("--threads", "1000000"), 2, "--threads"),
    ],
)
def test_what_cannot_be_done_as_asked_is_an_error(
    words: tuple[str, str], code: int, named: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "EMPTY" in words:
        dataset(tmp_path / "empty", [("a", "b")] * 9, valid=0)
    places: dict[str, str | Path] = {"RUN": place / "rnn", "EMPTY": tmp_path / "empty" / "data"}
    given = [places.get(word, word) for word in words]
    found = refused(capsys, "report", place / "rnn", "-o", tmp_path / "page.html", *given)
    assert found[0] == code and named in found[1]
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("what", ["data", "checkpoint", "nothing", "file"])
def test_only_runs_have_a_page(what: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = {
        "data": place / "text" / "data",
        "checkpoint": place / "rnn" / "checkpoints" / "step-12",
        "nothing": tmp_path / "nothing",
        "file": place / "rnn" / "config.json",
    }[what]
    code, message = refused(capsys, "report", path, "-o", tmp_path / "page.html")
    assert code == 1 and str(path) in message
    assert not (tmp_path / "page.html").exists()
