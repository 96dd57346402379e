"""Sizes and frame counts from the first bytes of image files, without any decoder.

Every parser takes the whole file as a buffer, touches only what it needs, takes a bounded number of steps and
raises ValueError, IndexError or struct.error on nonsense. Layouts follow the formats' own specifications.
"""

import mmap
import struct
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

ImageFormat = Literal["png", "jpeg", "webp", "gif", "bmp", "tiff", "avif", "heic"]
Buffer = bytes | mmap.mmap

MAX_STEPS = 200_000
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_SIGNATURES: dict[ImageFormat, tuple[bytes, ...]] = {
    "png": (PNG_SIGNATURE,),
    "jpeg": (b"\xff\xd8\xff",),
    "gif": (b"GIF87a", b"GIF89a"),
    "tiff": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
}
_BMP_HEADER_SIZES = {struct.pack("<I", size) for size in (12, 40, 52, 56, 64, 108, 124)}
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_AVIF_BRANDS = {b"avif", b"avis"}
_JPEG_FRAME_MARKERS = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class Size(NamedTuple):
    """Pixels as stored (before any EXIF turn) and the number of frames or pages."""

    width: int
    height: int
    frames: int


def identify(data: Buffer) -> ImageFormat | None:
    """The format these bytes begin like, or None."""
    head = bytes(data[:64])
    for image_format, starts in _SIGNATURES.items():
        if head.startswith(starts):
            return image_format
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    if head[:2] == b"BM" and head[14:18] in _BMP_HEADER_SIZES:
        return "bmp"
    return _identify_heif(head) if head[4:8] == b"ftyp" else None


def measure(data: Buffer, image_format: ImageFormat) -> Size:
    """Width, height and frames as the header of that format states them."""
    return _PARSERS[image_format](data)


def _identify_heif(head: bytes) -> ImageFormat | None:
    end = min(len(head), struct.unpack_from(">I", head)[0])
    brands = {head[8:12]} | {head[at : at + 4] for at in range(16, end - 3, 4)}
    if brands & _AVIF_BRANDS and head[8:12] not in _HEIC_BRANDS - {b"mif1", b"msf1"}:
        return "avif"
    return "heic" if brands & _HEIC_BRANDS else None


def is_cut(data: Buffer, image_format: ImageFormat) -> bool:
    """Whether an AVIF or HEIC file ends before its last box does; other formats' decoders tell by themselves."""
    at = 0
    for _ in range(MAX_STEPS if image_format in {"avif", "heic"} else 0):
        if at + 16 > len(data):
            return False
        size = struct.unpack_from(">I", data, at)[0]
        size = struct.unpack_from(">Q", data, at + 8)[0] if size == 1 else size
        if size < 8:
            return False
        at += size
        if at > len(data):
            return True
    return False


def _png(data: Buffer) -> Size:
    if data[12:16] != b"IHDR":
        raise ValueError("the first chunk is not IHDR")
    width, height = struct.unpack_from(">II", data, 16)
    frames, at = 1, 8
    for _ in range(MAX_STEPS):
        if at + 12 > len(data):
            break
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"IDAT":
            break
        if kind == b"acTL":
            frames = max(1, struct.unpack_from(">I", data, at + 8)[0])
        at += 12 + length
    return Size(width, height, frames)


def _jpeg(data: Buffer) -> Size:
    at = 2
    for _ in range(MAX_STEPS):
        if data[at] != 0xFF:
            at += 1  # stray bytes between segments are skipped, as decoders do
            continue
        marker = data[at + 1]
        if marker in _JPEG_FRAME_MARKERS:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return Size(width, height, 1)
        if marker in {0xFF, 0x00, 0x01, *range(0xD0, 0xD9)}:
            at += 1 if marker == 0xFF else 2
        elif marker in {0xD9, 0xDA}:
            break
        else:
            at += 2 + max(2, struct.unpack_from(">H", data, at + 2)[0])
    raise ValueError("no frame header before the image data")


def _gif(data: Buffer) -> Size:
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at, frames = 13 + _colour_table_bytes(flags), 0
    for _ in range(MAX_STEPS):
        if at >= len(data) or data[at] == 0x3B:
            break
        if data[at] == 0x2C and at + 10 <= len(data):
            frames += 1
            at += 11 + _colour_table_bytes(data[at + 9])
        elif data[at] == 0x21:
            at += 2
        else:
            break
        at = _after_sub_blocks(data, at)
    return Size(width, height, max(1, frames))


def _colour_table_bytes(flags: int) -> int:
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def _after_sub_blocks(data: Buffer, at: int) -> int:
    for _ in range(MAX_STEPS):
        if at >= len(data) or data[at] == 0:
            break
        at += 1 + data[at]
    return at + 1


def _webp(data: Buffer) -> Size:
    kind = data[12:16]
    if kind == b"VP8X":
        width = 1 + int.from_bytes(data[24:27], "little")
        height = 1 + int.from_bytes(data[27:30], "little")
        animated = bool(data[20] & 2)
        return Size(width, height, max(1, _count_webp_frames(data)) if animated else 1)
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = struct.unpack_from("<I", data, 21)[0]
        return Size(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF), 1)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return Size(width & 0x3FFF, height & 0x3FFF, 1)
    raise ValueError("no known WebP bitstream")


def _count_webp_frames(data: Buffer) -> int:
    frames, at = 0, 12
    for _ in range(MAX_STEPS):
        if at + 8 > len(data):
            break
        kind, length = struct.unpack_from("<4sI", data, at)
        frames += kind == b"ANMF"
        at += 8 + length + (length & 1)
    return frames


def _bmp(data: Buffer) -> Size:
    if struct.unpack_from("<I", data, 14)[0] == 12:
        width, height = struct.unpack_from("<HH", data, 18)
    else:
        width, height = struct.unpack_from("<ii", data, 18)
    return Size(width, abs(height), 1)


def _tiff(data: Buffer) -> Size:
    order = "<" if data[0] == 0x49 else ">"
    big = data[2] == 43 or data[3] == 43
    at = struct.unpack_from(order + ("Q" if big else "I"), data, 8 if big else 4)[0]
    first, seen = None, set[int]()
    while at and at not in seen and at < len(data) and len(seen) < MAX_STEPS // 10:
        seen.add(at)
        try:
            tags, at = _tiff_directory(data, at, order, big=big, wanted=first is None)
        except struct.error:
            if first is None:
                raise
            break
        first = first or (tags[256], tags[257])
    if first is None:
        raise ValueError("no image directory")
    return Size(*first, len(seen))


def _tiff_directory(data: Buffer, at: int, order: str, *, big: bool, wanted: bool) -> tuple[dict[int, int], int]:
    """The width and height tags (where wanted) of one directory, and the offset of the next."""
    count_form, entry_bytes, value_at = ("Q", 20, 12) if big else ("H", 12, 8)
    count = struct.unpack_from(order + count_form, data, at)[0]
    at += struct.calcsize("=" + count_form)
    tags = {}
    for entry in range(at, at + entry_bytes * min(count, 4096 if wanted else 0), entry_bytes):
        tag, kind = struct.unpack_from(order + "HH", data, entry)
        if tag in {256, 257}:
            tags[tag] = struct.unpack_from(order + {3: "H", 4: "I", 16: "Q"}.get(kind, "I"), data, entry + value_at)[0]
    end = at + entry_bytes * count
    following = struct.unpack_from(order + ("Q" if big else "I"), data, end)[0] if end + 4 <= len(data) else 0
    if wanted and not {256, 257} <= tags.keys():
        raise ValueError("a directory without width or height")
    return tags, following


def _boxes(data: Buffer, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Kind, first byte and end of each ISO base media box in a range."""
    for _ in range(4096):
        if at + 8 > end:
            return
        size, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if size == 1:
            size, start = struct.unpack_from(">Q", data, start)[0], start + 8
        stop = end if size == 0 else at + size
        if stop <= at or stop < start:
            return
        yield kind, start, min(stop, end)
        at = stop


def _heif(data: Buffer) -> Size:
    meta = _first_of_each(data, 0, len(data)).get(b"meta")
    parts = {} if meta is None else _first_of_each(data, meta[0] + 4, meta[1])
    extents = _spatial_extents(data, *parts[b"iprp"]) if b"iprp" in parts else []
    sizes = [struct.unpack_from(">II", data, start + 4) for start in extents]
    items = _count_pictures(data, *parts[b"iinf"]) if b"iinf" in parts else 0
    hidden = _count_derived_sources(data, *parts[b"iref"]) if b"iref" in parts else 0
    if not sizes:
        raise ValueError("no spatial extents")
    width, height = max(sizes, key=lambda size: size[0] * size[1])
    return Size(width, height, max(1, items - hidden))


def _first_of_each(data: Buffer, at: int, end: int) -> dict[bytes, tuple[int, int]]:
    """First byte and end of the first box of each kind: the kinds looked for come once, more only cost time."""
    found: dict[bytes, tuple[int, int]] = {}
    for kind, start, stop in _boxes(data, at, end):
        found.setdefault(kind, (start, stop))
    return found


def _spatial_extents(data: Buffer, first: int, last: int) -> list[int]:
    shared = _first_of_each(data, first, last).get(b"ipco", (last, last))
    return [start for kind, start, _ in _boxes(data, *shared) if kind == b"ispe"]


def _count_pictures(data: Buffer, first: int, last: int) -> int:
    wide = data[first] > 0
    kinds = (b"hvc1", b"av01", b"grid", b"iovl", b"iden")
    entries = _boxes(data, first + (8 if wide else 6), last)
    return sum(1 for kind, at, _ in entries if kind == b"infe" and data[at + 8 : at + 12] in kinds)


def _count_derived_sources(data: Buffer, first: int, last: int) -> int:
    """Pictures that are thumbnails, masks or tiles of others."""
    id_form = ">I" if data[first] else ">H"
    hidden, steps = set[int](), 0
    for kind, at, end in _boxes(data, first + 4, last):
        source = struct.unpack_from(id_form, data, at)[0]
        if kind in {b"thmb", b"auxl"}:
            hidden.add(source)
        elif kind == b"dimg":
            step = struct.calcsize(id_form)
            targets = range(at + step + 2, end - step + 1, step)
            steps += len(targets)
            if steps > MAX_STEPS:
                raise ValueError("too many references between its pictures")
            hidden.update(struct.unpack_from(id_form, data, target)[0] for target in targets)
    return len(hidden)


_PARSERS: dict[ImageFormat, Callable[[Buffer], Size]] = {
    "png": _png,
    "jpeg": _jpeg,
    "webp": _webp,
    "gif": _gif,
    "bmp": _bmp,
    "tiff": _tiff,
    "avif": _heif,
    "heic": _heif,
}
