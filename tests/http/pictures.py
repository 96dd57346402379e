"""Small images, made here."""

import io
import struct
import zlib

from PIL import Image


def png(colour: tuple[int, int, int] = (200, 30, 30), size: tuple[int, int] = (40, 20)) -> bytes:
    """A PNG of one colour; other colours are other images."""
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


def gif(frames: int) -> bytes:
    """A GIF with so many frames."""
    buffer = io.BytesIO()
    pictures = [Image.new("RGB", (8, 8), (n * 20 % 256, n, 255 - n)) for n in range(frames)]
    pictures[0].save(buffer, "GIF", save_all=True, append_images=pictures[1:])
    return buffer.getvalue()


def huge_png(width: int, height: int) -> bytes:
    """A PNG's header that states a huge size, and nothing after it."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
