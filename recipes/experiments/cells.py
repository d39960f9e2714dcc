"""Vanilla RNN, GRU and LSTM: what is left of a gradient on its way back through time, and how well they translate.

Legend: R sentences, T positions, P parts of a state, d width.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from torch.nn.utils.rnn import pad_sequence

from experiments import variants
from experiments.common import RNN, Corpus, Figures, Trained, Work, lines_of, listed
from experiments.joined import evenly
from experiments.variants import CERTAINLY, Variant, ahead, gain
from nmt.checkpoint import SavedModel, load_model
from nmt.config import Config
from nmt.learning import initial
from nmt.models.base import Seq2Seq
from nmt.pictures import plain
from nmt.vocab import EOS

TITLE = "Gradients through time"
CLAIM = (
    "In a vanilla RNN the gradient vanishes exponentially with the distance that it goes back in time (Bengio, Simard, Frasconi "
    "1994); the cell of an LSTM keeps it (Hochreiter, Schmidhuber 1997), and so do the gates of a GRU (Cho et al. 2014, "
    "arXiv 1406.1078)."
)

PLAIN = RNN | {"model.attention": "none"}
CELLS = {
    "rnn": Variant("vanilla RNN", PLAIN | {"model.cell": "rnn"}, "#d55e00", "s-"),
    "gru": Variant("GRU", PLAIN, "#0072b2", "o-"),
    "lstm": Variant("LSTM", PLAIN | {"model.cell": "lstm"}, "#009e73", "^-"),
}
WHEN = {"before": "before training", "after": "after training"}
PAIRS = 5
"""Of the test set in a line: few single sentences are long enough."""
STEPS = 41
"""That the decoder makes; the loss is that of the last one."""
SENTENCES = 128
VANISHED = 0.01
"""Of the gradient: where less is left after all steps, it is said to vanish."""
KEPT = (0.1, 10.0)
"""Where so much is left, it is said to be kept; where more is, to explode."""
MORE = 10
"""Times what is left in the vanilla RNN: by less no other cell is said to do better."""


def measure(work: Work) -> Figures:
    found, _ = variants.measured(work, CELLS)
    return {cell: found[cell] | {"norms": norms(work.trained(variant.settings), work.corpus)} for cell, variant in CELLS.items()}


def norms(trained: Trained, corpus: Corpus) -> dict[str, list[float]]:
    """Those of `gradients`, of the network with its first weights and with its last."""
    saved = load_model(trained.path)
    shared = bool(saved.config["vocabulary"]["shared"])
    first = initial(Config.from_dict(saved.config), len(saved.source), len(saved.target), shared)
    pairs = encoded(saved, corpus)
    return {"before": gradients(first.eval(), pairs), "after": gradients(saved.model, pairs)}


def encoded(saved: SavedModel, corpus: Corpus) -> list[tuple[list[int], list[int]]]:
    """Source and target ids of lines whose target is long enough."""
    lines = zip(*(evenly(lines_of(side), PAIRS) for side in corpus.test), strict=True)
    pairs = [([*saved.source.encode(source), EOS], saved.target.encode(target)) for source, target in lines]
    return [(source, target[:STEPS]) for source, target in pairs if len(target) >= STEPS][:SENTENCES]


def gradients(model: Seq2Seq, pairs: Sequence[tuple[list[int], list[int]]]) -> list[float]:
    """The norm of the gradient of the last step's loss with respect to the state 1, 2, … steps before; the mean of all pairs.

    A state is all that the decoder hands on: of an LSTM also its memory cell. In float64, in which nothing gets lost.
    """
    model = model.double()
    sources = [torch.tensor(source) for source, _ in pairs]
    targets = torch.tensor([target for _, target in pairs])
    lengths = torch.tensor([len(source) for source in sources])
    memory = model.encode(pad_sequence(sources, batch_first=True), lengths)
    tokens = torch.cat([torch.full((len(targets), 1), model.start_token), targets[:, :-1]], 1)
    state: Any = model.start(memory)
    states = []
    for token in tokens.unbind(1):
        states.append(state.layers)  # (R, 1, P, d)
        hidden, state = model.step(token, state, memory)
    loss = -model.log_probs(hidden).gather(1, targets[:, -1:]).sum()
    found = torch.autograd.grad(loss, states)
    return [float(each.flatten(1).norm(dim=1).mean()) for each in reversed(found)]


def left(figures: Figures, cell: str, when: str) -> float:
    """What the farthest state has of the gradient of the nearest."""
    found = figures[cell]["norms"][when]
    return float(found[-1] / found[0])


def by_step(figures: Figures, cell: str, when: str) -> float:
    """The factor of a step, if all had the same."""
    return math.pow(left(figures, cell, when), 1 / (len(figures[cell]["norms"][when]) - 1))


def fate(share: float) -> str:
    """What becomes of a gradient of which this share is left."""
    if share < VANISHED:
        return "vanishes"
    if share < KEPT[0]:
        return "shrinks"
    return "is kept" if share <= KEPT[1] else "explodes"


def holds(figures: Figures, when: str) -> bool:
    """The gradient vanishes in the vanilla RNN, and the others keep it."""
    fates = {cell: fate(left(figures, cell, when)) for cell in CELLS}
    return fates == {"rnn": "vanishes", "gru": "is kept", "lstm": "is kept"}


def sentence(figures: Figures) -> str:
    steps = len(figures["rnn"]["norms"]["after"])
    gated = ("gru", "lstm")
    said = [
        f"Of the gradient one step back these shares are left {steps} steps back (less than {VANISHED:g}: it vanishes; "
        f"{KEPT[0]:g} to {KEPT[1]:g}: it is kept)."
    ]
    for when, name in WHEN.items():
        each = [
            f"in the {variant.name} it {fate(left(figures, cell, when))} ({left(figures, cell, when):.2g}, a factor of "
            f"{by_step(figures, cell, when):.2f} a step)"
            for cell, variant in CELLS.items()
        ]
        said.append(f"{name.capitalize()} {listed(each)}.")
    said.append("(Recurrent weights begin orthogonal, which is the best start for a vanilla RNN; gates begin half open.)")
    scores = ", ".join(f"{variant.name} {figures[cell]['bleu']:.2f}" for cell, variant in CELLS.items())
    better = [CELLS[cell].name for cell in gated if ahead(gain(figures, cell, "rnn"), figures[cell]["p_value"])]
    said.append(f"BLEU on the test set: {scores}; better than the vanilla RNN {CERTAINLY}: {listed(better)}.")
    if holds(figures, "after"):
        said.append("After training the claim holds here.")
    else:
        more = [CELLS[cell].name for cell in gated if left(figures, cell, "after") > MORE * left(figures, "rnn", "after")]
        said.append(
            f"After training the claim does not hold here as it stands; more than {MORE} times what is left in the vanilla RNN is "
            f"left in: {listed(more)}."
        )
    return " ".join(said)


def table(figures: Figures) -> list[list[str]]:
    header, *rows = variants.table(figures, CELLS)
    steps = len(figures["rnn"]["norms"]["after"])
    columns = [f"gradient left after {steps} steps, {name}" for name in WHEN.values()]
    shares = [[f"{left(figures, cell, when):.2g}" for when in WHEN] for cell in CELLS]
    return [[*header, *columns], *([*row, *share] for row, share in zip(rows, shares, strict=True))]


def draw(figures: Figures, figure: Figure) -> None:
    for axes, (when, name) in zip(figure.subplots(1, 2, sharey=True), WHEN.items(), strict=True):
        for cell, variant in CELLS.items():
            found = figures[cell]["norms"][when]
            look: dict[str, Any] = {"color": variant.color, "label": variant.name, "markersize": 3}
            axes.plot(range(1, len(found) + 1), [each / found[0] for each in found], variant.style, **look)
        axes.set_yscale("log")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("steps back")
        plain(axes)
        # Tenths of tenths have too many digits.
        axes.yaxis.set_major_formatter(lambda value, _: f"$10^{{{math.log10(value):.0f}}}$")
    figure.axes[0].set_ylabel("norm of the gradient, one step back = 1")
    figure.axes[0].legend(frameon=False, fontsize=8)
