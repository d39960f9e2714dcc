"""Label-smoothed cross entropy over real target positions, without ever holding the (tokens × V) matrix.

The smoothed loss of one position is (1 − ε)·(−log p(y)) + ε·mean over v of (−log p(v)): cross entropy with a target
distribution of which ε is uniform (Szegedy et al. 2016, arXiv 1512.00567, section 7; used by Vaswani et al. 2017).
Its gradient in the logits is softmax − (1 − ε)·onehot(y) − ε/V, and is written where the softmax stands.

R-Drop (Liang et al. 2021, arXiv 2106.14448, eq. 4) has all pairs go through the network twice, with other dropout, and asks the two
distributions p and q of a position to agree: L₁ + L₂ + α/2·(KL(p‖q) + KL(q‖p)), which the authors' program divides by the
positions, each counted once. Here it is half of that, so that α weighs as in the paper and the loss is on the scale of one pass:
its numbers, and limits of the gradient's norm, compare with those of a training without.
With logits a and b, δ = a − b, and the mean of δ under p, KL(p‖q) + KL(q‖p) = Σ (p − q)·δ has in a the gradient
p·(δ − mean) + p − q: a number added to all of a changes neither, so no log-probability is needed.

Legend: B sentences, T target positions, N real ones among B·T, P passes (2 with R-Drop, else 1), d width, V target vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.vocab import PAD

# Numbers in a chunk of logits. On a CPU, blocks above 32 MB go back to the system each time, and the page faults cost four times
# what the softmax does. On a GPU it takes some 8,000 rows at V = 32,000 to have the product that gives the gradient of the hidden
# states, (N, V) times (V, d), fill a large one twice over; only batches of that many tokens take the memory, half a gigabyte a copy
# in bfloat16.
CHUNK = {"cpu": 2**22, "cuda": 2**28}

Logits = Callable[[Tensor], Tensor]
"""(N, d) -> (N, V), as `Seq2Seq.logits`."""
Gradient = Callable[[Tensor, Tensor, float, Tensor | float, float], tuple[Tensor, Tensor, Tensor, Tensor]]
"""`gradient`, or the same compiled."""


@dataclass(frozen=True)
class Sums:
    """Sums over real target positions: tensors of one number, left on the device, so that nobody waits for them.

    Of two passes, the mean of their sums.
    """

    loss: Tensor
    """Smoothed, and with R-Drop's term."""
    nll: Tensor
    """−log p(y), not smoothed; natural log."""
    correct: Tensor
    """Positions whose target has the highest logit (a tie counts)."""
    tokens: int

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.loss + other.loss, self.nll + other.nll, self.correct + other.correct, self.tokens + other.tokens)


def nothing(device: torch.device) -> Sums:
    """The sums over no position."""
    loss, nll, correct = torch.zeros(3, dtype=torch.float64, device=device).unbind()
    return Sums(loss, nll, correct, 0)


def gradient(
    scores: Tensor, labels: Tensor, smoothing: float, weight: Tensor | float, r_drop: float = 0.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of logits (N, V) and labels (N,): the summed loss, nll and correct positions, and `weight` × the loss's gradient (N, V).

    With `r_drop`, R-Drop's α, logits (2N, V) and labels (2N,) hold the N of one pass and then the same N of the other.

    Nothing but passes over (N, V) numbers, ten of them. Compiled they become a few: counted in bytes, that saves a GPU a tenth of
    the time of an update of the base Transformer or more.
    """
    sums, slope = _measure(scores, labels, smoothing)
    loss, nll, correct = sums.loss, sums.nll, sums.correct
    if r_drop:
        loss, nll, correct = (loss + _divergence(scores, slope, r_drop)) / 2, nll / 2, correct / 2
        weight = weight / 2
    slope.sub_(smoothing / slope.shape[-1])
    slope.scatter_add_(1, labels[:, None], slope.new_full((len(slope), 1), smoothing - 1))
    return loss, nll, correct, slope.mul_(weight).to(scores.dtype)


def _divergence(scores: Tensor, probabilities: Tensor, r_drop: float) -> Tensor:
    """Of logits (2N, V) and their softmax, each of one pass and then of the other: the sum over N of α/2·(KL(p‖q) + KL(q‖p)).

    Its gradient in the logits is added to `probabilities`.
    """
    (one, other), (p, q) = scores.to(probabilities.dtype).chunk(2), probabilities.chunk(2)
    difference, gap = one - other, p - q
    mean_p, mean_q = (p * difference).sum(-1, keepdim=True), (q * difference).sum(-1, keepdim=True)
    half = r_drop / 2
    p.mul_((1 - half * mean_p).add(difference, alpha=half)).add_(gap, alpha=half)
    q.mul_((1 + half * mean_q).sub(difference, alpha=half)).sub_(gap, alpha=half)
    return half * (mean_p - mean_q).sum()


def backward(
    logits: Logits,
    hidden: Tensor,
    target: Tensor,
    tokens: int,
    smoothing: float,
    weight: Tensor | float,
    gradient: Gradient = gradient,
    r_drop: float = 0.0,
) -> Sums:
    """Adds the gradient of `weight` × the summed loss to the parameters behind `hidden` (PB, T, d) and `logits`.

    target (PB, T) holds P·`tokens` ids that are not PAD; the others have no part in anything. The sums are not weighted.
    With `r_drop`, R-Drop's α, P is 2: the rows of one pass and then the same of the other, with the same targets.
    """
    passes = 2 if r_drop else 1
    rows, labels = _real(hidden, target, passes * tokens)  # of one pass after the other, each in the same order
    rows, labels = rows.view(passes, tokens, -1), labels.view(passes, tokens)
    leaf = rows.detach().requires_grad_()  # the graph of a chunk ends here and is gone before the next chunk
    total = nothing(hidden.device)
    chunk = max(1, _chunk(logits, rows[0]) // passes)
    for start in range(0, tokens, chunk):
        states, gold = (each[:, start : start + chunk].flatten(0, 1) for each in (leaf, labels))
        scores = logits(states)
        loss, nll, correct, slope = gradient(scores.detach(), gold, smoothing, weight, r_drop)
        total = total + Sums(loss, nll, correct, len(gold) // passes)
        torch.autograd.backward(scores, slope)
    torch.autograd.backward(rows, leaf.grad)
    return total


@torch.no_grad()
def evaluate(logits: Logits, hidden: Tensor, target: Tensor, tokens: int, smoothing: float) -> Sums:
    """The sums that `backward` returns, and no gradient."""
    rows, labels = _real(hidden, target, tokens)
    total = nothing(hidden.device)
    chunk = _chunk(logits, rows)
    for start in range(0, tokens, chunk):
        total = total + _measure(logits(rows[start : start + chunk]), labels[start : start + chunk], smoothing)[0]
    return total


def _real(hidden: Tensor, target: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """hidden (N, d) and target (N,) of the real positions. They are sorted to the front: a mask would make the host wait."""
    index = target.flatten().eq(PAD).argsort(stable=True)[:tokens]
    return hidden.flatten(0, 1).index_select(0, index), target.flatten().index_select(0, index)


def _chunk(logits: Logits, rows: Tensor) -> int:
    """Rows of a chunk; V is read off the logits of one row."""
    with torch.no_grad():
        return max(1, CHUNK[rows.device.type] // logits(rows[:1]).shape[-1])


@torch.no_grad()
def _measure(scores: Tensor, labels: Tensor, smoothing: float) -> tuple[Sums, Tensor]:
    """The sums of logits (N, V) and labels (N,), and the softmax (N, V), float32 or wider.

    One exponential is taken for each logit: the largest probability is exp(highest − log Z), which gives log Z back.
    """
    scores = scores.detach().to(torch.promote_types(scores.dtype, torch.float32))
    probabilities = scores.softmax(-1)
    highest = scores.amax(-1)
    log_z = highest - probabilities.amax(-1).log()
    gold = scores.gather(-1, labels[:, None]).squeeze(-1)
    nll = log_z - gold
    loss = (1 - smoothing) * nll + smoothing * (log_z - scores.mean(-1))
    return Sums(loss.sum(), nll.sum(), (gold >= highest).sum(), len(labels)), probabilities
