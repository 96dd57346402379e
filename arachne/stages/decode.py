"""Stage 1: bytes to upright-by-EXIF RGB pixels, with a report of what was found and what was dropped."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

import numpy as np
from PIL import Image

from arachne.errors import DecodeFailed, ImageError, OutOfMemory
from arachne.headers import ImageFormat, is_cut
from arachne.images import ImageHeader, admit, sniff
from arachne.stages import colour, pillow
from arachne.stages.arrays import Rgb

VERSION = 2

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class DecodeOptions:
    """Limits on pixels (of all frames that are read) and frames, and which frames are read."""

    max_pixels: int
    max_frames: int
    frames: Literal["first", "all"] = "first"


@dataclass(frozen=True)
class Decoded:
    """The frames as displayed, each RGB uint8 (H, W, 3), and the ingest report."""

    frames: tuple[Rgb, ...]
    sha256: str
    format: ImageFormat
    frame_count: int
    exif_orientation: int | None
    warnings: tuple[str, ...]

    @property
    def width(self) -> int:
        """Of the first frame, as displayed."""
        return int(self.frames[0].shape[1])

    @property
    def height(self) -> int:
        """Of the first frame, as displayed."""
        return int(self.frames[0].shape[0])


def decode(data: bytes, options: DecodeOptions) -> Decoded:
    """The pixels of the first frame or of all frames.

    Raises:
        UnsupportedImage: no supported type.
        ImageTooLarge, TooManyFrames: over the limits, told before a decoder allocates.
        DecodeFailed: not one row could be decoded.
        OutOfMemory: the pixels don't fit into this process's memory.
    """
    try:
        header = sniff(data)
        _admit(header, options)
        with pillow.limits(options.max_pixels):
            return _decode(data, header, options)
    except ImageError as error:
        raise type(error)(error.message, stage="decode") from error
    except MemoryError as error:
        raise OutOfMemory(
            "The image needs more memory than a stage may take. Scale it down.", stage="decode"
        ) from error


def _admit(header: ImageHeader, options: DecodeOptions) -> None:
    admit(
        header,
        max_bytes=1,
        size_bytes=0,  # the bytes were admitted when they came in
        max_pixels=options.max_pixels,
        max_frames=options.max_frames,
        frames=options.frames,
    )


def _decode(data: bytes, header: ImageHeader, options: DecodeOptions) -> Decoded:
    source = pillow.Source(data, header.format)
    image = source.open()
    found = max(header.frames, pillow.count_frames(image))
    _admit(ImageHeader(header.format, image.width, image.height, found), options)
    notes = list[str]()
    if found > 1 and options.frames == "first":
        dropped = "2" if found == 2 else f"2 to {found}"
        notes.append(f"frames: only the first of {found} was read, dropped {dropped}; frames=all reads them")
    if is_cut(data, header.format):
        notes.append("truncated")
    orientation = _orientation(image, notes)
    return Decoded(
        frames=_read_frames(source, image, range(found) if options.frames == "all" else [image.tell()], notes),
        sha256=sha256(data).hexdigest(),
        format=header.format,
        frame_count=found,
        exif_orientation=orientation,
        warnings=tuple(dict.fromkeys(notes)),
    )


def _orientation(image: Image.Image, notes: list[str]) -> int | None:
    value = pillow.orientation(image)
    if value is not None and not 1 <= value <= 8:
        notes.append(f"exif: orientation {value} does not exist and was ignored")
        return None
    return value


def _read_frames(source: pillow.Source, image: Image.Image, wanted: Sequence[int], notes: list[str]) -> tuple[Rgb, ...]:
    frames = list[Rgb]()
    for index in wanted:
        try:
            frames.append(_read_frame(source, image, index, notes))
        except (*pillow.DECODER_ERRORS, DecodeFailed) as error:
            if not frames and isinstance(error, DecodeFailed):
                raise
            if not frames:
                raise DecodeFailed(f"Nothing could be decoded: {pillow.told(error)}. Save the image anew.") from error
            notes.append(f"frames: {index + 1} to {len(wanted)} could not be decoded, dropped")
            break
    return tuple(frames)


def _read_frame(source: pillow.Source, image: Image.Image, index: int, notes: list[str]) -> Rgb:
    turn = None if image.format == "TIFF" else pillow.orientation(image)  # Pillow turns TIFF itself
    try:
        image.seek(index)
        image.load()
        rgb = colour.to_rgb(image, notes)
    except pillow.DECODER_ERRORS:
        rgb = _read_what_is_there(source, index, notes)
    if turn in _TURNS:
        rgb = np.ascontiguousarray(Image.fromarray(rgb).transpose(_TURNS[turn]))
    return rgb


def _read_what_is_there(source: pillow.Source, index: int, notes: list[str]) -> Rgb:
    with pillow.lenience():
        image = source.open(lenient=True)
        image.seek(index)
        image.load()
        rgb = colour.to_rgb(image, notes)
    if _nothing_decoded(rgb, source.format):
        raise DecodeFailed("Not one row could be decoded. Save the image anew.")
    _fill_missing_rows(rgb)
    notes.append("truncated")
    return rgb


def _nothing_decoded(rgb: Rgb, image_format: ImageFormat) -> bool:
    """Whether every pixel is what the decoder starts from: mid gray for JPEG, else zero."""
    if image_format != "jpeg":
        return int(rgb.max()) == 0
    # At the end of its data libjpeg still makes one block out of padding bits; it is at the top left then.
    rest = rgb[:, 32:] if rgb.shape[1] > 32 else rgb[32:]
    return rest.size == 0 or (int(rest.min()) >= 127 and int(rest.max()) <= 129)


def _fill_missing_rows(rgb: Rgb) -> None:
    """Paint trailing rows that were never decoded (zero) like the last one that was."""
    rows = np.asarray(rgb.reshape(len(rgb), -1).max(axis=1) > 0)
    last = len(rows) - 1 - int(np.argmax(rows[::-1]))
    if last + 1 < len(rgb):
        rgb[last + 1 :] = np.median(rgb[last], axis=0).astype(np.uint8)
