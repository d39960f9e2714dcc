"""What makes a score less than it seems: text that looks tokenised or lower-cased, a tokenizer that does not fit."""

import re
from collections.abc import Sequence

SCRIPTS = {
    "Japanese": ("\u3040-\u30ff", ("ja-mecab", "char")),
    "Chinese": ("\u3400-\u9fff\U00020000-\U0003ffff", ("zh", "char")),
    "Korean": ("\u1100-\u11ff\uac00-\ud7af", ("ko-mecab", "char")),
    "Thai": ("\u0e00-\u0e7f", ("char", "flores200")),
    "Lao": ("\u0e80-\u0eff", ("char", "flores200")),
    "Burmese": ("\u1000-\u109f", ("char", "flores200")),
    "Khmer": ("\u1780-\u17ff", ("char", "flores200")),
}
"""Scripts whose words 13a does not find, by their characters, with the tokenizers that fit."""

MULTILINGUAL = ("char", "spm", "flores101", "flores200", "spBLEU-1K")
"""Tokenizers that fit any script."""


def about_hypothesis(lines: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool = False) -> list[str]:
    """Whether it is tokenised, has lines without translation or with a score after it, or is lower-cased where a reference is not
    and nobody said that case is meant to be ignored.
    """
    told = _about_tokens("hypothesis", lines)
    empty = sum(not line.strip() for line in lines)
    if empty:
        told.append(f"{empty:,} of the hypothesis's {len(lines):,} lines are empty, and count as wrong")
    if all(re.search(r"\t-?\d+\.\d+$", line) for line in lines):
        told.append("each line of the hypothesis ends in a tab and a number, which count as words: cut -f 1 leaves the text")
    if not lowercase and _lower_cased(lines) and any(map(_has_capitals, references)):
        told.append("the hypothesis has no capital letter, the reference has; if that is meant, use --lowercase")
    return told


def about_reference(
    lines: Sequence[str], systems: Sequence[Sequence[str]], tokenizer: str | None, lowercase: bool = False
) -> list[str]:
    """Whether it is tokenised, lower-cased where a hypothesis is not, or in a script in which BLEU's `tokenizer` (None: there is no
    BLEU) finds no words.
    """
    told = _about_tokens("reference", lines)
    if not lowercase and _lower_cased(lines) and any(map(_has_capitals, systems)):
        told.append("the reference has no capital letter, the hypothesis has; if that is meant, use --lowercase")
    language = None if tokenizer is None else language_by_script(lines)
    if language is not None:
        fitting = SCRIPTS[language][1]
        if tokenizer not in (*fitting, *MULTILINGUAL):
            told.append(f"the reference looks {language}: the tokenizer {tokenizer} does not fit, use --tokenize {fitting[0]}")
    return told


def _about_tokens(what: str, lines: Sequence[str]) -> list[str]:
    tokenised = looks_tokenised(lines)
    return [f"the {what} looks tokenised; score detokenised text, or the number cannot be compared"] if tokenised else []


def looks_tokenised(lines: Sequence[str]) -> bool:
    """Whether full stops and commas stand apart from their words more often than not, or in 100 lines (sacreBLEU's sign); or there
    are marks of Moses' tokenizer or of subwords in one line of a hundred.
    """
    text = "\n".join(lines)
    if len(re.findall(r"&(?:apos|quot|amp|#39|#124|#91|#93);| @-@ |@@ |(?:^| )\u2581\S", text, re.MULTILINE)) > len(lines) / 100:
        return True
    apart = len(re.findall(r"[^\S\n][.,](?!\S)", text))
    attached = len(re.findall(r"[^\s.,][.,](?!\S)", text))
    return apart > attached or sum(1 for line in lines if line.endswith(" .")) >= 100


def language_by_script(lines: Sequence[str]) -> str | None:
    """The language of `SCRIPTS` that most letters of `lines` belong to; None for all others, which put spaces between words."""
    text = "".join(lines)
    counts = {name: len(re.findall(f"[{characters}]", text)) for name, (characters, _) in SCRIPTS.items()}
    letters = sum(character.isalpha() for character in text)
    if 2 * sum(counts.values()) <= letters:
        return None
    # Japanese mixes kana with the Chinese characters; Chinese has no kana.
    if 10 * counts["Japanese"] > counts["Chinese"]:
        counts["Japanese"] += counts.pop("Chinese")
    return max(counts, key=counts.__getitem__)


def _has_capitals(lines: Sequence[str]) -> bool:
    return any(line != line.lower() for line in lines)


def _lower_cased(lines: Sequence[str]) -> bool:
    """Whether there are letters that could be capitals, and none is."""
    return not _has_capitals(lines) and any(line != line.upper() for line in lines)
