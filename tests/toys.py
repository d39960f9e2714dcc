"""Small corpora, configurations and runs for the tests of training."""

import json
import random
from pathlib import Path
from typing import Any

import torch

from nmt.config import Config, Layer, resolve
from nmt.console import Console
from nmt.data.shards import Dataset
from nmt.preprocess import Options, preprocess
from nmt.train import Result, train

CPU = torch.device("cpu")
QUIET = Console(quiet=True)

TINY: dict[str, dict[str, object]] = {
    "rnn": {"layers": 1, "width": 16, "embedding": 16},
    "transformer": {"layers": 1, "width": 16, "heads": 2, "feed_forward": 32},
}
"""Settings of networks that train in no time, where two numbers do not say all."""


def reversed_digits(count: int, seed: int, longest: int = 8) -> list[tuple[str, str]]:
    """Lines of digits, and the same from right to left."""
    generator = random.Random(seed)
    lines = [generator.choices("0123456789", k=generator.randint(1, longest)) for _ in range(count)]
    return [(" ".join(line), " ".join(reversed(line))) for line in lines]


def words(count: int, seed: int) -> list[tuple[str, str]]:
    """Lines of made-up words of several subwords each, and of the same words upside down."""
    generator = random.Random(seed)
    stock = ["".join(generator.choices("abcdefgh", k=generator.randint(2, 7))) for _ in range(40)]
    lines = [generator.choices(stock, k=generator.randint(1, 6)) for _ in range(count)]
    return [(" ".join(line), " ".join(word[::-1] for word in line)) for line in lines]


def dataset(place: Path, pairs: list[tuple[str, str]], valid: int, **options: Any) -> Dataset:
    """`pairs` preprocessed in the new directory `place`; the last `valid` are the validation set."""
    place.mkdir()
    options = {"tokenizer": "word", "vocab_size": 100, "workers": 1, **options}
    for name, part in (("train", pairs[: len(pairs) - valid]), ("valid", pairs[len(pairs) - valid :])):
        for side in (0, 1):
            (place / f"{name}.{side}").write_text("".join(f"{pair[side]}\n" for pair in part))
    held_out = {"valid_source": str(place / "valid.0"), "valid_target": str(place / "valid.1")} if valid else {"valid_size": 0}
    preprocess(Options(str(place / "train.0"), str(place / "train.1"), str(place / "data"), **held_out, **options), QUIET)
    return Dataset.open(place / "data")


def config(backend: str, model: dict[str, object] | None = None, bpe_dropout: float = 0.0, **settings: object) -> Config:
    """The tiny network of `backend`, dropout 0, small batches, some settings otherwise."""
    train = {"batch_tokens": 128, "learning_rate": 0.01, "warmup": 5, "max_steps": 10, "log_every": 1, **settings}
    tables = {
        "model": {"dropout": 0.0, **TINY.get(backend, {"layers": 1, "width": 16}), **(model or {})},
        "data": {"bpe_dropout": bpe_dropout},
        "train": train,
    }
    return resolve(backend, layers=[Layer("test", tables)])


def run(data: Dataset, place: Path, settings: Config, **options: Any) -> Result:
    """`train` on the CPU, silent."""
    return train(data, place, settings, QUIET, device=CPU, **options)


def events(place: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The log of a run without what depends on the clock."""
    lines = [json.loads(line) for line in (place / "log.jsonl").read_text().splitlines()]
    timeless = [{key: value for key, value in line.items() if key not in ("seconds", "tokens_per_second")} for line in lines]
    return [line for line in timeless if kind is None or line["event"] == kind]
