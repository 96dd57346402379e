"""Results in other forms than JSON: hOCR, searchable PDF, and the picture with its boxes drawn.

Light on purpose: the API names formats by it, and loads no image library for that. `render` is made for a subprocess.
"""

from dataclasses import dataclass
from typing import Final

from arachne.schemas.queries import Format, RenderedFormat

MEDIA_TYPES: Final[dict[Format, str]] = {
    "json": "application/json",
    "md": "text/markdown; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
    "hocr": "application/xhtml+xml; charset=utf-8",
    "pdf": "application/pdf",
    "png": "image/png",
}
NEEDS_ORIGINAL: Final[frozenset[Format]] = frozenset({"pdf", "png"})


@dataclass(frozen=True)
class RenderRequest:
    """What is wanted of a result; crosses process borders.

    `page` None means all pages, for `png` the first. `name` is shown inside the document.
    """

    format: RenderedFormat
    page: int | None
    name: str
    max_pixels: int
    max_frames: int


def render(result_json: bytes, original: bytes, request: RenderRequest) -> bytes:
    """The result as a document of the format that is asked for; `original` is empty where the format needs none.

    Raises:
        NotFound: there is no such page.
        ImageError: the original can't be decoded.
    """
    from arachne.formats.rendering import render  # noqa: PLC0415  # only the subprocess loads image libraries

    return render(result_json, original, request)


def prepare() -> None:
    """Nothing; what `render` needs is loaded."""
    from arachne.formats import rendering  # noqa: F401, PLC0415  # only the subprocess loads image libraries
