"""What readers make of things in photographs that are no text."""

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from arachne.stages.read import Reading, ReadWord, mean_confidence

_LIKELY = 0.7
_FEWEST_LETTERS = 2  # of a line


def without_marks(reading: Reading) -> Reading:
    """The reading without lines that are hardly text: in photographs edges, leaves and shadows read as marks."""
    lines = dict[tuple[int, int], list[ReadWord]]()
    for word in reading.words:
        lines.setdefault((word.region, word.line), []).append(word)
    words = tuple(word for line in lines.values() if _tells(line) for word in line if _has_letters(word))
    return replace(reading, words=words, confidence=round(mean_confidence(words), 4))


def _tells(line: Sequence[ReadWord]) -> bool:
    return sum(c.isalnum() for word in line for c in word.text) >= _FEWEST_LETTERS and mean_confidence(line) >= _LIKELY


def _has_letters(word: ReadWord) -> bool:
    return any(unicodedata.category(c)[0] in "LMN" for c in word.text)
