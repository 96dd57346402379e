"""A model's answer while it comes in pieces, given up as soon as it can't become a good one."""

from dataclasses import dataclass, field
from typing import Final

from arachne.errors import VlmAnswerRejected
from arachne.stages.describe import LOOPED
from arachne.stages.loops import STEP, ends_in_circles

MOST_CHARACTERS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Said:
    """A whole answer and why it ended."""

    content: str = field(repr=False)
    done_reason: str


class Answer:
    """The pieces so far."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._next_look = STEP

    def add(self, piece: str) -> None:
        """One more piece.

        Raises:
            VlmAnswerRejected: it is too long, or runs in circles.
        """
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length > MOST_CHARACTERS:
            raise VlmAnswerRejected(f"the answer is longer than {MOST_CHARACTERS} characters")
        if self._length >= self._next_look:
            self._next_look = self._length + STEP
            if ends_in_circles(self.content):
                raise VlmAnswerRejected(LOOPED)

    @property
    def content(self) -> str:
        """All pieces joined."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]
