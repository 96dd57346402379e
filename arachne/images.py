"""What an image is, told from its header alone, and whether it may come in. Runs on hostile bytes in the API."""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from arachne.errors import ImageTooLarge, TooManyFrames, UnsupportedImage
from arachne.headers import Buffer, ImageFormat, identify, measure

SUPPORTED = "PNG, JPEG, WebP, GIF, BMP, TIFF, AVIF and HEIC"


@dataclass(frozen=True)
class ImageHeader:
    """Format and extent as the file states them; width and height before any EXIF turn."""

    format: ImageFormat
    width: int
    height: int
    frames: int


def sniff(source: bytes | Path) -> ImageHeader:
    """The header of an image given by its bytes or its file; names are never looked at.

    Raises:
        UnsupportedImage: the bytes are of no supported type, or their header states no size.
    """
    if isinstance(source, bytes):
        return _sniff(source)
    with source.open("rb") as file:
        if file.seek(0, 2) == 0:
            return _sniff(b"")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return _sniff(view)


def admit(
    header: ImageHeader,
    *,
    max_bytes: int,
    size_bytes: int,
    max_pixels: int,
    max_frames: int,
    frames: Literal["first", "all"],
) -> None:
    """Nothing, where the image is within the limits; pixels of all frames that will be read are summed.

    Raises:
        ImageTooLarge: too many bytes or pixels.
        TooManyFrames: `frames` is `all` and there are more than `max_frames`.
    """
    if size_bytes > max_bytes:
        raise ImageTooLarge(f"The image has {size_bytes:,} bytes, {max_bytes:,} are allowed. Compress or crop it.")
    read = header.frames if frames == "all" else 1
    if read > max_frames:
        raise TooManyFrames(
            f"The image has {read:,} frames, {max_frames:,} are allowed. Split it, or ask with frames=first."
        )
    pixels = header.width * header.height * read
    if pixels > max_pixels:
        extent = f"{header.width} x {header.height} pixels" + (f" in {read} frames" if read > 1 else "")
        raise ImageTooLarge(f"The image has {extent}, {max_pixels:,} pixels are allowed. Scale it down or crop it.")


def _sniff(data: Buffer) -> ImageHeader:
    if len(data) == 0:
        raise UnsupportedImage("The image is empty (zero bytes). Send the file's content.")
    image_format = identify(data)
    if image_format is None:
        raise UnsupportedImage(f"The bytes are no image of a supported type. Send {SUPPORTED}.")
    try:
        width, height, frames = measure(data, image_format)
    except (ValueError, IndexError, struct.error) as error:
        why = str(error) if isinstance(error, ValueError) else "it ends early"
        raise UnsupportedImage(f"The {image_format.upper()} header is damaged: {why}. Save the image anew.") from error
    if width < 1 or height < 1:
        raise UnsupportedImage(
            f"The {image_format.upper()} header states {width} x {height} pixels. Save the image anew."
        )
    return ImageHeader(image_format, width, height, frames)
