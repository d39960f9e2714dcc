"""Numbers above which an option is surely a mistake: unchecked they would reach native code, which fails in ways of its own."""

MOST_THREADS = 1024

MOST_SUBWORDS = 10_000_000
"""Of a vocabulary: sentencepiece counts in 32 bits, and has room for some more at first."""

MOST_UNITS = 1_000_000
"""Of a layer's width and of the layers of a network."""

MOST_BEAM = 1000

MOST_TEXTS = 1_000_000
"""Made up to find out what is by chance; the sums of each are kept."""

MOST_POSITIONS = 2**31 - 1
"""Of a batch, padding counted."""

MOST_COUNTED = 2**63 - 1
"""Of what is only counted."""
