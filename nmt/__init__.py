"""nmt: train a translator from the shell, translate files, score them.

From Python: `Translator.load(path).translate(lines)`, see `nmt.translate`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt.errors import NmtError, UsageError
    from nmt.results import Translation
    from nmt.translate import Options, Translator

__version__ = "0.1.0"

__all__ = ["NmtError", "Options", "Translation", "Translator", "UsageError", "__version__"]


def __getattr__(name: str) -> Any:
    # On demand: `import nmt` alone, as for `nmt --help`, must not import torch.
    if name in ("Translator", "Options"):
        from nmt import translate

        return getattr(translate, name)
    if name == "Translation":
        from nmt.results import Translation

        return Translation
    if name in ("NmtError", "UsageError"):
        from nmt import errors

        return getattr(errors, name)
    raise AttributeError(f"module 'nmt' has no attribute '{name}'")
