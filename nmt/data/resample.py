"""Training text cut into other subwords in each epoch: BPE-dropout (Provilkov, Emelianenko, Voita 2020, arXiv 1910.13267).

sentencepiece can sample too, but its random numbers also depend on the process: with them no run could be repeated or resumed.
"""

import itertools
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nmt.data.files import writing
from nmt.data.seeds import Use, generator
from nmt.data.shards import ParallelData, Sequences, SequencesWriter
from nmt.data.subword import Subword
from nmt.vocab import SYMBOLS

CHUNK = 10_000
"""Lines in memory at once."""

REMEMBERED = 200_000
"""Cuts of words kept for the next time, at most: some 60 MB."""

SPACE = "\u2581"
"""What a word's first piece begins with; no piece has it elsewhere, so no merge crosses words."""


def resampled(
    data: ParallelData, cutters: "tuple[Cutter, Cutter]", longest: int, *, seed: int, epoch: int, directory: Path
) -> ParallelData:
    """The pairs of `data`, in their order, as an epoch sees them, cut by (source, target): a pure function of seed and epoch.

    The whole epoch is cut before its batches are made, so that these know its true lengths. A line that would come to more than
    `longest` positions keeps its ordinary subwords. The new arrays lie in `directory` as long as they are used; their files have
    no names there any more once this returns.
    """
    with writing(directory), tempfile.TemporaryDirectory(prefix=".epoch-", suffix=".partial", dir=directory) as place:
        sides = (
            _resampled(lines, cutter, longest, (seed, epoch, side), Path(place, str(side)))
            for side, (lines, cutter) in enumerate(zip((data.src, data.tgt), cutters, strict=True))
        )
        return ParallelData(*sides)


def _resampled(lines: Sequences, cutter: "Cutter", longest: int, key: tuple[int, int, int], path: Path) -> Sequences:
    with SequencesWriter.create(path, cutter.vocabulary) as writer:
        for start in range(0, len(lines), CHUNK):
            chunk = [lines[index].tolist() for index in range(start, min(start + CHUNK, len(lines)))]
            samples = cutter.cut(chunk, generator(Use.BPE_DROPOUT, *key, start))
            cut = [sample if len(sample) < longest else ids for ids, sample in zip(chunk, samples, strict=True)]
            writer.append(Sequences.of(cut))
    return Sequences.open(path, cutter.vocabulary, writer.lines, writer.tokens)


class Cutter:
    """Cuts words anew, given their ordinary subwords of a BPE model.

    A word's cut is a function of a row of coins: at each step, of the merges that are possible the most important one is made
    whose coin does not fall on "drop"; when all fall so, the word is done (algorithm 1 of the paper). Few coins do fall so, so a
    cut is remembered by the numbers of those that did.
    """

    def __init__(self, subword: Subword, dropout: float) -> None:
        """`dropout`, above 0 and below 1, is the probability of "drop"."""
        self.vocabulary = len(subword)
        self._dropout = dropout
        self._pieces = subword.pieces(range(len(subword)))
        # A piece's id is its rank: sentencepiece numbers pieces in the order of their merges. Bytes and symbols are no text.
        self._ids = {
            piece: id for id, piece in enumerate(self._pieces) if id >= len(SYMBOLS) and not re.fullmatch("<0x[0-9A-F]{2}>", piece)
        }
        self._begins = [piece.startswith(SPACE) for piece in self._pieces]
        self._known: dict[tuple[int, ...], dict[tuple[int, ...], tuple[list[int], int]]] = {}
        self._size = 0

    def cut(self, lines: list[list[int]], random: np.random.Generator) -> list[list[int]]:
        """Each line's ids with every word cut anew; words with unknown or byte pieces stay as they are."""
        coins = self._coins(random)
        return [[id for word in self._words(ids) for id in self._sample(word, coins)] for ids in lines]

    def _words(self, ids: list[int]) -> Iterator[tuple[int, ...]]:
        start = 0
        for index in range(1, len(ids)):
            if self._begins[ids[index]]:
                yield tuple(ids[start:index])
                start = index
        if ids:
            yield tuple(ids[start:])

    def _coins(self, random: np.random.Generator) -> Iterator[int]:
        """Without end, how many coins are thrown up to and with the next that falls on "drop"."""
        while True:
            yield from random.geometric(self._dropout, 10_000).tolist()

    def _sample(self, word: tuple[int, ...], coins: Iterator[int]) -> list[int]:
        dropped: tuple[int, ...] = ()
        at = -1
        while True:
            ids, thrown = self._remembered(word, dropped)
            at += next(coins)
            if at >= thrown:
                return ids
            dropped = (*dropped, at)

    def _remembered(self, word: tuple[int, ...], dropped: tuple[int, ...]) -> tuple[list[int], int]:
        cuts = self._known.setdefault(word, {})
        if dropped not in cuts:
            if self._size >= REMEMBERED:
                self._known, self._size, cuts = {}, 0, {}
            cuts[dropped] = self.segment(word, dropped)
            self._size += 1
        return cuts[dropped]

    def segment(self, word: tuple[int, ...], dropped: tuple[int, ...]) -> tuple[list[int], int]:
        """The cut of a word when the coins numbered `dropped` fall on "drop", and how many coins were thrown for it."""
        symbols = list("".join(self._pieces[id] for id in word))
        if any(symbol not in self._ids for symbol in symbols) or any(self._pieces[id] not in self._ids for id in word):
            return list(word), 0
        find = self._ids.get
        ranks = [find(a + b) for a, b in itertools.pairwise(symbols)]
        thrown = 0
        while merges := [(rank, place) for place, rank in enumerate(ranks) if rank is not None]:
            merges.sort()
            made = next((number for number in range(len(merges)) if thrown + number not in dropped), None)
            if made is None:
                thrown += len(merges)
                break
            thrown += made + 1
            place = merges[made][1]
            symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
            del ranks[place]
            if place > 0:
                ranks[place - 1] = find(symbols[place - 1] + symbols[place])
            if place < len(ranks):
                ranks[place] = find(symbols[place] + symbols[place + 1])
        return [self._ids[symbol] for symbol in symbols], thrown
