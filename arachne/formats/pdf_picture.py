"""A picture inside a PDF: an ordinary JPEG by its own bytes, anything else without loss where that pays."""

import io
import struct
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from pikepdf import Dictionary, Name, Pdf, Stream
from PIL import Image

from arachne.schemas.result import ImageInfo
from arachne.stages import pillow
from arachne.stages.arrays import Rgb

_LOSSY = {"jpeg", "heic", "avif"}
_QUALITY = 95
_LARGE_PIXELS = 8_000_000  # packed fast, or a page takes most of a minute


@dataclass(frozen=True)
class Picture:
    """A picture's object, and the matrix that paints it upright in a page of one point a pixel."""

    stream: Stream
    matrix: tuple[float, float, float, float, float, float]


def embed(pdf: Pdf, info: ImageInfo, frame: Rgb, original: bytes) -> Picture:
    """The picture as an object of `pdf`; `frame` is (H, W, 3), as displayed."""
    height, width = frame.shape[:2]
    mode = _jpeg_mode(info, original)
    if mode is not None:
        orientation = info.exif_orientation or 1
        size = (height, width) if orientation > 4 else (width, height)
        return Picture(_jpeg(pdf, original, size, mode), _place(orientation, width, height))
    gray = bool((frame[..., 0] == frame[..., 1]).all() and (frame[..., 1] == frame[..., 2]).all())
    pixels = Image.fromarray(np.ascontiguousarray(frame[..., 0]) if gray else frame)
    stream = _encode(pdf, pixels) if info.format in _LOSSY else _pack(pdf, pixels)
    return Picture(stream, _place(1, width, height))


def _jpeg_mode(info: ImageInfo, original: bytes) -> str | None:
    """L or RGB where a PDF viewer shows the JPEG's own bytes as we do; None where it may not, or it is no JPEG."""
    if info.format != "jpeg" or "truncated" in info.warnings:
        return None
    with pillow.Source(original, "jpeg").open() as image:
        return image.mode if image.mode in {"L", "RGB"} and "icc_profile" not in image.info else None


def _place(orientation: int, width: float, height: float) -> tuple[float, float, float, float, float, float]:
    """The unit square, turned and mirrored as EXIF says, onto the page."""
    along, across = {
        1: ((width, 0.0), (0.0, height)),
        2: ((-width, 0.0), (0.0, height)),
        3: ((-width, 0.0), (0.0, -height)),
        4: ((width, 0.0), (0.0, -height)),
        5: ((0.0, -height), (-width, 0.0)),
        6: ((0.0, -height), (width, 0.0)),
        7: ((0.0, height), (width, 0.0)),
        8: ((0.0, height), (-width, 0.0)),
    }[orientation]
    left = -min(0.0, along[0] + across[0])
    bottom = -min(0.0, along[1] + across[1])
    return (*along, *across, left, bottom)


def _jpeg(pdf: Pdf, data: bytes, size: tuple[int, int], mode: str) -> Stream:
    return pdf.make_stream(data, _facts(size, mode) | {"/Filter": Name.DCTDecode})


def _encode(pdf: Pdf, pixels: Image.Image) -> Stream:
    buffer = io.BytesIO()
    pixels.save(buffer, "JPEG", quality=_QUALITY, subsampling=0)
    return _jpeg(pdf, buffer.getvalue(), pixels.size, pixels.mode)


def _pack(pdf: Pdf, pixels: Image.Image) -> Stream:
    """Without loss. PNG's own data is what a PDF reads with a PNG predictor."""
    buffer = io.BytesIO()
    pixels.save(buffer, "PNG", compress_level=6 if pixels.width * pixels.height < _LARGE_PIXELS else 1)
    predictor = Dictionary(
        Predictor=15, Colors=3 if pixels.mode == "RGB" else 1, BitsPerComponent=8, Columns=pixels.width
    )
    facts = _facts(pixels.size, pixels.mode) | {"/Filter": Name.FlateDecode, "/DecodeParms": predictor}
    return pdf.make_stream(_png_data(buffer.getvalue()), facts)


def _facts(size: tuple[int, int], mode: str) -> dict[str, object]:
    return {
        "/Type": Name.XObject,
        "/Subtype": Name.Image,
        "/Width": size[0],
        "/Height": size[1],
        "/ColorSpace": Name.DeviceRGB if mode == "RGB" else Name.DeviceGray,
        "/BitsPerComponent": 8,
    }


def _png_data(png: bytes) -> bytes:
    starts = [8]
    while starts[-1] < len(png):
        starts.append(starts[-1] + 12 + struct.unpack_from(">I", png, starts[-1])[0])
    return b"".join(png[at + 8 : end - 4] for at, end in pairwise(starts) if png[at + 4 : at + 8] == b"IDAT")
