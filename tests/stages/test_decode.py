"""Decoding: what is displayed comes out, what is damaged says so."""

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from arachne.errors import DecodeFailed, ImageError, ImageTooLarge, TooManyFrames, UnsupportedImage
from arachne.stages.decode import Decoded, DecodeOptions, decode

OPTIONS = DecodeOptions(max_pixels=1_000_000, max_frames=5)
ALL = DecodeOptions(max_pixels=1_000_000, max_frames=5, frames="all")


def save(image: Image.Image, image_format: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, image_format, **options)
    return out.getvalue()


def corner() -> Image.Image:
    """Gray, with its top left quarter black: 40 wide, 24 high."""
    image = Image.new("RGB", (40, 24), (200, 200, 200))
    image.paste((0, 0, 0), (0, 0, 20, 12))
    return image


def quarters(decoded: Decoded) -> list[bool]:
    """Whether each quarter (top left, top right, bottom left, bottom right) is dark."""
    rgb = decoded.frames[0]
    height, width = rgb.shape[:2]
    return [bool(rgb[y, x].mean() < 100) for y in (height // 4, 3 * height // 4) for x in (width // 4, 3 * width // 4)]


@pytest.mark.parametrize(
    ("orientation", "dark"),
    [(1, 0), (2, 1), (3, 3), (4, 2), (5, 0), (6, 1), (7, 3), (8, 2)],
)
@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_applied(image_format: str, orientation: int, dark: int) -> None:
    """Where the stored top left corner is displayed, after the table of the EXIF standard."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    decoded = decode(save(corner(), image_format, exif=exif), OPTIONS)
    assert quarters(decoded) == [index == dark for index in range(4)]
    assert decoded.exif_orientation == orientation
    assert (decoded.width, decoded.height) == ((24, 40) if orientation > 4 else (40, 24))


def test_an_orientation_that_does_not_exist_is_ignored_with_a_warning() -> None:
    exif = Image.Exif()
    exif[0x0112] = 99
    decoded = decode(save(corner(), "JPEG", exif=exif), OPTIONS)
    assert decoded.exif_orientation is None
    assert "99" in decoded.warnings[0]


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "I;16", "I", "F", "YCbCr", "LAB"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    gray = corner().convert("L")
    if mode == "I;16":
        image = Image.fromarray(np.asarray(gray).astype(np.uint16) * 257)
    elif mode == "1":
        image = gray.point(lambda level: 255 if level > 100 else 0, "1")
    elif mode == "LAB":
        srgb, lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
        image = ImageCms.profileToProfile(corner(), srgb, lab, outputMode="LAB")
    else:
        image = gray.convert("F").convert(mode) if mode in {"I", "F"} else corner().convert(mode)
    decoded = decode(save(image, "TIFF"), OPTIONS)
    assert decoded.frames[0].dtype == np.uint8
    assert quarters(decoded) == [True, False, False, False]


def test_16_bit_png_keeps_its_levels() -> None:
    image = Image.fromarray(np.array([[0, 12850, 65535]], dtype=np.uint16))
    assert decode(save(image, "PNG"), OPTIONS).frames[0][0, :, 0].tolist() == [0, 50, 255]


@pytest.mark.parametrize(("ink", "ground"), [(0, 255), (255, 0)])
def test_transparency_is_laid_on_the_ground_that_keeps_the_text(ink: int, ground: int) -> None:
    """Black ink on nothing needs white, white ink black, even where what is hidden has the ink's colour."""
    image = Image.new("RGBA", (40, 24), (ink, ink, ink, 0))
    image.paste((ink, ink, ink, 255), (10, 6, 20, 12))
    rgb = decode(save(image, "PNG"), OPTIONS).frames[0]
    assert rgb[8, 15, 0] == ink
    assert rgb[0, 0, 0] == ground


def test_profiles_are_applied_and_damaged_ones_ignored() -> None:
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    plain = decode(save(corner(), "PNG"), OPTIONS).frames[0]
    assert np.abs(decode(save(corner(), "PNG", icc_profile=srgb), OPTIONS).frames[0].astype(int) - plain).max() <= 2
    damaged = decode(save(corner(), "PNG", icc_profile=b"nonsense"), OPTIONS)
    assert damaged.warnings[0].startswith("icc")


@pytest.mark.parametrize(("image_format", "progressive"), [("PNG", False), ("JPEG", False), ("JPEG", True)])
def test_truncated_files_give_the_rows_that_are_there(image_format: str, *, progressive: bool) -> None:
    noise = np.random.default_rng(7).integers(0, 255, (200, 200, 3), dtype=np.uint8)
    options = {"progressive": True} if progressive else {}
    data = save(Image.fromarray(noise), image_format, **options)
    decoded = decode(data[: len(data) // 2], OPTIONS)
    assert "truncated" in decoded.warnings
    assert (decoded.width, decoded.height) == (200, 200)
    assert decoded.frames[0][:40].std() > 20


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"])
def test_without_a_single_row_decoding_fails(image_format: str) -> None:
    noise = np.random.default_rng(7).integers(0, 255, (90, 90, 3), dtype=np.uint8)
    data = save(Image.fromarray(noise), image_format)
    starts = {
        "PNG": data.index(b"IDAT") + 4 if image_format == "PNG" else 0,
        "GIF": 790,
        "BMP": 54,
        "TIFF": 8,
        "WEBP": 30,
    }
    cut = data[: starts[image_format]] if image_format in starts else data[: data.index(b"\xff\xda") + 14]
    with pytest.raises((DecodeFailed, UnsupportedImage)) as caught:
        decode(cut, OPTIONS)
    assert caught.value.stage == "decode"


def test_a_png_of_only_a_header_fails() -> None:
    body = b"IHDR" + struct.pack(">IIBBBBB", 30, 30, 8, 2, 0, 0, 0)
    with pytest.raises(DecodeFailed):
        decode(b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body)), OPTIONS)


def test_a_text_chunk_that_explodes_does_no_harm() -> None:
    data = save(corner(), "PNG")
    packed = b"zTXt" + b"a\0\0" + zlib.compress(bytes(64 << 20))
    bomb = struct.pack(">I", len(packed) - 4) + packed + struct.pack(">I", zlib.crc32(packed))
    assert decode(data[:33] + bomb + data[33:], OPTIONS).width == 40


@pytest.mark.parametrize("image_format", ["GIF", "PNG", "WEBP", "TIFF"])
def test_frames_are_dropped_by_name_or_all_read(image_format: str) -> None:
    pictures = [Image.new("RGB", (8, 6), (value, value, value)) for value in (0, 128, 255)]
    data = save(pictures[0], image_format, save_all=True, append_images=pictures[1:])
    first = decode(data, OPTIONS)
    assert (len(first.frames), first.frame_count) == (1, 3)
    assert "2 to 3" in first.warnings[0]
    levels = [round(float(frame.mean()) / 128) for frame in decode(data, ALL).frames]
    assert levels == [0, 1, 2]


def test_a_frame_of_which_nothing_is_there_leaves_those_before_it() -> None:
    """The file ends before the second picture's data; HEIC has it all at its end."""
    noise = np.random.default_rng(7).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    pages = [Image.fromarray(noise), Image.fromarray(255 - noise)]
    data = save(pages[0], "HEIF", save_all=True, append_images=pages[1:])
    decoded = decode(data[: round(len(data) * 0.55)], ALL)
    assert len(decoded.frames) == 1
    assert decoded.frames[0].std() > 20
    assert "frames: 2 to 2 could not be decoded, dropped" in decoded.warnings


def test_limits_hold_before_decoding() -> None:
    with pytest.raises(ImageTooLarge) as caught:
        decode(save(Image.new("1", (1001, 1000)), "PNG"), OPTIONS)
    assert caught.value.stage == "decode"
    pictures = [Image.new("L", (4, 4), value) for value in range(0, 240, 40)]
    with pytest.raises(TooManyFrames):
        decode(save(pictures[0], "TIFF", save_all=True, append_images=pictures[1:]), ALL)


@pytest.mark.parametrize(("at", "value", "told"), [(29, None, "checksum"), (24, 3, "colour type 2 with 3 bits")])
def test_a_damaged_png_header_is_told(at: int, value: int | None, told: str) -> None:
    data = bytearray(save(corner(), "PNG"))
    data[at] = data[at] ^ 0xFF if value is None else value
    if value is not None:
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    with pytest.raises(DecodeFailed, match=told):
        decode(bytes(data), OPTIONS)


def decoded_or_told(data: bytes) -> Decoded | ImageError:
    try:
        return decode(data, OPTIONS)
    except ImageError as error:
        return error


@pytest.mark.parametrize("image_format", ["AVIF", "HEIF"])
def test_a_cut_avif_or_heic_gives_what_is_there_or_fails(image_format: str) -> None:
    noise = np.random.default_rng(7).integers(0, 255, (90, 90, 3), dtype=np.uint8)
    data = save(Image.fromarray(noise), image_format)
    assert decode(data, OPTIONS).warnings == ()
    found = decoded_or_told(data[:-200])
    assert isinstance(found, DecodeFailed) or "truncated" in found.warnings


DAMAGED = {form: save(corner(), form) for form in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "AVIF", "HEIF")}


@pytest.mark.parametrize("image_format", DAMAGED)
@settings(max_examples=25)
@given(cut=st.floats(0, 1), flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=6))
def test_damaged_files_give_pixels_or_a_precise_error(
    image_format: str, cut: float, flips: list[tuple[float, int]]
) -> None:
    data = bytearray(DAMAGED[image_format])
    for place, value in flips:
        data[int(place * len(data))] = value
    found = decoded_or_told(bytes(data[: round(cut * len(data))]))
    if isinstance(found, ImageError):
        assert (found.stage, found.message[-1]) == ("decode", ".")
    else:
        assert (found.frames[0].dtype, found.frames[0].ndim) == (np.uint8, 3)
