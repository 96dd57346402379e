"""Words that a model claims to read in a picture, against those that readers read."""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

# Thai vowels and tone marks are no word characters to `re`, though no Thai word is whole without them.
_THAI_MARKS: Final = "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
_WORD = re.compile(rf"[\w{_THAI_MARKS}]{{3,}}")
# Scripts that put no spaces between words: Thai to Burmese, Khmer, kana, Han.
_UNSPACED = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
MOST_WORDS: Final = 500


def missing_words(lines: Iterable[str], text: str) -> list[str]:
    """Words of `lines` of three letters or more that aren't in `text`, each once, in their order, at most 500."""
    read = _plain(text)
    words, run_together = set(_WORD.findall(read)), "".join(read.split())
    missing: dict[str, None] = {}
    for word in (word for line in lines for word in _WORD.findall(unicodedata.normalize("NFKC", line))):
        told = word.casefold()
        found = told in run_together if _UNSPACED.search(told) else told in words
        if not found:
            missing.setdefault(word)
        if len(missing) == MOST_WORDS:
            break
    return list(missing)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
