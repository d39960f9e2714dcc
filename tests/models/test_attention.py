"""Attention against naive loops, its gradient against the closed form, masks in every precision."""

import math

import pytest
import torch
from torch import Tensor

from nmt.models.attention import (
    SCORES,
    Additive,
    Bilinear,
    Dot,
    ScaledDot,
    Score,
    attend,
    batched_product,
    causal_mask,
    masked_softmax,
    padding_mask,
)
from nmt.models.steps import batched

B, T, S, WIDTH = 3, 4, 5, 6


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def scores(score: Score, query: Tensor, key: Tensor) -> Tensor:
    return score.over(score.prepare(key), steps=1)(query)


def attended(score: Score, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    return attend(score.over(score.prepare(key), steps=1), query, batched(batched_product, value, steps=1), mask)


def naive_score(score: Score, query: Tensor, key: Tensor) -> float:
    """The formula of one query (q,) and one key (k,)."""
    match score:
        case Additive():
            inner = [
                math.tanh(float(w @ query) + float(u @ key)) for w, u in zip(score.query.weight, score.key.weight, strict=True)
            ]
            return sum(float(v) * x for v, x in zip(score.vector.weight[0], inner, strict=True))
        case Bilinear():
            weight = score.key.weight
            return sum(float(query[i] * weight[i, j] * key[j]) for i in range(len(query)) for j in range(len(key)))
        case ScaledDot():
            return sum(float(q * k) for q, k in zip(query, key, strict=True)) / len(query) ** 0.5
        case Dot():
            return sum(float(q * k) for q, k in zip(query, key, strict=True))
    raise AssertionError(score)


@pytest.mark.parametrize("name", SCORES)
def test_attend_equals_loops(name: str) -> None:
    torch.manual_seed(3)
    score = SCORES[name](WIDTH, WIDTH).double()
    query, key, value = draw(B, T, WIDTH, seed=1), draw(B, S, WIDTH, seed=2), draw(B, S, 7, seed=3)
    lengths = [5, 2, 1]
    mask = padding_mask(torch.tensor(lengths), S).unsqueeze(1)
    with torch.no_grad():
        output, weights = attended(score, query, key, value, mask)
        for b in range(B):
            for t in range(T):
                exps = [math.exp(naive_score(score, query[b, t], key[b, j])) for j in range(lengths[b])]
                expected = [x / sum(exps) for x in exps] + [0.0] * (S - lengths[b])
                assert weights[b, t].tolist() == pytest.approx(expected, abs=1e-12)
                context = sum(p * value[b, j] for j, p in enumerate(expected))
                torch.testing.assert_close(output[b, t], context, rtol=0, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_gradient_equals_closed_form(masked: bool) -> None:
    """dV = Pᵀ dO; dP = dO Vᵀ; dS = P ⊙ (dP − rowsum(dP ⊙ P)); dQ = dS K / √d; dK = dSᵀ Q / √d."""
    query, key, value = (draw(B, n, WIDTH, seed=n).requires_grad_() for n in (T, S, S))
    mask = (padding_mask(torch.tensor([5, 3, 1]), S) if masked else torch.ones(B, S, dtype=torch.bool)).unsqueeze(1)
    score = ScaledDot(WIDTH, WIDTH)
    output, weights = attended(score, query, key, value, mask)
    upstream = draw(*output.shape, seed=9)
    gradients = torch.autograd.grad(output, (query, key, value), upstream)

    p, q, k, v = (x.detach() for x in (weights, query, key, value))
    d_p = upstream @ v.mT
    d_s = p * (d_p - (d_p * p).sum(-1, keepdim=True))
    expected = (d_s @ k / math.sqrt(WIDTH), d_s.mT @ q / math.sqrt(WIDTH), p.mT @ upstream)
    for gradient, closed_form in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, closed_form, rtol=0, atol=1e-10)


@pytest.mark.parametrize("width", [16, 256, 1024])
def test_variance_of_a_dot_product_is_the_width(width: int) -> None:
    query, key = draw(1, 200, width, seed=1), draw(1, 200, width, seed=2)
    assert float(scores(Dot(width, width), query, key).var()) == pytest.approx(width, rel=0.1)
    assert float(scores(ScaledDot(width, width), query, key).var()) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("name", ["dot", "scaled-dot"])
def test_dot_refuses_unequal_widths(name: str) -> None:
    with pytest.raises(ValueError, match=r"width 4 and a key of width 8"):
        SCORES[name](4, 8)


@pytest.mark.parametrize("name", SCORES)
def test_queries_do_not_meet(name: str) -> None:
    """K hypotheses as K queries of one sentence are what each is alone."""
    torch.manual_seed(3)
    score = SCORES[name](WIDTH, WIDTH).double()
    query, key = draw(B, T, WIDTH, seed=1), draw(B, S, WIDTH, seed=2)
    compare = score.over(score.prepare(key), steps=T)
    alone = torch.cat([compare(query[:, t : t + 1]) for t in range(T)], 1)
    torch.testing.assert_close(scores(score, query, key), alone, rtol=0, atol=1e-12)


def test_masks_mark_what_may_be_seen() -> None:
    assert padding_mask(torch.tensor([1, 3]), 4).tolist() == [[True, False, False, False], [True, True, True, False]]
    assert causal_mask(3, torch.device("cpu")).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_mask_in_every_precision(dtype: torch.dtype) -> None:
    """Large scores, a row that may see nothing: no NaN, exactly 0 where hidden, forward and backward."""
    scores = (draw(2, 3, 4, seed=1) * 1e4).to(dtype).requires_grad_()
    mask = torch.tensor([[[True, False, True, True]], [[False] * 4]])
    weights = masked_softmax(scores, mask)
    assert weights.dtype == dtype
    assert not weights[0, :, 1].any()
    assert not weights[1].any()
    assert weights[0].double().sum(-1).tolist() == pytest.approx([1.0] * 3, abs=1e-2)
    weights.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert not scores.grad[1].any()


def test_a_query_that_sees_nothing_gets_zero() -> None:
    score = ScaledDot(WIDTH, WIDTH)
    output, _ = attended(
        score,
        draw(2, 1, WIDTH, seed=1),
        draw(2, S, WIDTH, seed=2),
        draw(2, S, 3, seed=3),
        padding_mask(torch.tensor([2, 0]), S)[:, None],
    )
    assert output[0].any()
    assert not output[1].any()


@pytest.mark.parametrize("name", SCORES)
def test_hidden_keys_change_no_bit(name: str) -> None:
    torch.manual_seed(3)
    score = SCORES[name](WIDTH, WIDTH).double()
    query, key, value = draw(B, T, WIDTH, seed=1), draw(B, S, WIDTH, seed=2), draw(B, S, 7, seed=3)
    mask = padding_mask(torch.tensor([3, 3, 3]), S).unsqueeze(1)
    before, _ = attended(score, query, key, value, mask)
    key[:, 3:] = 1e3
    value[:, 3:] = -1e3
    after, _ = attended(score, query, key, value, mask)
    assert torch.equal(before, after)


@pytest.mark.parametrize("queries", [1, 2, 5, 8])
@pytest.mark.parametrize("keys", [1, 3, 13, 50])
def test_company_changes_no_bit_of_a_product(queries: int, keys: int) -> None:
    left, right = draw(40, queries, 64, seed=1, dtype=torch.float32), draw(40, 64, keys, seed=2, dtype=torch.float32)
    whole = batched_product(left, right)
    for size in (1, 2, 3, 7, 39):
        assert torch.equal(batched_product(left[:size], right[:size]), whole[:size]), size
