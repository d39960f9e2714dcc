"""Binarised data: the ids of many lines as one memory-mapped array of tokens and one of offsets, and the directory that holds them.

DATA/config.json  source.model  target.model  report.json  valid.source.txt  valid.target.txt
config.json holds its own checksum and those of all others.
DATA/{train,valid}.{source,target}.tokens    uint16, or int32 for 65,536 subwords and more; little-endian, line after line
DATA/{train,valid}.{source,target}.offsets   int64: line i is tokens[offsets[i]:offsets[i+1]]
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.data.files import checksum, read_json, unsealed
from nmt.data.subword import Subword
from nmt.errors import NmtError

FORMAT = 1
"""Of the directory; a reader refuses a higher one."""

CONTENT = ("train.*", "valid.*")
"""The files that training reads, but for the subword models, whose checksums stand with the vocabulary."""

REPORT = "report.json"
SEAL = "checksum"
"""The key in config.json of its own."""

MOST_TEXT = 1 << 30
"""Bytes of one side of a validation set, all of which is held in memory."""

_OFFSET = np.dtype("<i8")


def _files(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}.tokens"), path.with_name(f"{path.name}.offsets")


def token_type(vocabulary: int) -> np.dtype[Any]:
    """The type of an id of so many subwords, on disk."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<i4")


class Sequences:
    """Ids of many lines, without EOS. Only what is asked for is read from the disk."""

    def __init__(self, tokens: npt.NDArray[Any], offsets: npt.NDArray[np.int64]) -> None:
        """Line i is tokens[offsets[i]:offsets[i+1]]."""
        self.tokens = tokens
        self.offsets = offsets

    @classmethod
    def of(cls, lines: Sequence[Sequence[int]]) -> "Sequences":
        """Lines in memory."""
        offsets = _offsets(np.fromiter(map(len, lines), np.int64, len(lines)))
        return cls(np.fromiter(chain.from_iterable(lines), np.int32, int(offsets[-1])), offsets)

    @classmethod
    def open(cls, path: Path, vocabulary: int, lines: int, tokens: int) -> "Sequences":
        """What `SequencesWriter` wrote to `path`. Raises NmtError that names the file that is missing or not as long as it was."""
        of_tokens, of_offsets = _files(path)
        offsets = _mapped(of_offsets, _OFFSET, lines + 1)
        if offsets[0] != 0 or offsets[-1] != tokens or (offsets[1:] < offsets[:-1]).any():
            raise NmtError(f"{of_offsets}: is damaged; run nmt preprocess again")
        return cls(_mapped(of_tokens, token_type(vocabulary), tokens), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        """The ids of one line. IndexError past the last."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def gather(self, indices: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """The ids of the lines `indices` one after the other, and how many each line has. IndexError past the last."""
        starts, lengths = self.offsets[indices], self.lengths[indices]
        before = np.cumsum(lengths) - lengths
        return self.tokens[np.arange(lengths.sum()) + np.repeat(starts - before, lengths)], lengths

    def where(self, chosen: npt.NDArray[np.bool_]) -> "Sequences":
        """The lines whose entry is true, in memory."""
        tokens, lengths = self.gather(np.flatnonzero(chosen))
        return Sequences(tokens, _offsets(lengths))

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """(lines,) ids of each line."""
        return np.diff(self.offsets)


def _offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)])


def _mapped(path: Path, dtype: np.dtype[Any], size: int) -> npt.NDArray[Any]:
    try:
        found = path.stat().st_size
        if found != size * dtype.itemsize:
            raise NmtError(
                f"{path}: holds {found:,} bytes, not {size * dtype.itemsize:,}; the copy is damaged, run nmt preprocess again"
            )
        # The map keeps the file by itself; nothing at all cannot be mapped.
        return np.memmap(path, dtype, "r", shape=(size,)) if size else np.empty(0, dtype)
    except OSError as error:
        raise NmtError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()})") from None


class SequencesWriter:
    """Writes lines of ids in chunks, in flat memory; made by `SequencesWriter.create`."""

    def __init__(self, tokens: Any, offsets: Any, dtype: np.dtype[Any]) -> None:
        self._tokens_file, self._offsets_file, self._dtype = tokens, offsets, dtype
        self.lines = 0
        self.tokens = 0
        self._offsets_file.write(np.zeros(1, _OFFSET).tobytes())

    @classmethod
    @contextmanager
    def create(cls, path: Path, vocabulary: int) -> "Iterator[SequencesWriter]":
        """A writer to `path`.tokens and `path`.offsets for ids below `vocabulary`."""
        of_tokens, of_offsets = _files(path)
        with open(of_tokens, "wb") as tokens, open(of_offsets, "wb") as offsets:
            yield cls(tokens, offsets, token_type(vocabulary))

    def append(self, chunk: Sequences) -> None:
        """More lines."""
        self._tokens_file.write(chunk.tokens.astype(self._dtype).tobytes())
        self._offsets_file.write((self.tokens + chunk.offsets[1:]).astype(_OFFSET).tobytes())
        self.lines += len(chunk)
        self.tokens += len(chunk.tokens)


class ParallelWriter:
    """Writes pairs of lines of ids in chunks; made by `ParallelWriter.create`."""

    def __init__(self, src: SequencesWriter, tgt: SequencesWriter) -> None:
        self._src, self._tgt = src, tgt

    @classmethod
    @contextmanager
    def create(cls, directory: Path, split: str, src_vocab: int, tgt_vocab: int) -> "Iterator[ParallelWriter]":
        """A writer of the split ("train", "valid") of a directory."""
        with (
            SequencesWriter.create(directory / f"{split}.source", src_vocab) as src,
            SequencesWriter.create(directory / f"{split}.target", tgt_vocab) as tgt,
        ):
            yield cls(src, tgt)

    def append(self, src: Sequences, tgt: Sequences) -> None:
        """More pairs."""
        self._src.append(src)
        self._tgt.append(tgt)

    @property
    def sizes(self) -> dict[str, int]:
        """What config.json holds of the split, to tell a whole file from a truncated one."""
        return {"pairs": self._src.lines, "source_tokens": self._src.tokens, "target_tokens": self._tgt.tokens}


@dataclass(frozen=True)
class ParallelData:
    """Pairs of lines: line i of `src` is translated by line i of `tgt`."""

    src: Sequences
    tgt: Sequences

    def __len__(self) -> int:
        return len(self.src)

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """(pairs, 2) positions of each side: its ids and one more, for EOS (source, labels) or the start token (prefix)."""
        return np.stack([self.src.lengths, self.tgt.lengths], axis=1) + 1


@dataclass(frozen=True)
class Dataset:
    """A directory that preprocess made."""

    path: Path
    config: dict[str, Any]
    source: Subword
    target: Subword
    train: ParallelData
    valid: ParallelData

    @classmethod
    def open(cls, path: Path) -> "Dataset":
        """Raises NmtError where `path` is no such directory, is damaged, or was made by a newer version."""
        if not path.exists():
            raise NmtError(f"{path}: no such directory")
        config = read_json(path / "config.json") if (path / "config.json").is_file() else None
        if not isinstance(config, dict) or config.get("kind") != "data":
            raise NmtError(f"{path}: not a directory that nmt preprocess made")
        try:
            return cls._open(path, config)
        except (KeyError, TypeError, ValueError) as error:
            raise NmtError(
                f"{path / 'config.json'}: is damaged or was edited ({type(error).__name__}: {error}); run nmt preprocess again"
            ) from error

    @classmethod
    def _open(cls, path: Path, config: dict[str, Any]) -> "Dataset":
        if config["format"] > FORMAT:
            raise NmtError(
                f"{path}: made by nmt {config['version']}, which is newer than this one; upgrade nmt, or preprocess again"
            )
        if SEAL in config:  # data of before has none
            try:
                config = unsealed(path / "config.json", config, SEAL)
            except NmtError as error:
                raise NmtError(f"{error}; run nmt preprocess again") from None
        source, target = (_subword(path / f"{side}.model", config["vocabulary"][f"{side}_sha256"]) for side in ("source", "target"))

        def pairs(split: str) -> ParallelData:
            sizes = config["splits"][split]
            src, tgt = (
                Sequences.open(path / f"{split}.{side}", len(subword), sizes["pairs"], sizes[f"{side}_tokens"])
                for side, subword in (("source", source), ("target", target))
            )
            return ParallelData(src, tgt)

        opened = cls(path, config, source, target, pairs("train"), pairs("valid"))
        _ = opened.shared, opened.languages, opened.checksums  # read now: later nobody would say which file lacks them
        return opened

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return bool(self.config["vocabulary"]["shared"])

    @property
    def checksums(self) -> dict[str, str]:
        """The sha256 of each file of text and of shards as preprocess wrote it, by name; none in data of before there were any."""
        return dict(self.config.get("sha256", {}))

    def checked(self, path: Path) -> str:
        """The sha256 of one of its files. NmtError for one that is not as preprocess left it."""
        found = checksum(path, MOST_TEXT if path.suffix == ".txt" else None)
        if self.checksums.get(path.name, found) != found:
            raise NmtError(f"{path}: is damaged: its bytes are not those that nmt preprocess wrote; copy it or preprocess again")
        return found

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The codes given for source and target."""
        source, target = self.config["languages"]
        return source, target

    @property
    def valid_source(self) -> Path:
        """The validation set's raw source lines: all of them, also those that training's limits leave out of `valid`."""
        return self.path / "valid.source.txt"

    @property
    def valid_target(self) -> Path:
        """The validation set's raw target lines."""
        return self.path / "valid.target.txt"


def _subword(path: Path, sha256: str) -> Subword:
    if Subword.fingerprint_of(path) != sha256:
        raise NmtError(f"{path}: is not the subword model that this data was made with; run nmt preprocess again")
    return Subword.load(path)
