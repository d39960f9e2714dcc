"""The page of a run as a browser shows it: no error, no empty chart, readable in both themes and at any width.

It needs a Chromium on the machine, and is left out where there is none.
"""

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from nmt.cli import main
from tests.toys import config, dataset, run, words

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'nmt[dev]'")

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FEWEST_PIXELS = 40
"""That a line or the bars of a run colour."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser on this machine: none of {', '.join(NAMES)} is installed")
    options = ["--disable-gpu", "--disable-background-networking", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=options)
        yield started
        started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of one run, of two, of two with long names, and of one with nothing to show yet."""
    place = tmp_path_factory.mktemp("browser")
    odd = [("مرحبا بالعالم " * 3, "今天天气很好。" * 40), ("x" * 400, "<b>&amp;</b>" * 60)]
    copied = [(line, line) for line, _ in words(180, seed=1)]
    data = dataset(place / "text", [*copied[:150], *odd, *copied[150:]], valid=32, tokenizer="bpe", vocab_size=200)
    for backend in ("transformer", "rnn"):  # so far that no BLEU is 0: a chart of it is empty
        run(data, place / backend, config(backend, max_steps=80, valid_every=20, save_every=40, log_every=4, batch_tokens=2000))
    shutil.copytree(place / "rnn", place / "begun")
    (place / "begun" / "log.jsonl").unlink()
    (place / "begun" / "model.safetensors").unlink()
    long = {backend: f"{backend}-{'x' * 180}" for backend in ("transformer", "rnn")}
    for backend, name in long.items():
        shutil.copytree(place / backend, place / name)
    made = {"one": ["transformer"], "two": ["transformer", "rnn"], "long": [*long.values()], "begun": ["begun"]}
    for name, runs in made.items():
        words_of = ["report", *(str(place / each) for each in runs), "-o", str(place / f"{name}.html"), "--quiet"]
        assert main(words_of) == 0
    return {name: place / f"{name}.html" for name in made}


def opened(browser: Any, path: Path, width: int = 1400, theme: str = "light") -> tuple[Any, list[str]]:
    """The page in a tab, and what goes wrong in it from now on."""
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
    wrong: list[str] = []
    tab.on("console", lambda message: wrong.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    tab.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else wrong.append(f"asks for {request.url}")
    )
    tab.goto(path.as_uri())
    return tab, wrong


def pixels(tab: Any) -> np.ndarray:
    """What the whole page looks like: (height, width, 3), 0 to 255."""
    return np.rint(255 * imread(io.BytesIO(tab.screenshot(full_page=True)))[..., :3]).astype(int)


def empty_charts(tab: Any) -> list[str]:
    """The titles of the charts in which some run's colour is hardly seen."""
    shown = pixels(tab)
    found = []
    for chart in tab.locator(".chart").all():
        box = chart.locator(".picture").evaluate("each => each.getBoundingClientRect().toJSON()")
        picture = shown[int(box["top"]) : int(box["bottom"]), int(box["left"]) : int(box["right"])]
        for color in chart.locator(".swatch").evaluate_all("all => all.map(each => getComputedStyle(each).borderTopColor)"):
            wanted = [int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]
            if (np.abs(picture - wanted).max(axis=-1) < 40).sum() < FEWEST_PIXELS:
                found.append(chart.locator("h3").inner_text())
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize(("name", "charts"), [("one", 8), ("two", 8), ("long", 8), ("begun", 0)])
def test_nothing_is_wrong_empty_or_cut_off(
    name: str, charts: int, width: int, theme: str, browser: Any, pages: dict[str, Path]
) -> None:
    tab, wrong = opened(browser, pages[name], width, theme)
    assert tab.locator(".chart").count() == charts
    assert empty_charts(tab) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    paper = pixels(tab)[0, 0]
    assert paper.max() < 64 if theme == "dark" else paper.min() > 192
    assert wrong == []
    tab.close()


def test_faults_are_found(browser: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    text = pages["one"].read_text(encoding="utf-8")
    (tmp_path / "broken.html").write_text(
        text.replace("stroke: var(--run0)", "stroke: none").replace('"use strict";', "nothing();")
    )
    tab, wrong = opened(browser, tmp_path / "broken.html")
    assert len(empty_charts(tab)) >= 5
    assert any("nothing is not defined" in each for each in wrong)
    tab.close()


def test_a_chart_tells_its_figures_at_the_pointer(browser: Any, pages: dict[str, Path]) -> None:
    tab, wrong = opened(browser, pages["two"])
    chart = tab.locator(".chart").first
    reading = chart.evaluate("each => JSON.parse(each.dataset.reading)")
    box = chart.locator(".picture").bounding_box()
    first, last = reading["ends"]
    at = 7.1  # nearest to update 8, of which there is a line in the log
    across = box["width"] * (reading["left"] + (at - first) / (last - first) * reading["width"])
    chart.locator(".picture").hover(position={"x": across, "y": box["height"] / 2})
    assert chart.locator(".at").inner_text() == "update 8"
    told = [float(each) for each in chart.locator(".key b").all_inner_texts()]
    assert told == pytest.approx([heights[at.index(8)] for at, heights in reading["points"]], rel=1e-3)
    tab.mouse.move(0, 0)
    assert chart.locator(".at").inner_text() == ""
    assert wrong == []
    tab.close()


def test_a_piece_shows_where_the_network_looked(browser: Any, pages: dict[str, Path]) -> None:
    tab, wrong = opened(browser, pages["one"])
    sentence = tab.locator(".sentence", has=tab.locator("[data-weights]")).first
    target = sentence.locator(".target .pieces")
    weights = np.array(target.evaluate("each => JSON.parse(each.dataset.weights)"))
    shares = "all => all.map(each => Number(each.style.getPropertyValue('--share')))"
    assert weights.shape == (target.locator("> span").count(), sentence.locator(".source .pieces > span").count())
    assert weights.sum(axis=1) == pytest.approx(100, abs=weights.shape[1])
    for row in range(2):
        target.locator("> span").nth(row).hover()
        shown = sentence.locator(".source .pieces > span").evaluate_all(shares)
        assert shown == pytest.approx(80 * weights[row] / max(weights[row].max(), 1), abs=0.51)
    sentence.locator(".source .pieces > span").first.hover()
    shown = target.locator("> span").evaluate_all(shares)
    assert shown == pytest.approx(80 * weights[:, 0] / max(weights[:, 0].max(), 1), abs=0.51)
    tab.mouse.move(0, 0)
    assert sentence.locator(".seen, .held").count() == 0
    assert wrong == []
    tab.close()


def test_a_mark_stays_whole_in_text_from_right_to_left(browser: Any, pages: dict[str, Path]) -> None:
    tab, wrong = opened(browser, pages["one"])
    mark = tab.locator(".target .mark").first
    assert mark.inner_text() == "</s>"
    mark.evaluate("each => (each.closest('p').dir = 'rtl')")
    places = mark.evaluate("""each => [0, 1, 2, 3].map((i) => {
      const range = new Range();
      range.setStart(each.firstChild, i);
      range.setEnd(each.firstChild, i + 1);
      return range.getBoundingClientRect().left;
    })""")
    assert places == sorted(places) and places[-1] - places[0] < 30
    assert wrong == []
    tab.close()


def test_the_theme_can_be_changed(browser: Any, pages: dict[str, Path]) -> None:
    tab, wrong = opened(browser, pages["one"], theme="dark")
    for brightness in ("light", "dark"):
        tab.locator("#theme").click()
        paper = pixels(tab)[0, 0]
        assert (paper.min() > 192) == (brightness == "light")
    assert wrong == []
    tab.close()
