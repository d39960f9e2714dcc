"""Translates a file in many ways and compares the bytes: batches of several sizes, reversed order, a pipe, threads, Python.

    python tests/same_output.py MODEL SOURCE

Prints a line a search; the exit code counts the ways whose output differs from that of the first.
"""

import subprocess
import sys
from collections.abc import Sequence

from nmt import Translator
from nmt.data.text import read_lines
from nmt.search import Beam, Greedy, Sampling
from nmt.search.base import Search
from nmt.translate import Options

SEARCHES: dict[str, tuple[list[str], Search]] = {
    "greedy": (["--search", "greedy"], Greedy()),
    "beam": (["--search", "beam", "--beam-size", "5", "--length-penalty", "1"], Beam(5, length_penalty=1.0)),
    "sample": (["--search", "sample", "--temperature", "0.8", "--seed", "3"], Sampling(seed=3, temperature=0.8)),
}


def translate(model: str, *arguments: str, lines: Sequence[str] = ()) -> list[str]:
    """What the command makes of a file among `arguments`, or of `lines` from a pipe."""
    command = [sys.executable, "-m", "nmt", "translate", model, "-q", *arguments]
    text = "".join(f"{line}\n" for line in lines)
    return subprocess.run(command, input=text, capture_output=True, check=True, encoding="utf-8").stdout.split("\n")[:-1]


def main(model: str, source: str) -> int:
    lines = list(read_lines(source))
    translator = Translator.load(model)
    failures = 0
    for name, (options, search) in SEARCHES.items():
        found = {
            "file, 4,000": translate(model, source, *options),
            "file, 200": translate(model, source, "--batch-tokens", "200", *options),
            "file, 20,000": translate(model, source, "--batch-tokens", "20000", *options),
            "one thread": translate(model, source, "--threads", "1", *options),
            "pipe": translate(model, *options, lines=lines),
            "reversed": translate(model, *options, lines=lines[::-1])[::-1],
            "Python": [each.text for each in translator.translate(lines, Options(search))],
        }
        first = next(iter(found.values()))
        told = []
        for way, output in found.items():
            other = sum(a != b for a, b in zip(first, output, strict=True))
            failures += other > 0
            told.append(f"{way}: {f'{other} DIFFER' if other else 'same'}")
        print(f"{name}: {len(first):,} lines; {'; '.join(told)}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
