"""Random numbers out of one seed, for several uses that have nothing in common."""

from enum import IntEnum

import numpy as np


class Use(IntEnum):
    """What random numbers are for. Without it, uses would share them: numpy takes (7,) and (7, 0, 0) for the same."""

    WEIGHTS = 1
    ORDER = 2
    BPE_DROPOUT = 3
    DROPOUT = 4
    TEACHER_FORCING = 5


def generator(use: Use, *key: int) -> np.random.Generator:
    """The numbers of one use and key. Unlike those of a sum, near keys give unrelated ones."""
    return np.random.default_rng((use, *key))


def mixed(use: Use, *key: int) -> int:
    """A seed of 64 bits for other generators, of one use and key."""
    return int(np.random.SeedSequence((use, *key)).generate_state(1, np.uint64)[0])
