"""Pillow opened safely: one plugin a format, bounded pixels, harmless metadata, and what truncated files hold."""

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pillow_heif
from PIL import Image, ImageFile

from arachne.errors import DecodeFailed
from arachne.headers import PNG_SIGNATURE, ImageFormat

_PLUGINS: Final[dict[ImageFormat, str]] = {
    "png": "PNG",
    "jpeg": "JPEG",
    "webp": "WEBP",
    "gif": "GIF",
    "bmp": "BMP",
    "tiff": "TIFF",
    "avif": "AVIF",
    "heic": "HEIF",
}
_PNG_KEPT = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"iCCP", b"sRGB", b"eXIf", b"acTL", b"fcTL", b"fdAT"}
_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PNG_MAX_METADATA_BYTES = 1_000_000
_EXIF_ORIENTATION = 0x0112

# What plugins raise on damaged bytes; found by feeding them cut and altered files.
DECODER_ERRORS = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RuntimeError,
    AssertionError,
    struct.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)

pillow_heif.register_heif_opener()


@dataclass(frozen=True)
class Source:
    """An image's bytes, opened as the format their header told."""

    data: bytes
    format: ImageFormat

    def open(self, *, lenient: bool = False) -> Image.Image:
        """The image with nothing decoded yet; `lenient` closes cut JPEG data so that all its scans are used.

        Raises:
            DecodeFailed: the plugin for this format refuses the bytes.
        """
        data = _essential_png_chunks(self.data) if self.format == "png" else self.data
        if lenient and self.format == "jpeg":
            data += b"\xff\xd9"
        try:
            return Image.open(io.BytesIO(data), formats=[_PLUGINS[self.format]])
        except DECODER_ERRORS as error:
            why = (_png_fault(self.data) if self.format == "png" else None) or told(error)
            raise DecodeFailed(f"The {self.format.upper()} data is damaged: {why}. Save the image anew.") from error


@contextmanager
def limits(max_pixels: int) -> Iterator[None]:
    """Pillow's own check for bombs at our limit; its other warnings are about metadata and stay silent."""
    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, max_pixels
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


@contextmanager
def lenience() -> Iterator[None]:
    """Truncated files give what is there."""
    before, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, True
    try:
        yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


def count_frames(image: Image.Image) -> int:
    """Frames or pages; 1 where counting fails, so that a damaged later frame hides no first one."""
    if image.format in {"JPEG", "MPO"}:
        return 1
    shown = image.tell()
    try:
        return int(getattr(image, "n_frames", 1))
    except DECODER_ERRORS:
        return 1
    finally:
        image.seek(shown)


def orientation(image: Image.Image) -> int | None:
    """The EXIF orientation as written, None without one. Orientation in XMP is not displayed and not read."""
    if image.format == "TIFF":
        value = getattr(image, "tag_v2", {}).get(_EXIF_ORIENTATION)
    else:
        value = image.info.get("original_orientation") or _exif_orientation(image.info.get("exif"))
    return value if isinstance(value, int) else None


def told(error: BaseException) -> str:
    """A decoder's message in one short line, without addresses of objects."""
    return " ".join(str(error).split("<")[0].split())[:120].rstrip(" .:") or type(error).__name__


def _png_fault(data: bytes) -> str | None:
    """What is wrong with a PNG's first chunk, which Pillow does not tell."""
    if len(data) < 33:
        return "it ends within its header"
    depth, colour, compression, filtering, interlace = struct.unpack_from(">5B", data, 24)
    if struct.unpack_from(">I", data, 29)[0] != zlib.crc32(data[12:29]):
        return "the checksum of its header is wrong"
    if compression or filtering or interlace > 1:
        return f"compression {compression}, filter {filtering} or interlacing {interlace} does not exist"
    return None if depth in _PNG_DEPTHS.get(colour, ()) else f"colour type {colour} with {depth} bits does not exist"


def _exif_orientation(raw: object) -> object:
    if not isinstance(raw, bytes):
        return None
    exif = Image.Exif()
    try:
        exif.load(raw)
        return exif.get(_EXIF_ORIENTATION)
    except DECODER_ERRORS:
        return None


def _essential_png_chunks(data: bytes) -> bytes:
    """The PNG without text and other chunks that only decoders' faults make matter."""
    kept, at = [PNG_SIGNATURE], len(PNG_SIGNATURE)
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        small = kind in {b"IDAT", b"fdAT"} or length <= _PNG_MAX_METADATA_BYTES
        if kind in _PNG_KEPT and small:
            kept.append(data[at : at + 12 + length])
        at += 12 + length
        if kind == b"IEND":
            break
    return b"".join(kept)
