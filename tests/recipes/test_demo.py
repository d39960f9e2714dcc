"""`make demo` from its first line to its last, in small."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    small = ["--size", "300", "--held-out", "12", "--max-steps", "4", "-o", "demo"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "recipes" / "demo.py"), *small]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "demo" / "en-de"
    first = (folder / "text" / "test.en").read_text(encoding="utf-8").splitlines()[0]
    assert " ".join(first.split()[:3]) in done.stdout
    assert "12 unseen sentences" in done.stdout
    for backend in ("transformer", "rnn"):
        (row,) = [line for line in done.stdout.splitlines() if backend in line and line.count("│") == 8]
        bleu = next(each for each in json.loads((folder / f"{backend}.json").read_text(encoding="utf-8")) if each["name"] == "BLEU")
        assert f" {bleu['score']:.1f} " in row and " 4 " in row
        picture = Path("demo", "en-de", f"{backend}-attention", "line-000001.svg")
        assert (tmp_path / picture).is_file() and str(picture) in done.stdout
    # What it offers at the end is a command as one would type it.
    assert ".venv/bin/nmt translate demo/en-de/transformer" in done.stdout
    assert str(tmp_path) not in done.stdout + done.stderr
