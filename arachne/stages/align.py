"""Two readers' characters of one line beside each other, and what the first is trusted with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from arachne.stages.rapid import SeenCharacter
from arachne.stages.read import ReadWord

# Letters and digits that look alike: the first reader has a dictionary, the second has none.
_ALIKE = ("0O", "1lI|", "'`", "-_", ",.", ":;")
_LEAST = 0.5  # confidence of the first reader's word


@dataclass(frozen=True)
class Aligned:
    """A character as it stands from now on; `word` is the first reader's word that has it, None where it has not."""

    character: SeenCharacter
    word: int | None


def align(words: Sequence[ReadWord], characters: Sequence[SeenCharacter]) -> tuple[Aligned, ...]:
    """The second reader's characters, with the first's where two look alike or repeat."""
    owners = [index for index, word in enumerate(words) for _ in word.text]
    told, text = "".join(word.text for word in words), "".join(one.text for one in characters)
    return tuple(_aligned(words, owners, told, characters, text))


def _aligned(
    words: Sequence[ReadWord], owners: list[int], told: str, characters: Sequence[SeenCharacter], text: str
) -> Iterator[Aligned]:
    for kind, start, end, first, last in SequenceMatcher(None, told, text, autojunk=False).get_opcodes():
        if kind == "equal" or (kind == "replace" and end - start == last - first):
            for mine, one in zip(range(start, end), characters[first:last], strict=True):
                trusted = words[owners[mine]].confidence >= _LEAST and _alike(told[mine], one.text)
                yield Aligned(replace(one, text=told[mine]) if trusted else one, owners[mine])
        elif kind == "delete" and _repeats(told, start, end) and words[owners[start]].confidence >= _LEAST:
            near = characters[max(0, first - 1)]
            yield from (Aligned(replace(near, text=told[at], spaced=False), owners[at]) for at in range(start, end))
        else:
            yield from (Aligned(one, None) for one in characters[first:last])


def _alike(one: str, other: str) -> bool:
    return one != other and any(one in group and other in group for group in _ALIKE)


def _repeats(told: str, start: int, end: int) -> bool:
    """Whether what is missing only repeats the character beside it, which the second reader sees once."""
    missing = set(told[start:end])
    return len(missing) == 1 and (told[start - 1 : start] in missing or told[end : end + 1] in missing)
