"""Models in the formats of other programs, for who wants to serve them there; `FORMATS` is the list of them.

CTranslate2 (https://opennmt.net/CTranslate2) computes Transformers on CPUs and GPUs. Its layout has a layer norm after each
residual sum, as ours, and the same order of heads, so that nothing is lost on the way: it computes the same numbers, to rounding.

Legend: d width, H heads, h = d/H, P positions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

import nmt
from nmt.checkpoint import SOURCE, TARGET, SavedModel, load_model
from nmt.config import Config
from nmt.data.files import check_directory, new_directory
from nmt.data.subword import Subword
from nmt.errors import NmtError
from nmt.models.transformer import DecoderLayer, EncoderLayer, FeedForward, Heads, Residual, SelfAttention, Transformer, sinusoids
from nmt.vocab import BOS, EOS, SYMBOLS, UNK

POSITIONS = 4096
"""The most subwords of a sentence in an exported model, `</s>` and the start token counted: CTranslate2 reads positions from a
table. One row more takes 4·d bytes, so at width 512 the table takes 8 MB."""

README = "README.md"

CTRANSLATE2_USE = """\
# A translation model for CTranslate2

Made by nmt {version}, in float32. `pip install ctranslate2 sentencepiece`, then, in this directory:

```python
import ctranslate2
from sentencepiece import SentencePieceProcessor

source = SentencePieceProcessor(model_file="source.model")
target = SentencePieceProcessor(model_file="target.model")
translator = ctranslate2.Translator(".", device="cpu", compute_type="float32")  # or int8: faster, a little less exact


def translate(line: str) -> str:
    pieces = source.encode(line, out_type=str)
    result = translator.translate_batch(
        [pieces],
        beam_size=5,
        length_penalty=0,
        max_input_length=0,
        min_decoding_length=0,
        max_decoding_length=len(pieces) + 50,
        suppress_sequences=[["<pad>"], ["<unk>"], ["<s>"]],
    )[0]
    return target.decode(result.hypotheses[0])
```

A sentence may have {positions:,} pieces. Scores that CTranslate2 returns leave out the probability of what is suppressed;
`score_batch` gives those of the model.
"""


@dataclass(frozen=True)
class Format:
    """A format to export to."""

    write: Callable[[SavedModel, Path], None]
    """Writes a model into an existing empty directory. Raises NmtError for one that the format cannot hold."""
    use: str
    """The text of the directory's README.md."""
    load: str
    """How a program loads the directory `{}`, in one line."""


def export(path: Path, format: str, output: Path, overwrite: bool = False) -> int:
    """Write the model at `path` as the directory `output`, whole or not at all; the bytes that it takes.

    Beside what the format itself asks for it holds both subword models and a README.md that says how to use them. Raises NmtError
    for a model that the format cannot hold, a package that is not installed, and an `output` that may not be written.
    """
    check_directory(output, overwrite, [path])
    chosen = FORMATS[format]
    saved = load_model(path)
    with new_directory(output, overwrite) as partial:
        chosen.write(saved, partial)
        saved.source.save(partial / SOURCE)
        saved.target.save(partial / TARGET)
        (partial / README).write_text(chosen.use.format(version=nmt.__version__, positions=POSITIONS), encoding="utf-8")
        return sum(file.stat().st_size for file in partial.iterdir())


def import_ctranslate2() -> Any:
    """The package, an optional one. Raises NmtError that says how to install it."""
    try:
        import ctranslate2
        import ctranslate2.specs
    except ImportError as error:
        raise NmtError(f"the package ctranslate2 is not there ({error}): pip install 'nmt[ctranslate2]'") from error
    return ctranslate2


def write_ctranslate2(saved: SavedModel, directory: Path, positions: int = POSITIONS) -> None:
    """Fill an existing directory with what `ctranslate2.Translator` loads: weights, vocabularies and config.json.

    It takes sentences of up to `positions` tokens, `</s>` and the start token counted. Raises NmtError for a model that is no
    Transformer, or where the package is not installed.
    """
    specs = import_ctranslate2().specs
    config = Config.from_dict({"model": saved.config["model"]})
    if config.backend != "transformer":
        raise NmtError(f"{saved.path}: its backend is {config.backend}, and CTranslate2 computes the transformer only")
    network = cast(Transformer, saved.model)
    # A ModuleList forgets the type.
    encoder, decoder = cast(list[EncoderLayer], list(network.encoder)), cast(list[DecoderLayer], list(network.decoder))
    spec = specs.TransformerSpec.from_config(
        (len(encoder), len(decoder)), network.heads, pre_norm=False, activation=specs.Activation.RELU
    )
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = SYMBOLS[BOS], SYMBOLS[EOS], SYMBOLS[UNK]
    spec.config.decoder_start_token = SYMBOLS[network.start_token]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = encoder[0].after_attention.norm.eps
    for key, value in (("kind", "export"), ("format", "ctranslate2"), ("version", nmt.__version__)):  # `files.made_as` reads them
        spec.config.add_attribute(key, value)
    spec.register_source_vocabulary(pieces(saved.source, saved.path / SOURCE))
    spec.register_target_vocabulary(pieces(saved.target, saved.path / TARGET))
    _set_weights(spec, network, encoder, decoder, _position_table(network, positions))
    spec.validate()
    spec.optimize(quantization=None)  # what is tied is stored once
    spec.save(str(directory))


def pieces(subword: Subword, path: Path) -> list[str]:
    """The names of all ids. NmtError where two have one name: CTranslate2 tells them apart by it."""
    names = subword.pieces(range(len(subword)))
    if len(set(names)) < len(names):
        raise NmtError(f"{path}: spells two subwords alike, and CTranslate2 needs a name for each; train it with nmt preprocess")
    return names


def _position_table(network: Transformer, positions: int) -> Tensor:
    """What is added to the word vectors, (P, d). CTranslate2's own sinusoids are in another order and have other periods."""
    width = network.tgt_embedding.embedding_dim
    return torch.zeros(positions, width) if network.positions is None else sinusoids(0, positions, width)


def _set_weights(
    spec: Any, network: Transformer, encoder: Sequence[EncoderLayer], decoder: Sequence[DecoderLayer], table: Tensor
) -> None:
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = True  # by √d
        side.position_encodings.encodings = table
    spec.encoder.embeddings[0].weight = network.src_embedding.weight
    spec.decoder.embeddings.weight = network.tgt_embedding.weight
    spec.decoder.projection.weight = network.output.weight
    for theirs, reader in zip(spec.encoder.layer, encoder, strict=True):
        _set_self_attention(theirs.self_attention, reader.attention, reader.after_attention)
        _set_feed_forward(theirs.ffn, reader.feed_forward, reader.after_feed_forward)
    # Keys then values of each decoder layer: what one layer reads of the memory lies side by side.
    memory = network.memory.weight.chunk(len(decoder))
    for theirs, writer, keys_values in zip(spec.decoder.layer, decoder, memory, strict=True):
        _set_self_attention(theirs.self_attention, writer.attention, writer.after_attention)
        theirs.attention.linear[0].weight = writer.cross.query.weight
        theirs.attention.linear[1].weight = keys_values
        _set_output(theirs.attention, 2, writer.cross, writer.after_cross)
        _set_feed_forward(theirs.ffn, writer.feed_forward, writer.after_feed_forward)


def _set_self_attention(theirs: Any, ours: SelfAttention, after: Residual) -> None:
    theirs.linear[0].weight = queries_keys_values(ours.inputs.weight, ours.heads)
    _set_output(theirs, 1, ours, after)


def _set_output(theirs: Any, place: int, ours: Heads, after: Residual) -> None:
    theirs.linear[place].weight = ours.output.weight
    _set_norm(theirs.layer_norm, after.norm)


def _set_feed_forward(theirs: Any, ours: FeedForward, after: Residual) -> None:
    for linear, layer in ((theirs.linear_0, ours.inner), (theirs.linear_1, ours.outer)):
        linear.weight, linear.bias = layer.weight, layer.bias
    _set_norm(theirs.layer_norm, after.norm)


def _set_norm(theirs: Any, ours: nn.LayerNorm) -> None:
    theirs.gamma, theirs.beta = ours.weight, ours.bias


def queries_keys_values(fused: Tensor, heads: int) -> Tensor:
    """The rows of `SelfAttention.inputs` (3d, d), head by head, as those of all queries, all keys, all values."""
    return fused.view(heads, 3, -1, fused.shape[1]).transpose(0, 1).reshape_as(fused)


FORMATS = {"ctranslate2": Format(write_ctranslate2, CTRANSLATE2_USE, 'ctranslate2.Translator("{}")')}
