"""Plants bugs, one at a time, in a copy of the tree and runs the tests: each must turn at least one test red.

The tests are run without any bug first: where one fails then, its red would say nothing of the bugs, and nothing is planted.

    make planted            all of them (minutes; not part of `make test`)
    python tests/planted.py mask cache      those whose name has one of the words

Prints a line a bug: `red`, with the first test that failed, or `GREEN`; the exit code counts the green ones. Tests that could
not even be run (a bug that is no Python, say) have not seen it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SEARCH = ("tests/search",)
MODELS = ("tests/models",)


@dataclass(frozen=True)
class Bug:
    """One fault that people really made."""

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


BUGS = [
    Bug(
        "causal mask off",
        "nmt/models/transformer.py",
        "self.attention(x, None, causal=True)",
        "self.attention(x, None, causal=False)",
        MODELS,
    ),
    Bug(
        "source mask off in one network: Transformer",
        "nmt/models/transformer.py",
        "heads[1::2], real, mask)",
        "heads[1::2], real, None)",
        MODELS,
    ),
    Bug(
        "source mask off in one network: RNN",
        "nmt/models/rnn.py",
        "mask=padding_mask(lengths, states.shape[1]).unsqueeze(1)",
        "mask=torch.ones_like(padding_mask(lengths, states.shape[1])).unsqueeze(1)",
        MODELS,
    ),
    Bug(
        "encoder mask off",
        "nmt/models/transformer.py",
        "x = layer(x, mask)",
        "x = layer(x, None)",
        MODELS,
    ),
    Bug(
        "position offset lost in the cache",
        "nmt/models/transformer.py",
        "self._embed(self.tgt_embedding(token), position, 1)",
        "self._embed(self.tgt_embedding(token), 0, 1)",
        MODELS,
    ),
    Bug(
        "RNN run over padding",
        "nmt/models/recurrent.py",
        "self._loops(inputs, lengths.tolist(), state)",
        "self._loops(inputs, [inputs.shape[1]] * len(inputs), state)",
        MODELS,
    ),
    Bug(
        "state not reordered",
        "nmt/search/beam.py",
        "first + parents",
        "first + torch.arange(parents.shape[1]).clamp(max=live.width - 1)",
        SEARCH,
    ),
    Bug(
        "history not reordered",
        "nmt/search/pool.py",
        "tokens=self.tokens.take_along_dim(order.unsqueeze(2), dim=1)",
        "tokens=self.tokens[:, torch.arange(order.shape[1]).clamp(max=self.width - 1)]",
        SEARCH,
    ),
    Bug(
        "K instead of 2K candidates",
        "nmt/search/beam.py",
        "stable=True).indices[:, : 2 * self.size]",
        "stable=True).indices[:, : self.size + width]",
        SEARCH,
    ),
    Bug(
        "one length limit for the batch",
        "nmt/search/pool.py",
        "(self.limit == paths.length)",
        "(self.limit.max().expand_as(self.limit) == paths.length)",
        SEARCH,
    ),
    Bug(
        "all beams started alike",
        "nmt/search/beam.py",
        "return Beams(sentences, model.start(sentences.memory), live, over, finished)",
        "live = Paths.empty(count, self.size, waiting.device)\n"
        "            state = model.start(sentences.memory).select(torch.arange(count).repeat_interleave(self.size))\n"
        "            return Beams(sentences, state, live, over, finished)",
        SEARCH,
    ),
    Bug(
        "length counted without </s>",
        "nmt/search/beam.py",
        "length = (paths.tokens != NOTHING).sum(dim=2)",
        "length = ((paths.tokens != NOTHING) & (paths.tokens != 3)).sum(dim=2)",
        SEARCH,
    ),
    Bug(
        "memory not shrunk with its sentences",
        "nmt/search/pool.py",
        "return self if size >= len(self.over) else self.select(self.over.byte().sort(stable=True).indices[:size])",
        "kept = self if size >= len(self.over) else self.select(self.over.byte().sort(stable=True).indices[:size])\n"
        "        kept.sentences.memory = self.sentences.memory\n"
        "        return kept",
        SEARCH,
    ),
    Bug(
        "</s> probability dropped",
        "nmt/search/beam.py",
        "tokens.gather(1, order), values.gather(1, order)",
        "tokens.gather(1, order), values.gather(1, order) * (tokens.gather(1, order) != 3)",
        SEARCH,
    ),
    Bug(
        "stop at the first K finished",
        "nmt/search/beam.py",
        "return ~can_win",
        "return (finished.log_prob[:, -1] > -math.inf) | (live.log_prob[:, 0] == -math.inf)",
        SEARCH,
    ),
    Bug(
        "smoothing over padding",
        "nmt/loss.py",
        "index = target.flatten().eq(PAD).argsort(stable=True)[:tokens]",
        "index = torch.arange(target.numel())",
        ("tests/test_loss.py", "tests/test_train.py"),
    ),
    Bug(
        "accumulation weighting unequal batches equally",
        "nmt/learning.py",
        "settings.label_smoothing, weight, self.gradient",
        "settings.label_smoothing, 1 / (batch.tokens * len(update.parts)), self.gradient",
        ("tests/test_train.py",),
    ),
    Bug(
        "two passes counted as two updates",
        "nmt/loss.py",
        "        weight = weight / 2\n",
        "",
        ("tests/test_loss.py",),
    ),
    Bug(
        "divergence in one direction only",
        "nmt/loss.py",
        "    q.mul_((1 + half * mean_q).sub(difference, alpha=half)).sub_(gap, alpha=half)\n",
        "",
        ("tests/test_loss.py",),
    ),
]


def run(tests: Sequence[str], copy: Path) -> tuple[int, str]:
    """Exit code of these tests in `copy` of the tree, and the first that failed; none where something else went wrong."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True)
    failed = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith("FAILED")]
    return done.returncode, failed[0] if failed else ""


def plant(bug: Bug, copy: Path) -> tuple[bool, str]:
    """Whether a test saw this bug in `copy` of the tree, and the first that did, or what else happened."""
    path = copy / bug.file
    text = path.read_text()
    if text.count(bug.right) != 1:
        raise SystemExit(f"{bug.name}: {bug.file} holds {text.count(bug.right)} times: {bug.right}")
    path.write_text(text.replace(bug.right, bug.wrong))
    try:
        code, failed = run(bug.tests, copy)
    finally:
        path.write_text(text)
    seen = code == 1 and failed != ""
    return seen, failed if seen or code == 0 else f"no test failed, pytest ended with {code}"


def main(words: Sequence[str]) -> int:
    """Plant all bugs, or those whose name has one of `words`; the number that no test saw."""
    bugs = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    if not bugs:
        raise SystemExit(f"no bug has {' or '.join(words)} in its name")
    green = 0
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, "tree")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "runs", "__pycache__", "*.egg-info"))
        for tests in dict.fromkeys(bug.tests for bug in bugs):
            code, failed = run(tests, copy)
            if code:
                raise SystemExit(f"without any bug {' '.join(tests)} ends with {code}: {failed}; no bug is planted")
        for bug in bugs:
            seen, told = plant(bug, copy)
            green += not seen
            print(f"{'red  ' if seen else 'GREEN'} {bug.name:48} {told}", flush=True)
    return green


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
