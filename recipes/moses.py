"""Text to the tokens that papers score: Moses' tokenizer and what they do before and after it.

One line out for each line in; `'`, `"`, `&`, `<`, `>`, `|` and brackets come out escaped (`&apos;`), as Moses writes them.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from texts import Tokens

from nmt.data.text import read_lines


def tokenized(lines: Sequence[str], language: str, how: Tokens) -> list[str]:
    """The tokens of each line, joined by spaces."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)

    def one(line: str) -> str:
        if how.lowercase:
            line = line.lower()
        if how.normalize:
            line = normalizer.normalize(line)
        tokens: str = tokenizer.tokenize(line, return_str=True, escape=True)
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokens) if how.compounds else tokens

    return [one(line) for line in lines]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make the tokens that papers score.")
    parser.add_argument("input", type=Path, help="text, .gz too")
    parser.add_argument("-o", "--output", type=Path, required=True, help="tokens")
    parser.add_argument("--language", required=True, help="of the text, such as de")
    parser.add_argument("--lowercase", action="store_true", help="lower-case first")
    parser.add_argument("--normalize", action="store_true", help="normalise punctuation, as Moses does")
    parser.add_argument("--compounds", action="store_true", help="split at hyphens inside words, which become ##AT##-##AT##")
    options = parser.parse_args(arguments)
    lines = list(read_lines(options.input))
    how = Tokens(lowercase=options.lowercase, normalize=options.normalize, compounds=options.compounds)
    options.output.write_text("".join(f"{line}\n" for line in tokenized(lines, options.language, how)), encoding="utf-8")


if __name__ == "__main__":
    main()
