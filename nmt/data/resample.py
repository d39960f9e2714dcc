"""Training text cut into other subwords in each epoch: BPE-dropout (Provilkov, Emelianenko, Voita 2020, arXiv 1910.13267)."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nmt.data.shards import ParallelData, Sequences, SequencesWriter
from nmt.data.subword import Subword
from nmt.vocab import UNK

CHUNK = 10_000
"""Lines in memory at once."""


def resampled(
    data: ParallelData, source: Subword, target: Subword, dropout: float, longest: int, *, seed: int, epoch: int, directory: Path
) -> ParallelData:
    """The pairs of `data`, in their order, as an epoch with `dropout` sees them: a pure function of seed and epoch.

    The whole epoch is cut before its batches are made, so that these know its true lengths. A line keeps its ordinary subwords
    where it has one that is unknown (its text is lost), and where it would come to more than `longest` positions. The new
    arrays lie in `directory` as long as they are used; their files have no names there any more once this returns.
    """
    with tempfile.TemporaryDirectory(prefix=".epoch-", suffix=".partial", dir=directory) as place:
        sides = (
            _resampled(lines, subword, dropout, longest, (seed, epoch, side), Path(place, str(side)))
            for side, (lines, subword) in enumerate(((data.src, source), (data.tgt, target)))
        )
        return ParallelData(*sides)


def _resampled(
    lines: Sequences, subword: Subword, dropout: float, longest: int, key: tuple[int, int, int], path: Path
) -> Sequences:
    with SequencesWriter.create(path, len(subword)) as writer:
        for number, chunk in enumerate(_chunks(lines)):
            seed = int(np.random.SeedSequence((*key, number)).generate_state(1)[0])
            samples = subword.sample_batch([subword.decode(ids) for ids in chunk], dropout, seed)
            writer.append(
                [
                    sample if 0 < len(sample) < longest and UNK not in ids and UNK not in sample else ids
                    for ids, sample in zip(chunk, samples, strict=True)
                ]
            )
    return Sequences.open(path, len(subword), writer.lines, writer.tokens)


def _chunks(lines: Sequences) -> Iterator[list[list[int]]]:
    for start in range(0, len(lines), CHUNK):
        yield [lines[index].tolist() for index in range(start, min(start + CHUNK, len(lines)))]
