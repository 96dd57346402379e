"""The result of one image, as it goes over the wire. Boxes are in pixels of the image as displayed."""

from typing import Annotated, Literal

from pydantic import Field

from arachne.schemas.wire import WireModel

StageName = Literal["decode", "assess", "upright", "enhance", "segment", "read", "structure", "describe"]
StageStatus = Literal["ok", "skipped", "degraded", "failed"]
BlockKind = Literal["heading", "paragraph", "list", "code", "table", "figure", "control"]
Polarity = Literal["dark", "light", "mixed"]
Unit = Annotated[float, Field(ge=0, le=1)]
Box = Annotated[list[float], Field(min_length=4, max_length=4, description="[x, y, width, height], displayed pixels")]
Polygon = Annotated[list[list[float]], Field(min_length=4, max_length=4, description="four [x, y] points, clockwise")]

STAGE_NAMES: tuple[StageName, ...] = (
    "decode",
    "assess",
    "upright",
    "enhance",
    "segment",
    "read",
    "structure",
    "describe",
)


class ImageInfo(WireModel):
    """What the bytes were, before any turn or scaling but with EXIF applied."""

    sha256: str
    format: str
    width: int
    height: int
    frames: int
    exif_orientation: int | None
    warnings: list[str]


class Quality(WireModel):
    """Measured quality. `noise` is a standard deviation in gray levels, `text_height_px` a glyph height."""

    sharpness: float
    contrast: Unit
    noise: float
    brightness: Unit
    polarity: Polarity
    text_height_px: float | None


class Geometry(WireModel):
    """How the image was turned. `transform` is 3x3 row-major, displayed pixels -> upright pixels."""

    rotation_deg: int
    skew_deg: float
    transform: Annotated[list[float], Field(min_length=9, max_length=9)]


class Word(WireModel):
    """One word and who read it; `confidence` is 0..1."""

    text: str
    bbox: Box
    polygon: Polygon
    confidence: Unit
    reader: str


class Line(WireModel):
    """One line of words."""

    bbox: Box
    polygon: Polygon
    text: str
    confidence: Unit
    words: list[Word]


class Block(WireModel):
    """Lines that belong together."""

    id: str
    kind: BlockKind
    bbox: Box
    confidence: Unit
    lines: list[Line]


class TableCell(WireModel):
    """One cell; rows and columns count from zero."""

    row: int
    column: int
    row_span: int
    column_span: int
    bbox: Box
    text: str


class Table(WireModel):
    """A grid of cells."""

    bbox: Box
    rows: int
    columns: int
    cells: list[TableCell]


class Code(WireModel):
    """A QR or bar code."""

    kind: str
    data: str
    bbox: Box


class Colour(WireModel):
    """One palette colour and its share of the pixels."""

    rgb: Annotated[str, Field(pattern=r"^#[0-9a-f]{6}$")]
    share: Unit


class Visual(WireModel):
    """What the image looks like: 64-bit perceptual hash in hex, palette, share of edge pixels."""

    phash: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    palette: list[Colour]
    edge_density: Unit


class Element(WireModel):
    """Something the VLM sees."""

    kind: str
    label: str
    bbox: Box | None


class Vlm(WireModel):
    """The VLM's description; `unsupported_text` are words it claims that no reader saw."""

    model: str
    description: str
    elements: list[Element]
    unsupported_text: list[str]


class Amount(WireModel):
    """A sum of money; `value` is a decimal string."""

    value: str
    currency: str | None


class Fields(WireModel):
    """What profile `slip` finds; null where it was not found."""

    amount: Amount | None
    datetime: str | None
    reference: str | None
    sender: str | None
    receiver: str | None
    banks: list[str]
    qr: str | None


class StageReport(WireModel):
    """How one stage went."""

    name: StageName
    status: StageStatus
    ms: float
    cached: bool
    reason: str | None


class Result(WireModel):
    """Everything read from one image."""

    image: ImageInfo
    quality: Quality | None
    geometry: Geometry | None
    text: str | None
    markdown: str | None
    languages: list[str] | None
    confidence: Unit | None
    blocks: list[Block] | None
    tables: list[Table] | None
    codes: list[Code] | None
    visual: Visual | None
    vlm: Vlm | None
    fields: Fields | None
    stages: list[StageReport]
    degraded: bool
    model_version: str
    pipeline_version: str
    pages: list["Result"] | None
