"""What every engine that reads text offers, whatever is behind it."""

from dataclasses import dataclass
from typing import Protocol

from arachne.stages.arrays import Box, Gray

MARGIN_PX = 12  # Tesseract loses text that touches the edge
RESOLUTION_DPI = 150


@dataclass(frozen=True)
class EngineWord:
    """A word as read: box in pixels of the image given, confidence 0..1, and the line it stands in."""

    text: str
    box: Box
    confidence: float
    line: int


@dataclass(frozen=True)
class Script:
    """A script's name, such as Latin, and how sure it is: from 0, without a bound."""

    name: str
    confidence: float


class ScriptFinder(Protocol):
    """Something that tells scripts apart."""

    def find(self, gray: Gray, characters: int) -> Script | None:
        """The script of dark text on light ground, uint8 (H, W); None where there are fewer characters than that."""


class Engine(Protocol):
    """Something that reads dark text on light ground."""

    def read(self, gray: Gray, mode: int, limit_s: float) -> tuple[EngineWord, ...]:
        """The words of uint8 (H, W) in Tesseract's page segmentation mode, fewer where the time is up."""


def spelled(languages: tuple[str, ...]) -> str:
    """The languages as Tesseract wants them: English last, since the first one wins ties and accents would be lost."""
    return "+".join(sorted(languages, key=lambda code: code == "eng"))
