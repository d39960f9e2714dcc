"""N-grams that hypotheses share with references, counted exactly, for all sentences at once, on any device.

An n-gram's code is the rank of its first n - 1 tokens among all such, and the id of its last token, packed into one integer; a rank
is the place in a sorted list without repeats. So different n-grams never have the same code, and an n-gram has none where its first
n - 1 tokens are not shared: they need not be looked at again. Ranks tell sentences apart, too.

N sentences · T tokens of a text · G distinct n-grams of all sentences · S systems · R references · O orders
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from nmt.arrays import Array, Arrays

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Tokens:
    """The sentences of a text, one after the other."""

    ids: Integers
    """(T,), from 0."""
    lengths: Integers
    """(N,)."""

    def ngrams(self, order: int) -> Integers:
        """How many n-grams of that order each sentence has (N,)."""
        return np.maximum(self.lengths - order + 1, 0)


def matches(
    hypotheses: Sequence[Tokens], references: Sequence[Tokens], vocabulary: int, orders: int, arrays: Arrays, together: bool
) -> Integers:
    """N-grams that hypotheses share with references (O, S, R, N), each counted as often as it is in both.

    With `together` (O, S, 1, N): each is counted as often as in the reference that has it most. Ids are below `vocabulary`.
    """
    library, size = arrays.library, len(references[0].lengths)
    found = []
    for sentence, counts in _counts([*hypotheses, *references], len(hypotheses), vocabulary, orders, arrays):
        ours, theirs = counts[: len(hypotheses)], counts[len(hypotheses) :]
        if together:
            theirs = [reduce(library.maximum, theirs)]
        # Weights are float64 there, exact up to 2^53.
        found += [library.bincount(sentence, library.minimum(our, their), size) for our in ours for their in theirs]
    return arrays.get(library.stack(found)).astype(np.int64).reshape(orders, len(hypotheses), -1, size)


def _counts(
    texts: Sequence[Tokens], systems: int, vocabulary: int, orders: int, arrays: Arrays
) -> Iterator[tuple[Array, list[Array]]]:
    """Of each order the distinct n-grams that can still be shared: the sentence of each (G,), and its counts in every text (G,)."""
    library = arrays.library
    places = [_Places.of(text, arrays) for text in texts]
    starts = [each.start for each in places]
    codes = [each.sentence * vocabulary + each.ids for each in places]
    sentence: Array = None
    for order in range(1, orders + 1):
        distinct, ranks = library.unique(library.concatenate(codes), return_inverse=True)
        first = distinct // vocabulary  # of the first n - 1 tokens the rank; of none the sentence
        sentence = first if order == 1 else sentence[first]
        ends = np.cumsum([0, *map(len, codes)]).tolist()
        parts = [ranks[begin:end] for begin, end in itertools.pairwise(ends)]
        counts = [library.bincount(part, minlength=len(distinct)) for part in parts]
        yield sentence, counts
        shared = (sum(counts[:systems]) > 0) & (sum(counts[systems:]) > 0)
        for i, (place, part) in enumerate(zip(places, parts, strict=True)):
            going_on = shared[part] & (place.left[starts[i]] > order)
            starts[i] = starts[i][going_on]
            codes[i] = part[going_on] * vocabulary + place.ids[starts[i] + order]


@dataclass(frozen=True)
class _Places:
    """Each token of a text (T,)."""

    ids: Array
    start: Array
    """Its place in the text."""
    sentence: Array
    left: Array
    """Tokens from it to the end of its sentence, itself counted."""

    @staticmethod
    def of(text: Tokens, arrays: Arrays) -> "_Places":
        start = np.arange(len(text.ids))
        left = np.repeat(np.cumsum(text.lengths), text.lengths) - start
        sentence = np.repeat(np.arange(len(text.lengths)), text.lengths)
        return _Places(*map(arrays.put, (text.ids, start, sentence, left)))
