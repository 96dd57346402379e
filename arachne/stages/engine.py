"""What every engine that reads text offers, whatever is behind it."""

from dataclasses import dataclass
from typing import Protocol

from arachne.stages.arrays import Box, Gray


@dataclass(frozen=True)
class EngineWord:
    """A word as read: box in pixels of the image given, confidence 0..1, and the line it stands in."""

    text: str
    box: Box
    confidence: float
    line: int


class Engine(Protocol):
    """Something that reads dark text on light ground."""

    def read(self, gray: Gray, mode: int, limit_s: float) -> tuple[EngineWord, ...]:
        """The words of uint8 (H, W) in Tesseract's page segmentation mode, fewer where the time is up."""
