"""Who may import whom: the design's table, held against the imports of every module."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "nmt"

EVERYTHING = {"nmt"}
TEXT = {"nmt.data.text", "nmt.data.files", "nmt.errors"}
FILES = {"nmt.data.files", "nmt.errors"}
MAY_IMPORT = {
    "nmt": {"nmt.translate", "nmt.results", "nmt.errors"},
    "nmt.__main__": {"nmt.cli"},
    "nmt.cli": {"nmt.commands", "nmt.console", "nmt.errors", "nmt.ranks"},
    "nmt.ranks": {"nmt.errors"},
    "nmt.distributed": {"nmt.device", "nmt.errors", "nmt.ranks", "nmt.workers"},
    "nmt.commands": EVERYTHING,
    "nmt.completion": {"nmt.data.files"},
    "nmt.options": {"nmt.completion", "nmt.config", "nmt.errors", "nmt.limits", "nmt.models"},
    "nmt.config": {"nmt.limits", "nmt.models", *TEXT},
    "nmt.limits": set(),
    "nmt.allocator": set(),
    "nmt.board": {"nmt.console", *FILES},
    "nmt.console": set(),
    "nmt.errors": set(),
    "nmt.vocab": set(),
    "nmt.loss": {"nmt.errors", "nmt.vocab"},
    "nmt.schedule": {"nmt.errors"},
    "nmt.floor": {"nmt.console", "nmt.models.product"},
    "nmt.profile": {"nmt.data", "nmt.floor", "nmt.loss", "nmt.models", "nmt.search"},
    "nmt.bench": {
        *("nmt.checkpoint", "nmt.config", "nmt.console", "nmt.data", "nmt.errors", "nmt.floor", "nmt.models", "nmt.preflight"),
        *("nmt.device", "nmt.learning", "nmt.profile", "nmt.search", "nmt.translate"),
    },
    "nmt.curves": {
        *("nmt.bench", "nmt.config", "nmt.console", "nmt.data", "nmt.errors", "nmt.floor", "nmt.learning", "nmt.limits"),
        *("nmt.models", "nmt.preflight", "nmt.vocab"),
    },
    "nmt.tables": {"nmt.console"},
    "nmt.arrays": set(),
    "nmt.ngrams": {"nmt.arrays"},
    "nmt.formulas": {"nmt.arrays"},
    "nmt.tokenizers": {"nmt.errors"},
    "nmt.doubts": set(),
    "nmt.measures": {"nmt.arrays", "nmt.formulas", "nmt.ngrams", "nmt.tokenizers", "nmt.workers", "nmt.errors"},
    "nmt.significance": {"nmt.arrays", "nmt.measures"},
    "nmt.score": {"nmt.arrays", "nmt.data.text", "nmt.measures", "nmt.significance", "nmt.workers", "nmt.errors"},
    "nmt.scoreboard": {"nmt.breakdown", "nmt.console", "nmt.score"},
    "nmt.breakdown": {"nmt.arrays", "nmt.doubts", "nmt.measures", "nmt.score", "nmt.workers"},
    "nmt.export": {"nmt.checkpoint", "nmt.config", "nmt.data", "nmt.models", "nmt.errors", "nmt.vocab"},
    "nmt.engine": {"nmt.checkpoint", "nmt.export", "nmt.models.base", "nmt.search", "nmt.errors", "nmt.vocab"},
    "nmt.info": {"nmt.checkpoint", "nmt.data", "nmt.run", "nmt.tensors", "nmt.errors"},
    "nmt.outputs": {"nmt.alignment", "nmt.partial", "nmt.results", *TEXT},
    "nmt.partial": TEXT,
    "nmt.preprocess": {"nmt.data", "nmt.errors", "nmt.limits", "nmt.vocab"},
    "nmt.alignment": {"nmt.vocab"},
    "nmt.pictures": TEXT,
    "nmt.heatmap": {"nmt.pictures"},
    "nmt.plot": {"nmt.pictures", "nmt.tables"},
    "nmt.report": {
        *("nmt.checkpoint", "nmt.config", "nmt.console", "nmt.data", "nmt.doubts", "nmt.errors", "nmt.info", "nmt.pictures"),
        *("nmt.report", "nmt.results", "nmt.run", "nmt.score", "nmt.search", "nmt.translate", "nmt.vocab"),
    },
    "nmt.results": {"nmt.alignment"},
    "nmt.signals": {"nmt.console"},
    "nmt.stream": {"nmt.allocator", "nmt.workers", "nmt.errors"},
    "nmt.workers": {"nmt.errors"},
    "nmt.tensors": FILES,
    "nmt.checkpoint": {"nmt.config", "nmt.data", "nmt.models", "nmt.tensors", "nmt.errors"},
    "nmt.run": {"nmt.board", "nmt.checkpoint", *FILES},
    "nmt.preflight": {"nmt.board", "nmt.checkpoint", "nmt.config", "nmt.data", "nmt.models", "nmt.tensors", "nmt.errors"},
    "nmt.validate": {
        "nmt.data",
        "nmt.distributed",
        "nmt.loss",
        "nmt.models",
        "nmt.score",
        "nmt.search",
        "nmt.tokenizers",
        "nmt.translate",
        "nmt.errors",
    },
    "nmt.learning": {
        *(
            "nmt.allocator",
            "nmt.config",
            "nmt.console",
            "nmt.data",
            "nmt.distributed",
            "nmt.errors",
            "nmt.loss",
            "nmt.models",
            "nmt.run",
            "nmt.schedule",
        ),
    },
    "nmt.train": {
        *("nmt.board", "nmt.checkpoint", "nmt.config", "nmt.console", "nmt.data", "nmt.distributed", "nmt.errors"),
        *("nmt.learning", "nmt.models", "nmt.preflight", "nmt.run", "nmt.signals", "nmt.validate"),
    },
    "nmt.device": {"nmt.errors", "nmt.limits", "nmt.models"},
    "nmt.translate": {
        *("nmt.alignment", "nmt.checkpoint", "nmt.data", "nmt.device", "nmt.models", "nmt.results", "nmt.search", "nmt.stream"),
        *("nmt.errors", "nmt.vocab", "nmt.workers"),
    },
    "nmt.data": {"nmt.data", "nmt.errors", "nmt.vocab"},
    "nmt.models": {
        *("nmt.models.activation", "nmt.models.attention", "nmt.models.base", "nmt.models.product", "nmt.models.recurrent"),
        *("nmt.models.steps", "nmt.errors", "nmt.limits", "nmt.vocab"),
    },
    "nmt.models.__init__": {"nmt.models"},
    "nmt.search": {"nmt.search", "nmt.models.base", "nmt.errors", "nmt.vocab"},
}
"""A package stands for its modules, on both sides. The version, in `nmt` itself, may be read everywhere."""

HEAVY = {"torch", "numpy", "sentencepiece", "sacrebleu", "safetensors", "matplotlib", "jinja2", "ctranslate2"}


def modules() -> dict[str, ast.Module]:
    """Every module by its name, packages as NAME.__init__ but for the outermost."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        found["nmt" if name == "nmt.__init__" else name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = modules()


def imports(tree: ast.AST) -> set[str]:
    """Modules named by the import statements of a tree, at any depth."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports are absolute here"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            ours = {name for name in inner if name in MODULES or f"{name}.__init__" in MODULES}
            names |= ours or {node.module}
    return names


def at_start(tree: ast.Module) -> set[str]:
    """Modules imported when the module is: those outside functions and TYPE_CHECKING."""
    bodies = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return {name for node in bodies for name in imports(node)}


def is_within(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def allowed(module: str) -> set[str]:
    parts = module.split(".")
    for length in range(len(parts), 1, -1):
        if ".".join(parts[:length]) in MAY_IMPORT:
            return MAY_IMPORT[".".join(parts[:length])]
    return MAY_IMPORT["nmt"] if module == "nmt" else set()


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_it_may(module: str) -> None:
    ours = {name for name in imports(MODULES[module]) if is_within(name, {"nmt"})} - {"nmt"}
    assert {name for name in ours if not is_within(name, allowed(module))} == set()


def test_the_table_has_no_module_that_is_gone() -> None:
    known = {*MODULES, *(name.removesuffix(".__init__") for name in MODULES)}
    assert set(MAY_IMPORT) <= known


def test_data_knows_tensors_only_in_batching() -> None:
    torch = {
        name
        for name in MODULES
        if is_within(name, {"nmt.data"}) and is_within("torch", {each.split(".")[0] for each in imports(MODULES[name])})
    }
    assert torch == {"nmt.data.batching"}


@pytest.mark.parametrize(
    "module",
    [
        "nmt",
        "nmt.__main__",
        "nmt.cli",
        "nmt.commands.__init__",
        "nmt.commands.judge",
        "nmt.commands.make",
        "nmt.commands.measure",
        "nmt.commands.show",
        "nmt.commands.use",
        "nmt.options",
        "nmt.completion",
        "nmt.config",
        "nmt.console",
    ],
)
def test_the_command_line_starts_without_anything_heavy(module: str) -> None:
    reached, pending = set(), {module}
    while pending:
        reached |= pending
        names = {name for each in pending if each in MODULES for name in at_start(MODULES[each])}
        assert not {name.split(".")[0] for name in names} & HEAVY, pending
        pending = names - reached


def test_only_the_console_and_the_entry_read_clock_and_environment() -> None:
    readers = {
        name
        for name, tree in MODULES.items()
        if imports(tree) & {"time", "datetime"}
        or any(isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") for node in ast.walk(tree))
    }
    assert readers <= {"nmt.console", "nmt.cli", "nmt.ranks", "nmt.distributed"}


def test_no_backend_and_no_strategy_is_asked_what_it_is() -> None:
    """No isinstance on a model: whoever needs it would know a backend."""
    classes = {"Seq2Seq", "Rnn", "Transformer", "Ensemble", "Uncached"}
    for name, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                asked = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
                assert not asked & classes, name
