"""The displayed picture with what was found drawn onto it."""

import io
import math
from collections.abc import Sequence

from PIL import Image, ImageDraw

from arachne.schemas.result import BlockKind, Result
from arachne.stages.arrays import Rgb

_WORD, _CELL, _CODE = "#e6007e", "#00a0a0", "#7a00e6"
_BLOCKS: dict[BlockKind, str] = {
    "heading": "#d95f02",
    "paragraph": "#1f78ff",
    "list": "#1b9e4b",
    "code": "#8a5a00",
    "table": "#00a0a0",
    "figure": "#808080",
    "control": "#b8a000",
}
_PIXELS_A_STROKE = 1200
_COMPRESSION = 3  # a good deal faster than the default, for a few more bytes


def draw(page: Result, frame: Rgb) -> bytes:
    """A PNG of the frame, (H, W, 3), with blocks, table cells, codes and words outlined."""
    picture = Image.fromarray(frame)
    pen = ImageDraw.Draw(picture)
    stroke = 1 + max(picture.size) // _PIXELS_A_STROKE
    for table in page.tables or ():
        for cell in table.cells:
            pen.rectangle(_around(cell.bbox, 0), outline=_CELL, width=stroke)
    for block in page.blocks or ():
        pen.rectangle(_around(block.bbox, 2 * stroke), outline=_BLOCKS[block.kind], width=stroke)
    for code in page.codes or ():
        pen.rectangle(_around(code.bbox, 2 * stroke), outline=_CODE, width=stroke + 1)
    for word in (word for block in page.blocks or () for line in block.lines for word in line.words):
        points = _outside(word.polygon, stroke)
        pen.line([*points, points[0]], fill=_WORD, width=stroke)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=_COMPRESSION)
    return buffer.getvalue()


def _around(box: Sequence[float], margin: float) -> tuple[float, float, float, float]:
    x, y, width, height = box
    return x - margin, y - margin, x + max(0.0, width) + margin, y + max(0.0, height) + margin


def _outside(polygon: Sequence[Sequence[float]], margin: float) -> list[tuple[float, float]]:
    """The corners moved out, so that the stroke runs beside the letters and not through them."""
    centre_x, centre_y = (sum(point[axis] for point in polygon) / len(polygon) for axis in (0, 1))
    return [(x + math.copysign(margin, x - centre_x), y + math.copysign(margin, y - centre_y)) for x, y in polygon]
