"""nmt: train a translator from the shell, translate files, score them."""

__version__ = "0.1.0"
