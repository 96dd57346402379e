"""A result as a searchable PDF: each page the displayed picture, with the words invisible at their places.

A pixel of the picture is a point of the page, so places in the PDF are the result's boxes; only pages larger than PDF
allows are scaled down, and slivers have a margin.
"""

import io
from collections.abc import Sequence

from pikepdf import Array, Dictionary, Name, Pdf

from arachne import __version__
from arachne.formats.pdf_picture import embed
from arachne.formats.pdf_text import Glyphless, text_layer
from arachne.schemas.result import Result
from arachne.stages.arrays import Rgb

_MIN_SIDE_PT, _MAX_SIDE_PT = 3, 14_400  # ISO 32000-1, annex C.2


def to_pdf(pages: Sequence[Result], frames: Sequence[Rgb], original: bytes, name: str) -> bytes:
    """The pages as one PDF; `frames` are their pixels as displayed, each (H, W, 3)."""
    with Pdf.new() as pdf:
        font = Glyphless()
        resource = pdf.make_indirect(Dictionary())  # filled once all characters are known
        for page, frame in zip(pages, frames, strict=True):
            _add_page(pdf, page, frame, original, font=font, resource=resource)
        for key, value in font.build(pdf).items():
            resource[key] = value
        pdf.docinfo["/Title"] = name
        pdf.docinfo["/Producer"] = f"Arachne {__version__}"
        buffer = io.BytesIO()
        pdf.save(buffer, deterministic_id=True)
        return buffer.getvalue()


def _add_page(pdf: Pdf, page: Result, frame: Rgb, original: bytes, *, font: Glyphless, resource: Dictionary) -> None:
    height_px, width_px = frame.shape[:2]
    scale = min(1.0, _MAX_SIDE_PT / max(height_px, width_px))
    width_pt, height_pt = (max(_MIN_SIDE_PT, side * scale) for side in (width_px, height_px))
    picture = embed(pdf, page.image, frame, original)
    matrix = " ".join(f"{value * scale:g}" for value in picture.matrix)
    shown = f"q 1 0 0 1 0 {height_pt - height_px * scale:g} cm {matrix} cm /Picture Do Q\n".encode()
    content = shown + text_layer(page.blocks or (), font, height_pt, scale)
    added = pdf.add_blank_page(page_size=(width_pt, height_pt))
    added.obj.Resources = Dictionary(
        XObject=Dictionary(Picture=picture.stream), Font=Dictionary(Words=resource), ProcSet=Array([Name.PDF])
    )
    added.obj.Contents = pdf.make_stream(content)
