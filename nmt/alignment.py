"""Word alignments out of the attention between subwords.

Legend: T target pieces, S source pieces, I source words, J target words.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmt.vocab import EOS, SYMBOLS

SPACE = "▁"
"""With it a piece begins that follows white space (sentencepiece's own mark)."""


def words(pieces: Sequence[str]) -> list[list[int]]:
    """Indices of the pieces of each word, without `</s>`; in ordinary text word i is `text.split()[i]`."""
    found: list[list[int]] = []
    text = ""  # of the last word
    for index, piece in enumerate(pieces):
        if piece == SYMBOLS[EOS]:
            continue
        if not found or (piece.startswith(SPACE) and text):
            found.append([])
            text = ""
        found[-1].append(index)
        text += piece.removeprefix(SPACE)
    return [word for word in found if any(pieces[index] != SPACE for index in word)]


def align(source: Sequence[str], target: Sequence[str], attention: NDArray[np.float32]) -> list[tuple[int, int]]:
    """One link (source word, target word), counted from 0, for each target word, in the order of the target.

    `attention` (≥ T, S). A target word is linked to the source word whose pieces get the most attention, summed over the
    pieces of both (Bahdanau et al. 2014, section 5.2, look at the same weights); `</s>` is no word on either side.
    """
    source_words, target_words = words(source), words(target)
    if not source_words:
        return []
    links = []
    for j, rows in enumerate(target_words):
        weights = [attention[np.ix_(rows, columns)].sum() for columns in source_words]
        links.append((int(np.argmax(weights)), j))
    return links


def pharaoh(links: Sequence[tuple[int, int]]) -> str:
    """`0-0 1-2`: the format of Pharaoh and Moses, source first."""
    return " ".join(f"{i}-{j}" for i, j in links)
