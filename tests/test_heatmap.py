"""Pictures of attention: what is drawn is what was given, whatever the labels."""

import re
import xml.etree.ElementTree as ElementTree
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from nmt.errors import NmtError, UsageError
from nmt.heatmap import CELL, draw


def weights(rows: int, columns: int) -> np.ndarray:
    drawn = np.random.default_rng(0).random((rows, columns)).astype(np.float32)
    return drawn / drawn.sum(1, keepdims=True)


def texts(path: Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    return ["".join(element.itertext()).strip() for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_svg_keeps_labels_as_text_in_order(tmp_path: Path) -> None:
    source, target = ["▁Ein", "▁$x$", "a_b^c", "<&>", "</s>"], ["▁one", "▁\\alpha", "'", "</s>"]
    assert draw(source, target, weights(4, 5), tmp_path / "a.svg") == ""
    labels = [label for label in texts(tmp_path / "a.svg") if not re.fullmatch(r"\d\.\d+", label)]
    assert labels == source + target


def test_cells_are_the_weights(tmp_path: Path) -> None:
    given = weights(3, 4)
    draw(list("abcd"), list("xyz"), given, tmp_path / "a.svg")
    found = re.findall(r'xlink:href="data:image/png;base64,([^"]+)"', (tmp_path / "a.svg").read_text("utf-8"))
    pixels = max((imread(BytesIO(b64decode(image)))[..., 0] for image in found), key=np.size)
    height, width = pixels.shape
    centres = pixels[np.ix_((np.arange(3) * 2 + 1) * height // 6, (np.arange(4) * 2 + 1) * width // 8)]
    upright = np.abs(centres - given / given.max()).max()
    flipped = np.abs(centres[::-1] - given / given.max()).max()  # an SVG image may be stored bottom up
    assert min(upright, flipped) < 0.01


def test_any_unicode_any_size_no_warning(tmp_path: Path) -> None:
    source = ["▁今天", "▁مرحبا", "▁नमस्ते", "\u200d", "☃", "\x00\t\x1b", "x" * 300, "</s>"]
    draw(source, ["▁a", "</s>"], weights(2, 8), tmp_path / "a.svg")
    shown = texts(tmp_path / "a.svg")
    assert "▁今天" in shown and "\ufffd" * 3 in shown and "x" * 23 + "…" in shown
    draw(source, ["▁a", "</s>"], weights(2, 8), tmp_path / "a.png")
    draw([], [], np.zeros((0, 0), np.float32), tmp_path / "b.png")


def test_characters_without_a_font_are_told(tmp_path: Path) -> None:
    tangut = "\U00017000"  # none of the fonts has this script
    assert draw(["a" + tangut], ["b"], weights(1, 1), tmp_path / "a.png") == tangut


def test_size_grows_with_the_sentence_and_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.heatmap.MOST", 5.0)
    sizes = []
    for length in (5, 15, 100):
        draw(["a"] * length, ["b"] * length, weights(length, length), tmp_path / "a.png")
        sizes.append(imread(tmp_path / "a.png").shape[0] / 150)
    assert sizes[1] - sizes[0] == pytest.approx(10 * CELL, abs=0.05)
    assert 5 < sizes[2] < 6


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_same_in_same_out(tmp_path: Path, suffix: str) -> None:
    for name in ("one", "two"):
        draw(["a", "ä"], ["b"], weights(1, 2), tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()


def test_impossible_requests(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gif"):
        draw(["a"], ["b"], weights(1, 1), tmp_path / "a.gif")
    with pytest.raises(NmtError, match="missing"):
        draw(["a"], ["b"], weights(1, 1), tmp_path / "missing" / "a.svg")
    with pytest.raises(ValueError, match="labels"):
        draw(["a"], ["b"], weights(2, 1), tmp_path / "a.svg")
