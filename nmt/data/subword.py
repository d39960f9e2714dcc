"""Subword models: text to ids and back, by sentencepiece; a model file is the whole truth, its normalisation included.

Kudo and Richardson 2018, SentencePiece (arXiv 1808.06226) · Sennrich, Haddow, Birch 2016, BPE (1508.07909) · Kudo 2018, unigram
(1804.10959) · Provilkov, Emelianenko, Voita 2020, BPE-dropout (1910.13267).
"""

import functools
import hashlib
import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import sentencepiece

from nmt.data.files import reading
from nmt.errors import NmtError
from nmt.vocab import BOS, EOS, PAD, SYMBOLS, UNK

Kind = Literal["bpe", "unigram", "char", "word"]
Normalization = Literal["nmt_nfkc", "nfkc", "identity"]

LONGEST_LINE = 16_384
"""Bytes of the longest line that the trainer looks at; a word of 65,536 would end it."""

TRAINER_THREADS = 16
"""Constant, since the number stands in the model file and the sums of the unigram trainer round by it."""


class Subword:
    """A trained subword model. Its control symbols have the ids of `nmt.vocab`; no text ever encodes to PAD, BOS or EOS."""

    def __init__(self, model: bytes, name: str) -> None:
        """`model` is the content of a model file, `name` what messages call it. Raises NmtError where it is no model of ours."""
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except (RuntimeError, OSError, ValueError, TypeError):
            raise NmtError(f"{name}: not a sentencepiece model, or a damaged one") from None
        processor = self._processor
        ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if ids != (PAD, UNK, BOS, EOS):
            raise NmtError(
                f"{name}: its <pad> <unk> <s> </s> have the ids {ids}, not {(PAD, UNK, BOS, EOS)}; train it with nmt preprocess"
            )
        self.fingerprint = hashlib.sha256(model).hexdigest()

    @classmethod
    def load(cls, path: Path) -> "Subword":
        """The model in a file. Raises NmtError where it is missing, unreadable or not a model of ours."""
        with reading(path) as stream:
            return cls(stream.read(), str(path))

    @functools.cached_property
    def kind(self) -> Kind:
        """The algorithm. Looked for when asked: translation has no use for it, and its start is waited for."""
        return _kind(self._model)

    def save(self, path: Path) -> None:
        """Write the exact bytes that were loaded."""
        path.write_bytes(self._model)

    def __len__(self) -> int:
        return int(self._processor.GetPieceSize())

    def encode(self, text: str) -> list[int]:
        """The ids of a line, without BOS and EOS; none where normalisation leaves nothing of it."""
        ids: list[int] = self._processor.Encode(text, out_type=int)  # not as a batch of one: to start threads takes 60 µs
        return ids

    def encode_batch(self, lines: list[str]) -> list[list[int]]:
        """`encode` of each line; other threads run Python meanwhile, but for the time that it takes to make the lists."""
        ids: list[list[int]] = self._processor.Encode(lines, out_type=int, num_threads=1)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids: one line, whatever the ids (a byte piece may spell a line feed)."""
        text: str = self._processor.Decode(list(ids))
        return text.replace("\n", " ")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The subwords that ids stand for, as the model spells them: a space is U+2581."""
        spelled: list[str] = self._processor.IdToPiece(list(ids))
        return spelled

    def uncovered(self, text: str) -> list[str]:
        """The characters of a line that have no piece, as often as they occur; none for a word model, where that says nothing."""
        if self.kind == "word":
            return []
        spelled: list[str] = self._processor.Encode(text, out_type=str)
        unknown = [piece for piece in spelled if self._processor.PieceToId(piece) == UNK]
        return [character for piece in unknown for character in piece if self._processor.PieceToId(character) == UNK]


def _kind(model: bytes) -> Kind:
    """The type, as the message ModelProto has it (field 2: TrainerSpec; in it field 3: 1 unigram, 2 bpe, 3 word, 4 char)."""
    trainer = next((value for field, value in _fields(model) if field == 2 and isinstance(value, bytes)), b"")
    number = next((value for field, value in _fields(trainer) if field == 3), 1)
    kinds: dict[object, Kind] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
    return kinds[number]


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message, in order: numbers as int, all else as bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            yield key >> 3, message[at : at + size]
            at += size


@dataclass(frozen=True)
class Recipe:
    """How a subword model is made."""

    kind: Kind
    vocab_size: int
    """The most pieces, control symbols counted."""
    normalization: Normalization
    lowercase: bool
    character_coverage: float
    """Share of the characters of the text that are to have a piece; the rarest go without."""
    byte_fallback: bool
    """Characters without a piece are spelled as bytes, so that nothing is unknown."""


@dataclass(frozen=True)
class Trained:
    """A subword model, and how many of the lines given were too long to be looked at."""

    subword: Subword
    skipped: int


def train_subword(lines: Iterable[str], recipe: Recipe, name: str) -> Trained:
    """A model of `lines`, read once; the same lines and recipe give the same bytes. `name` is what messages call it.

    Its size is at most `recipe.vocab_size`, and smaller where the text does not support that. Raises NmtError where that is too
    small for the characters of the text, or where there is no text.
    """
    skipped = 0
    failures: list[BaseException] = []

    def text() -> Iterator[str]:
        nonlocal skipped
        try:
            for line in lines:
                if len(line.encode()) > LONGEST_LINE:
                    skipped += 1
                else:
                    yield _plain(line)
        except BaseException as error:
            failures.append(error)  # sentencepiece would pass on no more than its name
            raise

    sentencepiece.set_min_log_level(2)  # stderr is ours
    # A character model would drop the rarest ones in silence; with room for all, its size tells how many there are.
    smallest = len(SYMBOLS) + 1 + 256 * recipe.byte_fallback
    size = sys.maxunicode if recipe.kind == "char" else max(recipe.vocab_size, smallest)
    normalization: dict[str, Any] = {"normalization_rule_name": recipe.normalization}
    if recipe.lowercase:
        normalization = {"normalizer": _lowercasing(recipe.normalization)}
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=text(),
            model_writer=model,
            model_type=recipe.kind,
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=recipe.character_coverage,
            byte_fallback=recipe.byte_fallback,
            **normalization,
            max_sentence_length=2 * LONGEST_LINE,
            num_threads=TRAINER_THREADS,
            minloglevel=2,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_piece=SYMBOLS[PAD],
            unk_piece=SYMBOLS[UNK],
            bos_piece=SYMBOLS[BOS],
            eos_piece=SYMBOLS[EOS],
        )
    except RuntimeError as error:
        if failures:
            raise failures[0] from None
        if needed := re.search(r"required_chars\. \d+ vs (\d+)", str(error)):
            raise _too_small(recipe, name, int(needed[1])) from None
        if "sentences_.empty()" in str(error) or "all_chars_count" in str(error):
            raise NmtError(f"{name}: no text to train a subword model on") from None
        raise NmtError(f"{name}: the subword model cannot be trained ({error})") from None
    subword = Subword(model.getvalue(), name)
    if len(subword) > recipe.vocab_size:
        raise _too_small(recipe, name, len(subword))
    return Trained(subword, skipped)


def _too_small(recipe: Recipe, name: str, needed: int) -> NmtError:
    return NmtError(
        f"{name}: a vocabulary of {recipe.vocab_size:,} is too small, the characters of the text need {needed:,}; "
        f"give --vocab-size {needed} or more, or a --character-coverage below {recipe.character_coverage:g}"
    )


def _plain(line: str) -> str:
    """A line with all of it open to training: sentencepiece skips lines with U+2585 and leaves out what spells a control symbol."""
    line = line.replace("\u2585", " ")
    if "<" in line:
        for symbol in SYMBOLS:
            line = line.replace(symbol, f"{symbol[0]} {symbol[1:]}")
    return line


def _lowercasing(normalization: Normalization) -> sentencepiece.SentencePieceNormalizer:
    """The rules of `normalization` followed by lower case as `str.lower` has it for single characters.

    sentencepiece's own case folding is something else: it also rewrites the lower-case final sigma, and leaves some capitals alone.
    """
    rules: dict[str, str] = {}
    if normalization != "identity":
        rules = dict(sentencepiece.SentencePieceNormalizer(rule_name=normalization).Decompile())
    rules = {text: normalized.lower() for text, normalized in rules.items()}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if character.lower() != character:
            rules.setdefault(character, character.lower())
    return sentencepiece.SentencePieceNormalizer(norm_map=list(rules.items()))
