"""From a stored result and its original to a document. Decodes untrusted images: for subprocesses only."""

from collections.abc import Sequence

from arachne.errors import NotFound
from arachne.formats import RenderRequest
from arachne.formats.drawing import draw
from arachne.formats.hocr import to_hocr
from arachne.formats.pdf import to_pdf
from arachne.schemas.result import Result
from arachne.stages.arrays import Rgb
from arachne.stages.decode import DecodeOptions, decode


def render(result_json: bytes, original: bytes, request: RenderRequest) -> bytes:
    """The result as a document of the format that is asked for.

    Raises:
        NotFound: there is no such page.
        ImageError: the original can't be decoded.
    """
    result = Result.model_validate_json(result_json)
    pages = result.pages or [result]
    wanted = _wanted(request, len(pages))
    chosen = [pages[index] for index in wanted]
    if request.format == "hocr":
        return to_hocr(chosen, request.name, first_page=wanted[0])
    frames = _frames(original, request, wanted, several=result.pages is not None)
    if request.format == "png":
        return draw(chosen[0], frames[0])
    return to_pdf(chosen, frames, original, request.name)


def _wanted(request: RenderRequest, count: int) -> Sequence[int]:
    page = 0 if request.page is None and request.format == "png" else request.page
    if page is None:
        return range(count)
    if page >= count:
        raise NotFound("The image has no such page.")
    return [page]


def _frames(original: bytes, request: RenderRequest, wanted: Sequence[int], *, several: bool) -> list[Rgb]:
    limits = DecodeOptions(request.max_pixels, request.max_frames, "all" if several else "first")
    frames = decode(original, limits).frames
    return [frames[index] for index in wanted]
