"""Whether a model's answer runs in circles, as models do that have lost their thread."""

import zlib
from collections import Counter
from typing import Final

STEP: Final = 512  # characters between looks at an answer that is still coming
_WINDOW: Final = 3200
_LEAST: Final = 800  # characters; twenty short entries alike are no loop yet
_ROUNDS: Final = 4
_CLOSERS: Final = '"]} \n'  # what a grammar makes a model write in the end
_COMPRESSIBLE: Final = 0.35  # what repeats exactly is squeezed to less, at a hundredth of the cost of looking for it


def goes_in_circles(content: str) -> bool:
    """Whether some part of the answer is the same characters again and again; those of 1,312 or more are found."""
    return any(ends_in_circles(content[:end]) for end in range(_LEAST, len(content) + STEP, STEP))


def ends_in_circles(content: str) -> bool:
    """Whether the end of the answer so far is the same characters again and again, in whatever script."""
    tail = content[-_WINDOW:]
    return _is_round(tail) or _is_round(tail.rstrip(_CLOSERS))


def harps(prose: str) -> bool:
    """Whether one run of six words makes up a large part of the prose. Members of JSON come in such runs anyway."""
    words = prose.split()
    if len(words) < 60:
        return False
    runs = Counter(tuple(words[at : at + 6]) for at in range(len(words) - 5))
    return runs.most_common(1)[0][1] * 6 > 0.3 * len(words)


def _is_round(tail: str) -> bool:
    data = tail.encode(errors="replace")
    if len(tail) < _LEAST or len(zlib.compress(data, 1)) > _COMPRESSIBLE * len(data):
        return False
    matches = _matches(tail[::-1])
    return any(period + length >= max(_LEAST, _ROUNDS * period) for period, length in enumerate(matches) if period)


def _matches(text: str) -> list[int]:
    """For each place, how many characters from there equal the text's first ones.

    Source: the Z-algorithm, D. Gusfield, Algorithms on Strings, Trees, and Sequences, 1997, section 1.4.
    """
    lengths, left, right = [0] * len(text), 0, 0
    for at in range(1, len(text)):
        length = min(right - at, lengths[at - left]) if at < right else 0
        while at + length < len(text) and text[length] == text[at + length]:
            length += 1
        lengths[at] = length
        if at + length > right:
            left, right = at, at + length
    return lengths
