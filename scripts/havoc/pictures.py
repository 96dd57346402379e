"""Pictures of plain words, each unlike all others, so that a result can be told to be the right one's."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from hashlib import sha256
from random import Random

from PIL import Image, ImageDraw, ImageFont

# Words that are read without fail when they are this large; what tells pictures apart is which of them they show.
WORDS = """
anchor basket candle desert engine forest garden hammer island jacket kitchen ladder market needle orange
pencil quarter ribbon silver ticket umbrella valley window yellow zebra bridge castle dragon feather guitar
harbour jungle kettle lantern meadow number office palace rocket shadow temple village winter answer bottle
corner dinner empire flower ground hunter insect journey leather monkey nation powder reason season thunder
""".split()  # noqa: SIM905  # seventy quoted words would be harder to read
A_LINE, FONT_PX = 5, 30
WIDTH_PX, LINE_PX, MARGIN_PX = 840, 48, 20
ALIKE = 0.9  # of the words shown and found; by chance it is far less


@dataclass(frozen=True)
class Picture:
    """A PNG and the words it shows."""

    words: tuple[str, ...]
    png: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return sha256(self.png).hexdigest()

    def is_read_in(self, text: str) -> bool:
        """Whether the text is this picture's: nearly all its words in their order, and hardly any other."""
        found = re.findall(r"[a-z]+", text.lower())
        return SequenceMatcher(None, self.words, found, autojunk=False).ratio() >= ALIKE


def draw_pictures(random: Random, lines: int) -> Iterator[Picture]:
    """Pictures without end, any two of them unlike, of so many lines each: reading takes the longer, the more."""
    font = ImageFont.load_default(FONT_PX)
    while True:
        words = tuple(random.choice(WORDS) for _ in range(lines * A_LINE))
        image = Image.new("L", (WIDTH_PX, lines * LINE_PX + 2 * MARGIN_PX), 255)
        draw = ImageDraw.Draw(image)
        for number in range(lines):
            line = " ".join(words[number * A_LINE : (number + 1) * A_LINE])
            draw.text((MARGIN_PX, MARGIN_PX + number * LINE_PX), line, 0, font)
        file = io.BytesIO()
        image.save(file, "png")
        yield Picture(words, file.getvalue())
