"""Which of sacreBLEU's tokenizers BLEU uses."""

import importlib.util
import re

from nmt.errors import NmtError, UsageError

TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none", "spm", "flores101", "flores200", "spBLEU-1K")

LANGUAGE_TOKENIZERS = {
    **dict.fromkeys(("zh", "zho", "cmn", "yue"), "zh"),
    **dict.fromkeys(("ja", "jpn"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
    # Without spaces between words, and without a tokenizer of words: as for those that have one, 13a would find no word.
    **dict.fromkeys(("th", "tha", "lo", "lao", "my", "mya", "km", "khm"), "char"),
}
"""For a known target language: sacreBLEU's choice where it has one; 13a for all others."""

PACKAGES = {"ja-mecab": ("MeCab", "sacrebleu[ja]"), "ko-mecab": ("mecab_ko", "sacrebleu[ko]")}
"""The module that a tokenizer needs, and what to install for it."""


def check_tokenizer(tokenize: str | None) -> None:
    """UsageError where there is no such tokenizer."""
    if tokenize is not None and tokenize not in TOKENIZERS:
        raise UsageError(f"--tokenize must be one of {', '.join(TOKENIZERS)}, not {tokenize}")


def choose_tokenizer(tokenize: str | None, target_lang: str | None) -> str:
    """BLEU's tokenizer; NmtError where it needs a package that is not installed, UsageError where there is no such tokenizer."""
    check_tokenizer(tokenize)
    language = re.split("[-_]", target_lang.lower())[0] if target_lang else ""
    chosen = tokenize or LANGUAGE_TOKENIZERS.get(language, "13a")
    module, package = PACKAGES.get(chosen, ("sacrebleu", "sacrebleu"))
    if importlib.util.find_spec(module) is None:
        raise NmtError(
            f"BLEU's tokenizer {chosen} is not installed: pip install '{package}' (nmt score has others: --tokenize char)"
        )
    return chosen
