"""The Transformer against the paper's formulas (arXiv 1706.03762), written plainly in float64.

Legend: B sentences, S source positions, T target positions, d width, H heads, h = d/H.
"""

import math

import pytest
import torch
from torch import Tensor

from nmt.models import BACKENDS
from nmt.models.base import Linear, Seq2Seq
from nmt.models.transformer import SIZES, CrossAttention, Memory, Positions, SelfAttention, Settings, Transformer, _bias, sinusoids
from nmt.vocab import PAD
from tests.conftest import VOCABULARY, network, prefixes, sources


def transformer(**settings: object) -> Transformer:
    model = network("transformer", **{"width": 8, "heads": 2, "feed_forward": 12, **settings})
    assert isinstance(model, Transformer)
    # Gains, biases and the PAD vector as if trained: what is 1 or 0 everywhere could be left out unseen.
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.double()


class Paper:
    """The forward pass of one sentence, one number after another as the paper defines it."""

    def __init__(self, model: Transformer, heads: int) -> None:
        self.model, self.heads = model, heads
        self.weights = {name: value.detach() for name, value in model.state_dict().items()}
        self.cross_weights: list[Tensor] = []
        """(H, T, S) of each decoder layer."""

    def attention(
        self, queries: list[Tensor], keys: list[Tensor], values: list[Tensor], causal: bool
    ) -> tuple[list[Tensor], Tensor]:
        """One head: vectors (h,) of each position -> outputs (h,) and weights."""
        outputs, weights = [], torch.zeros(len(queries), len(keys), dtype=torch.float64)
        for t, query in enumerate(queries):
            seen = range(t + 1) if causal else range(len(keys))
            exponents = [math.exp(float(query @ keys[s]) / math.sqrt(len(query))) for s in seen]
            for s in seen:
                weights[t, s] = exponents[s] / sum(exponents)
            outputs.append(sum((weights[t, s] * values[s] for s in seen), torch.zeros_like(values[0])))
        return outputs, weights

    def multi_head(self, query: list[Tensor], key: list[Tensor], value: list[Tensor], output: Tensor, causal: bool) -> list[Tensor]:
        """Projected vectors (d,) of each position -> Concat(head_1 …) W^O; 3.2.2."""
        size = len(query[0]) // self.heads
        heads, weights = [], []
        for head in range(self.heads):
            part = slice(head * size, (head + 1) * size)
            read, weight = self.attention([q[part] for q in query], [k[part] for k in key], [v[part] for v in value], causal)
            heads.append(read)
            weights.append(weight)
        self.cross_weights.append(torch.stack(weights))
        return [output @ torch.cat([head[t] for head in heads]) for t in range(len(query))]

    def unfused(self, name: str) -> list[Tensor]:
        """Query, key and value matrices (d, d), which lie head by head in one."""
        width = self.weights[name].shape[1]
        by_head = self.weights[name].view(self.heads, 3, width // self.heads, width)
        return [by_head[:, part].reshape(width, width) for part in range(3)]

    def norm(self, name: str, x: Tensor) -> Tensor:
        deviation = x - x.mean()
        scaled = deviation / torch.sqrt((deviation**2).mean() + 1e-5)
        return scaled * self.weights[f"{name}.norm.weight"] + self.weights[f"{name}.norm.bias"]

    def residual(self, name: str, x: list[Tensor], change: list[Tensor]) -> list[Tensor]:
        """LayerNorm(x + Sublayer(x)); 3.1."""
        return [self.norm(name, before + after) for before, after in zip(x, change, strict=True)]

    def self_attention(self, name: str, x: list[Tensor], causal: bool) -> list[Tensor]:
        q, k, v = self.unfused(f"{name}.attention.inputs.weight")
        output = self.weights[f"{name}.attention.output.weight"]
        read = self.multi_head([q @ each for each in x], [k @ each for each in x], [v @ each for each in x], output, causal)
        self.cross_weights.pop()
        return self.residual(f"{name}.after_attention", x, read)

    def feed_forward(self, name: str, x: list[Tensor]) -> list[Tensor]:
        """max(0, x W_1 + b_1) W_2 + b_2; 3.3."""
        inner, outer = (
            (self.weights[f"{name}.feed_forward.{side}.weight"], self.weights[f"{name}.feed_forward.{side}.bias"])
            for side in ("inner", "outer")
        )
        change = [outer[0] @ torch.clamp(inner[0] @ each + inner[1], min=0) + outer[1] for each in x]
        return self.residual(f"{name}.after_feed_forward", x, change)

    def embed(self, table: str, ids: list[int]) -> list[Tensor]:
        """Embedding times √d, plus PE; 3.4, 3.5."""
        width = self.weights[f"{table}.weight"].shape[1]
        vectors = []
        for position, each in enumerate(ids):
            vector = self.weights[f"{table}.weight"][each] * math.sqrt(width)
            if self.model.positions is not None:
                vector = vector + torch.tensor([wave(position, i, width) for i in range(width)], dtype=torch.float64)
            vectors.append(vector)
        return vectors

    def hidden(self, src: list[int], prefix: list[int]) -> Tensor:
        """(T, d); `self.cross_weights` is filled as well."""
        x = self.embed("src_embedding", src)
        for layer in range(len(self.model.encoder)):
            x = self.self_attention(f"encoder.{layer}", x, causal=False)
            x = self.feed_forward(f"encoder.{layer}", x)
        y = self.embed("tgt_embedding", prefix)
        layers = len(self.model.decoder)
        for layer in range(layers):
            name = f"decoder.{layer}"
            y = self.self_attention(name, y, causal=True)
            key, value = self.weights["memory.weight"].chunk(2 * layers)[2 * layer : 2 * layer + 2]
            query, output = self.weights[f"{name}.cross.query.weight"], self.weights[f"{name}.cross.output.weight"]
            read = self.multi_head(
                [query @ each for each in y], [key @ each for each in x], [value @ each for each in x], output, False
            )
            y = self.residual(f"{name}.after_cross", y, read)
            y = self.feed_forward(name, y)
        return torch.stack(y)


def wave(position: int, i: int, width: int) -> float:
    """PE(p, i); 3.5."""
    angle = position / 10000 ** (i // 2 * 2 / width)
    return math.sin(angle) if i % 2 == 0 else math.cos(angle)


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("settings", [{}, {"positions": "none"}, {"encoder_layers": 1, "decoder_layers": 3, "heads": 4}])
def test_forward_is_the_papers(settings: dict[str, object], training: bool) -> None:
    model = transformer(**settings).train(training)
    src, lengths = sources([3, 5, 1])
    prefix = prefixes(model, 3, 4)
    with torch.no_grad():
        hidden = model(src, lengths, prefix)
    for row, length in enumerate(lengths.tolist()):
        expected = Paper(model, int(settings.get("heads", 2))).hidden(src[row, :length].tolist(), prefix[row].tolist())
        # The sinusoids are stored in float32; the rest is float64.
        torch.testing.assert_close(hidden[row], expected, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(model.logits(hidden[row]), expected @ model.tgt_embedding.weight.T, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("layers", "chosen"), [(1, 0), (2, 0), (3, 1)])
def test_attention_is_that_of_the_last_layer_but_one(layers: int, chosen: int) -> None:
    """Garg et al. 2019: it aligns best; the mean of its heads."""
    model = transformer(decoder_layers=layers)
    src, lengths = sources([3, 5])
    prefix = prefixes(model, 2, 4)
    weights = model.attention(prefix, model.encode(src, lengths))
    for row, length in enumerate(lengths.tolist()):
        paper = Paper(model, 2)
        paper.hidden(src[row, :length].tolist(), prefix[row].tolist())
        assert len(paper.cross_weights) == layers
        torch.testing.assert_close(weights[row, :, :length], paper.cross_weights[chosen].mean(0), atol=1e-6, rtol=1e-6)


def test_the_default_is_the_papers_base() -> None:
    """6 + 6 layers, d 512, 8 heads, feed-forward 2048: counted by formula."""
    settings = Settings()
    assert (settings.depths, settings.width, settings.heads, settings.feed_forward) == ((6, 6), 512, 8, 2048)
    assert (settings.dropout, settings.attention_dropout, settings.positions) == (0.1, 0.0, "sinusoidal")
    assert (settings.tie_embeddings, settings.start) == (True, "bos")
    assert Settings(**SIZES["base"]) == settings
    with torch.device("meta"):
        model = BACKENDS["transformer"].network(settings, 37000, 37000, True)
    d, inner = 512, 2048
    attention, feed_forward, norm = 4 * d * d, 2 * d * inner + inner + d, 2 * d
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    assert sum(parameter.numel() for parameter in model.parameters()) == 37000 * d + 6 * (encoder + decoder)


@pytest.mark.parametrize(
    ("size", "expected"),
    [("tiny", (4, 128, 256, 4, 0.3)), ("small", (6, 512, 1024, 4, 0.3)), ("big", (6, 1024, 4096, 16, 0.3))],
)
def test_sizes(size: str, expected: tuple[object, ...]) -> None:
    settings = Settings(**SIZES[size])
    found = (settings.layers, settings.width, settings.feed_forward, settings.heads, settings.dropout)
    assert found == expected
    assert settings.depths == (expected[0], expected[0])


def test_post_norm() -> None:
    """The last thing in each layer is its norm: at the start, when gains are 1 and biases 0, outputs have mean 0, variance 1."""
    model = network("transformer", layers=3)
    src, lengths = sources([4, 7])
    outputs: list[Tensor] = []
    for layer in [*model.get_submodule("encoder").children(), *model.get_submodule("decoder").children()]:
        layer.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    outputs.append(model(src, lengths, prefixes(model, 2, 5)))
    assert len(outputs) == 7
    for output in outputs:
        torch.testing.assert_close(output.mean(-1), torch.zeros(output.shape[:-1]), atol=1e-5, rtol=0)
        torch.testing.assert_close(output.var(-1, correction=0), torch.ones(output.shape[:-1]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("width", [2, 6, 128])
@pytest.mark.parametrize("position", [0, 1, 2, 77, 1023, 1024, 5000, 1_000_000])
def test_sinusoids(width: int, position: int) -> None:
    expected = torch.tensor([[wave(position, i, width) for i in range(width)]], dtype=torch.float64).float()
    torch.testing.assert_close(sinusoids(position, position + 1, width), expected, atol=1e-7, rtol=0)
    torch.testing.assert_close(Positions(width)(position, position + 1), expected, atol=1e-7, rtol=0)


def test_positions_go_on_beyond_the_table() -> None:
    positions = Positions(16)
    assert not list(positions.state_dict())
    assert torch.equal(positions(1000, 1100), sinusoids(0, 1100, 16)[1000:])
    model = network("transformer", layers=1)
    src, lengths = sources([1100, 3])
    assert model(src, lengths, prefixes(model, 2, 1030)).isfinite().all()


def encoded(model: Seq2Seq, src: Tensor) -> Tensor:
    """Keys and values of the first decoder layer (B, S, H·2h)."""
    memory = model.encode(src, torch.full((len(src),), src.shape[1]))
    assert isinstance(memory, Memory)
    return torch.cat([memory.keys[0], memory.values[0]], -1).transpose(1, 2).flatten(2)


def test_without_positions_the_encoder_is_permutation_equivariant() -> None:
    src, _ = sources([9, 9])
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    blind, model = network("transformer", positions="none"), network("transformer")
    torch.testing.assert_close(encoded(blind, src[:, order]), encoded(blind, src)[:, order], atol=1e-5, rtol=1e-5)
    assert (encoded(model, src[:, order]) - encoded(model, src)[:, order]).abs().max() > 0.1


def first_input(model: Seq2Seq, src: Tensor, lengths: Tensor) -> Tensor:
    """What the encoder's first layer reads."""
    seen: list[Tensor] = []
    hook = model.get_submodule("encoder.0").register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model.encode(src, lengths)
    hook.remove()
    return seen[0]


def test_embeddings_are_scaled_then_positions_added_then_dropped() -> None:
    model = network("transformer", width=64, dropout=0.25)
    src, lengths = sources([50, 50])
    x = model.get_parameter("src_embedding.weight")[src] * 8 + sinusoids(0, 50, 64)
    torch.testing.assert_close(first_input(model, src, lengths), x)
    dropped = first_input(model.train(), src, lengths)
    kept = dropped != 0
    assert abs(kept.float().mean() - 0.75) < 0.02
    torch.testing.assert_close(dropped, x / 0.75 * kept)


def test_initial_weights() -> None:
    """Xavier's bound for each matrix by itself, however fused, over √sublayers for those that write into the residual stream;
    embeddings of variance 1/d; PAD is the zero vector."""
    model = network("transformer", 2000, 1500, False, width=48, layers=2, heads=4, feed_forward=100)
    square, feed_forward = math.sqrt(6 / 96), math.sqrt(6 / 148)
    for name, module in model.named_modules():
        if isinstance(module, Linear) and name != "output":
            bound = feed_forward if "feed_forward" in name else square
            if name.endswith((".output", ".outer")):
                bound /= math.sqrt(4 if name.startswith("encoder") else 6)  # two layers of two or three sublayers
            largest = module.weight.abs().max()
            assert 0.98 * bound < largest <= bound, name
            assert abs(module.weight.std() - bound / math.sqrt(3)) < 0.03 * bound, name
            assert (module.bias is not None) == ("feed_forward" in name)
            if module.bias is not None:
                assert not module.bias.any()
    for name in ("src_embedding.weight", "tgt_embedding.weight"):
        table = model.get_parameter(name)
        assert not table[PAD].any()
        assert abs(table.std() - 48**-0.5) < 0.01 * 48**-0.5


def test_pad_as_an_input_trains_nothing() -> None:
    model = network("transformer", tie_embeddings=False).train()
    src, lengths = sources([3, 9])
    prefix = prefixes(model, 2, 5)
    prefix[0, 3:] = PAD
    model(src, lengths, prefix).square().sum().backward()
    for name in ("src_embedding.weight", "tgt_embedding.weight"):
        gradient = model.get_parameter(name).grad
        assert gradient is not None
        assert not gradient[PAD].any()
        assert gradient.any()


def test_attention_dropout_acts_in_training_only() -> None:
    model = network("transformer", attention_dropout=0.5)
    src, lengths = sources([5, 3])
    prefix = prefixes(model, 2, 6)
    assert torch.equal(model(src, lengths, prefix), network("transformer")(src, lengths, prefix))
    model.train()
    assert not torch.equal(model(src, lengths, prefix), model(src, lengths, prefix))


@pytest.mark.parametrize("kind", [SelfAttention, CrossAttention])
def test_heads_are_independent(kind: type[SelfAttention] | type[CrossAttention]) -> None:
    """H heads over d/H dimensions each: another query in one head changes what that head reads, not what the others read."""
    attention = kind(12, 3, 0.0).eval()
    query, key, value = (torch.randn(2, 3, size, 4, generator=torch.Generator().manual_seed(size)) for size in (4, 5, 6))
    value = value[:, :, :5]
    changed = query.clone()
    changed[:, 1] += 1
    before, after = attention.attend(query, key, value, None), attention.attend(changed, key, value, None)
    assert [torch.equal(before[:, head], after[:, head]) for head in range(3)] == [True, False, True]


def test_a_row_that_may_see_nothing_is_no_nan() -> None:
    attention = SelfAttention(12, 3, 0.0)
    x = torch.randn(2, 5, 12, requires_grad=True)
    mask = torch.ones(2, 3, 1, 5, dtype=torch.bool)
    mask[1] = False
    for training in (False, True):
        output = attention.train(training)(x, mask if training else _bias(mask, x))
        assert output.isfinite().all()
        (gradient,) = torch.autograd.grad(output.sum(), x)
        assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": 0}, "heads must be at least 1, not 0"),
        ({"feed_forward": 0}, "feed_forward must be at least 1, not 0"),
        ({"attention_dropout": 1.0}, "attention_dropout must be at least 0 and less than 1, not 1.0"),
        ({"positions": "learned"}, "positions must be one of sinusoidal, none, not 'learned'"),
        ({"width": 100}, "width 100 cannot be shared by 8 heads"),
        ({"width": 9, "heads": 3}, "width 9 is odd"),
    ],
)
def test_impossible_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**settings)


def test_an_odd_width_without_positions() -> None:
    model = network("transformer", width=9, heads=3, positions="none")
    assert model(*sources([3]), prefixes(model, 1, 2)).shape == (1, 2, 9)


def test_memory_is_one_row_a_sentence() -> None:
    """The cost that the design promises: 2·S·d numbers a layer and sentence, however many hypotheses read them."""
    model = network("transformer", layers=3)
    memory = model.encode(*sources([7, 7], VOCABULARY))
    assert isinstance(memory, Memory)
    assert [part.numel() for part in memory.keys + memory.values] == [2 * 7 * 32] * 6
    assert memory.mask is not None and not memory.mask.any()
    padded = model.encode(*sources([7, 3]))
    assert isinstance(padded, Memory)
    assert padded.mask is not None and padded.mask[:, :, 0].any(-1).tolist() == [[False] * model.heads, [True] * model.heads]
