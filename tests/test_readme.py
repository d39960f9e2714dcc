"""Every command of README.md runs, in the order in which a reader would type them.

`nmt`, `python`, `python3`, `pip` and `make` are stood in for: `nmt` and `python` are this project's, with a corpus and a training
of a few updates in place of real ones; `make` shows what it would do, and what it would do has tests of its own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FEW_UPDATES = (
    "--max-steps 4 --set train.valid_every=4 --set train.save_every=2 --batch-tokens 500 "
    "--set model.layers=1 --set model.width=16 --threads 1"
)
ONE_UPDATE = "--seconds 0 --warmup 0 --set model.layers=1 --set model.width=16 --threads 1"
INSTALLED = {
    "nmt": f'[ "$1" != train ] || set -- "$@" {FEW_UPDATES}\n[ "$1 $2" != "bench data" ] || set -- "$@" {ONE_UPDATE}\n'
    f'exec "{sys.executable}" -m nmt "$@"',
    "torchrun": f'[ "$5" != train ] || set -- "$@" {FEW_UPDATES}\n'
    f'exec "{sys.executable}" -m torch.distributed.run --standalone "$@"',
    "python": f'exec "{sys.executable}" "$@" --size 300 --held-out 12',
}
"""What pip puts there."""
MACHINE = {
    "make": f'exec /usr/bin/env -u MAKEFLAGS PATH="$NMT_TEST_PATH" make --dry-run -C "{ROOT}" "$@"',
    "python3": '[ "$*" = "-m venv .venv" ] && mkdir -p .venv/bin && cp ready/pip ready/activate .venv/bin',
}
"""What a machine has."""
ENVIRONMENT = {
    # The commands of the page need the packages of [recipes] too.
    "pip": "case \"$*\" in 'install '*'.[recipes]') cp ready/nmt ready/torchrun ready/python .venv/bin ;; *) exit 1 ;; esac",
    "activate": 'PATH="$PWD/.venv/bin:$PATH"',
}
"""What is in an environment from the first."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with the stand-ins first in its PATH, and its environment."""
    folder = tmp_path_factory.mktemp("readme")
    for place, scripts in (("bin", MACHINE), ("ready", ENVIRONMENT | INSTALLED)):
        (folder / place).mkdir()
        for name, text in scripts.items():
            path = folder / place / name
            path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            path.chmod(0o755)
    (folder / "recipes").symlink_to(ROOT / "recipes")
    # Whoever runs the tests may have activated an environment; the page's reader has not.
    active = str(Path(sys.executable).parent)
    others = ":".join(each for each in os.environ["PATH"].split(":") if each != active)
    return folder, os.environ | {"PATH": f"{folder / 'bin'}:{others}", "NMT_TEST_PATH": others, "PYTHONPATH": str(ROOT)}


def test_every_command_runs_in_the_order_of_the_page(shell: tuple[Path, dict[str, str]]) -> None:
    folder, environment = shell
    script = "set -eu\n" + "\n".join(blocks("sh"))
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # What the page says that there will be.
    assert (folder / "test.out").read_text(encoding="utf-8").count("\n") == 12
    assert (folder / "shared.out").read_text(encoding="utf-8").count("\n") == 12
    assert (folder / "both.jsonl").read_text(encoding="utf-8").count("\n") == 36
    assert list((folder / "pictures").iterdir())
    for block in blocks("python"):
        python = subprocess.run([sys.executable, "-c", block], cwd=folder, env=environment, capture_output=True, text=True)
        assert python.returncode == 0, python.stderr


def test_options_named_in_the_text_exist() -> None:
    # Tables and sentences name options too: `train --max-minutes 30`.
    from typer.main import get_command

    from nmt.commands import app

    commands = get_command(app).commands
    inline = re.findall(r"`(\w+)((?: [^`]*)? --[^`]+)`", re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL))
    assert len(inline) > 15
    for name, rest in inline:
        name, rest = (rest.split()[0], rest) if name == "nmt" else (name, rest)
        if name not in commands:
            assert name in ("pip", "iconv", "--install-completion"), name
            continue
        known = {spelling for parameter in commands[name].params for spelling in (*parameter.opts, *parameter.secondary_opts)}
        assert set(re.findall(r"--[a-z][a-z-]*", rest)) <= known | {"--help"}, (name, rest)


def test_files_that_the_page_names_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
