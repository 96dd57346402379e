"""Results written by hand, and the pictures they are of."""

import io
from collections.abc import Sequence

from PIL import Image

from arachne.schemas.result import Block, BlockKind, ImageInfo, Line, Result, Table, TableCell, Word

Points = Sequence[tuple[float, float]]


def corners(x: float, y: float, width: float, height: float) -> list[list[float]]:
    return [[x, y], [x + width, y], [x + width, y + height], [x, y + height]]


def around(polygon: Sequence[Sequence[float]]) -> list[float]:
    xs, ys = [x for x, _ in polygon], [y for _, y in polygon]
    return [min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)]


def word(text: str, polygon: Sequence[Sequence[float]], confidence: float = 0.93) -> Word:
    points = [list(point) for point in polygon]
    return Word(text=text, bbox=around(points), polygon=points, confidence=confidence, reader="tesseract")


def line(*words: Word, polygon: Sequence[Sequence[float]] | None = None) -> Line:
    if polygon is None:
        everything = [point for one in words for point in one.polygon]
        polygon = corners(*around(everything))
    points = [list(point) for point in polygon]
    text = " ".join(one.text for one in words)
    return Line(bbox=around(points), polygon=points, text=text, confidence=0.9, words=list(words))


def block(*lines: Line, kind: BlockKind = "paragraph", key: str = "b1") -> Block:
    box = around([point for one in lines for point in one.polygon])
    return Block(id=key, kind=kind, bbox=box, confidence=0.9, lines=list(lines))


def table(x: float, y: float, width: float, height: float) -> Table:
    cell = TableCell(row=0, column=0, row_span=1, column_span=1, bbox=[x, y, width, height], text="cell")
    return Table(bbox=[x, y, width, height], rows=1, columns=1, cells=[cell])


def result(
    *blocks: Block,
    size: tuple[int, int] = (400, 200),
    kind: str = "png",
    orientation: int | None = None,
    warnings: Sequence[str] = (),
    tables: Sequence[Table] = (),
    pages: Sequence[Result] | None = None,
) -> Result:
    info = ImageInfo(
        sha256="0" * 64,
        format=kind,
        width=size[0],
        height=size[1],
        frames=len(pages or [0]),
        exif_orientation=orientation,
        warnings=list(warnings),
    )
    return Result(
        image=info, quality=None, geometry=None, text="text", markdown="text", languages=["eng", "tha"],
        confidence=0.9, blocks=list(blocks), tables=list(tables), codes=[], visual=None, vlm=None, fields=None,
        stages=[], degraded=False, model_version="none", pipeline_version="p1",
        pages=None if pages is None else list(pages),
    )  # fmt: skip


def encoded(picture: Image.Image, kind: str, **how: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **how)
    return buffer.getvalue()


def quarters(width: int = 160, height: int = 80) -> Image.Image:
    """Four colours, one in each quarter, so that every turn and mirroring of it looks different."""
    picture = Image.new("RGB", (width, height), (250, 250, 250))
    for at, colour in enumerate([(200, 20, 20), (20, 160, 20), (20, 20, 200), (230, 200, 20)]):
        x, y = at % 2 * width // 2, at // 2 * height // 2
        picture.paste(colour, (x, y, x + width // 2, y + height // 2))
    return picture
