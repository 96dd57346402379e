"""Sniffing and admission, with Pillow as the outside witness of sizes and frames."""

import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from arachne import headers
from arachne.errors import ImageTooLarge, TooManyFrames, UnsupportedImage
from arachne.images import ImageHeader, admit, sniff

FORMATS = ["png", "jpeg", "webp", "gif", "bmp", "tiff", "avif"]


def saved(image_format: str, size: tuple[int, int] = (37, 21), frames: int = 1, **options: object) -> bytes:
    out = io.BytesIO()
    pictures = [Image.new("RGB", size, (40 * index, 90, 200)) for index in range(frames)]
    more = {"save_all": True, "append_images": pictures[1:]} if frames > 1 else {}
    pictures[0].save(out, image_format.upper(), **more, **options)
    return out.getvalue()


def header_only_png(width: int, height: int) -> bytes:
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


def admit_small(header: ImageHeader, size_bytes: int = 10, frames: str = "first") -> None:
    admit(header, max_bytes=100, size_bytes=size_bytes, max_pixels=1000, max_frames=3, frames=frames)


@pytest.mark.parametrize("image_format", FORMATS)
def test_format_and_size_come_from_the_bytes(image_format: str, tmp_path: Path) -> None:
    data = saved(image_format)
    (tmp_path / "misnamed.txt").write_bytes(data)
    expected = ImageHeader(image_format, 37, 21, 1)
    assert sniff(data) == expected == sniff(tmp_path / "misnamed.txt")


@pytest.mark.parametrize("image_format", ["png", "webp", "gif", "tiff", "avif"])
def test_frames_are_counted(image_format: str) -> None:
    data = saved(image_format, frames=4)
    with Image.open(io.BytesIO(data)) as witness:
        expected = 1 if image_format == "avif" else witness.n_frames  # AVIF sequences are counted when decoded
    assert sniff(data).frames in {expected, 4}


@pytest.mark.parametrize("options", [{"lossless": True}, {"exif": b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0"}])
def test_other_webp_layouts(options: dict[str, object]) -> None:
    assert sniff(saved("webp", **options)) == ImageHeader("webp", 37, 21, 1)


def test_heic_is_told_from_avif() -> None:
    def box(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", 8 + len(body)) + kind + body

    size = box(b"ispe", struct.pack(">III", 0, 640, 480))
    meta = box(b"meta", bytes(4) + box(b"iprp", box(b"ipco", size)))
    assert sniff(box(b"ftyp", b"heic" + bytes(4) + b"mif1") + meta) == ImageHeader("heic", 640, 480, 1)
    assert sniff(box(b"ftyp", b"mif1" + bytes(4) + b"avif") + meta).format == "avif"


def test_heic_with_endless_references_or_boxes_is_told_in_bounded_steps() -> None:
    """20 MB of tile references, or of boxes within boxes, must not hold a thread of the API for seconds."""

    def box(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", 8 + len(body)) + kind + body

    start = box(b"ftyp", b"heic" + bytes(4) + b"mif1")
    properties = box(b"iprp", box(b"ipco", box(b"ispe", struct.pack(">III", 0, 640, 480))))
    tiles = box(b"iref", bytes(4) + box(b"dimg", bytes(2) + b"\xff\xff" + bytes(range(256)) * 4000))
    with pytest.raises(UnsupportedImage, match="references"):
        sniff(start + box(b"meta", bytes(4) + properties + tiles))
    empty = box(b"free", b"") * 4096
    steps, boxes = 0, headers._boxes

    def counted(*given: object) -> Iterator[tuple[bytes, int, int]]:
        nonlocal steps
        for found in boxes(*given):  # type: ignore[arg-type]
            steps += 1
            yield found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headers, "_boxes", counted)
        many = box(b"meta", bytes(4) + properties + (box(b"iref", bytes(4) + empty) + box(b"iprp", empty)) * 40)
        assert sniff(start + many + many) == ImageHeader("heic", 640, 480, 1)
    assert steps < 6 * 4096


def test_a_png_of_only_a_header_passes() -> None:
    assert sniff(header_only_png(2_147_483_647, 9)) == ImageHeader("png", 2_147_483_647, 9, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"just text",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"P5 2 2 255\n0000",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
        b"II*\0",
    ],
)
def test_no_image_is_unsupported(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(data)
    for source in (data, tmp_path / "picture.png"):
        with pytest.raises(UnsupportedImage):
            sniff(source)


def test_zero_sizes_are_unsupported() -> None:
    with pytest.raises(UnsupportedImage, match="0 x 5"):
        sniff(header_only_png(0, 5))


@pytest.mark.parametrize("image_format", FORMATS)
@settings(max_examples=40)
@given(noise=st.data())
def test_damaged_bytes_raise_nothing_else(image_format: str, noise: st.DataObject) -> None:
    """Any cut and any altered bytes give a header or UnsupportedImage."""
    data = bytearray(_SAMPLES[image_format])
    for _ in range(noise.draw(st.integers(0, 6))):
        data[noise.draw(st.integers(0, len(data) - 1))] = noise.draw(st.integers(0, 255))
    try:
        header = sniff(bytes(data[: noise.draw(st.integers(0, len(data)))]))
    except UnsupportedImage:
        return
    assert header.width > 0
    assert header.height > 0


_SAMPLES = {name: saved(name, frames=1 if name in {"jpeg", "bmp"} else 2) for name in FORMATS}


def test_a_tiff_whose_pages_go_round_ends() -> None:
    entry = struct.pack("<HHIHHHHIHH", 256, 3, 1, 5, 0, 257, 3, 1, 5, 0)
    data = b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 2) + entry + struct.pack("<I", 8)
    assert sniff(data) == ImageHeader("tiff", 5, 5, 1)


def test_limits() -> None:
    admit_small(ImageHeader("png", 50, 20, 99))
    with pytest.raises(ImageTooLarge, match="bytes"):
        admit_small(ImageHeader("png", 5, 5, 1), size_bytes=101)
    with pytest.raises(ImageTooLarge, match="pixels"):
        admit_small(ImageHeader("png", 50, 21, 1))
    with pytest.raises(ImageTooLarge, match="3 frames"):
        admit_small(ImageHeader("gif", 25, 20, 3), frames="all")
    with pytest.raises(TooManyFrames, match="frames=first"):
        admit_small(ImageHeader("gif", 2, 2, 4), frames="all")
