"""QR, data matrix and bar codes."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import zxingcpp

from arachne.stages.arrays import Box, Gray, Points, Rgb, Size, bounds, resized

_Format = zxingcpp.BarcodeFormat
_KINDS: Final = {
    _Format.QRCode: "qr",
    _Format.MicroQRCode: "micro_qr",
    _Format.DataMatrix: "data_matrix",
    _Format.Aztec: "aztec",
    _Format.PDF417: "pdf_417",
    _Format.EAN13: "ean_13",
    _Format.EAN8: "ean_8",
    _Format.UPCA: "upc_a",
    _Format.UPCE: "upc_e",
    _Format.Code128: "code_128",
    _Format.Code39: "code_39",
    _Format.Code93: "code_93",
    _Format.ITF: "itf",
}
AREAS: Final = frozenset({"qr", "micro_qr", "data_matrix", "aztec", "pdf_417"})  # no text stands inside these
_UPC_E: Final = (  # digits of maker and product, and how they are shortened
    (r"(\d\d)([012])0000(\d{3})", r"\1\3\2"),
    (r"(\d{3})00000(\d\d)", r"\g<1>\g<2>3"),
    (r"(\d{4})00000(\d)", r"\g<1>\g<2>4"),
    (r"(\d{5})0000([5-9])", r"\1\2"),
)
_LEAST_PX = 20
_FAINT = 120  # gray levels between dark and light below which a code is too faint to be found


@dataclass(frozen=True)
class FoundCode:
    """A code with its content; box in pixels of the picture given."""

    kind: str
    data: str
    box: Box


def find_codes(rgb: Rgb, max_side_px: int = 2000) -> tuple[FoundCode, ...]:
    """The readable codes of a picture, uint8 (H, W, 3), larger ones looked at scaled down to `max_side_px`."""
    scale = min(1.0, max_side_px / max(rgb.shape[:2]))
    gray = np.asarray(cv2.cvtColor(resized(rgb, scale), cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    if min(gray.shape) < _LEAST_PX:
        return ()
    size = Size(rgb.shape[1], rgb.shape[0])
    read = zxingcpp.read_barcodes(
        _contrasted(gray), formats=zxingcpp.BarcodeFormats(list(_KINDS)), text_mode=zxingcpp.TextMode.Plain
    )
    return tuple(
        FoundCode(*_printed(_kind(found), told(found.bytes, found.text)), bounds(_corners(found) / scale, size))
        for found in read
        if found.bytes
    )


def told(content: bytes, text: str) -> str:
    r"""The content as text; control characters as escapes like \x00, and content that is no text in hex."""
    try:
        plain = content.decode()
    except UnicodeDecodeError:
        plain = text if text and all(unicodedata.category(c)[0] != "C" for c in text) else content.hex()
    return "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else f"\\x{ord(c):02x}" for c in plain)


def _kind(found: zxingcpp.Barcode) -> str:
    kind = _KINDS.get(found.format) or _KINDS.get(found.symbology)
    return kind or str(found.format).lower().replace(" ", "_").replace("-", "_")


def _printed(kind: str, data: str) -> tuple[str, str]:
    """Kind and digits as they are printed below a product's bars, which are always given as the 13 of an EAN.

    Source: GS1 General Specifications: an EAN-13 that begins with 0 is the UPC-A of its other digits, bar for bar, and
    a UPC-E is a UPC-A without some of its zeros.
    """
    if kind not in {"ean_13", "upc_a", "upc_e"} or not re.fullmatch(r"0\d{12}", data):
        return kind, data
    if kind != "upc_e":
        return "upc_a", data[1:]
    system, maker, product, check = data[1], data[2:7], data[7:12], data[12]
    for pattern, short in _UPC_E:
        if re.fullmatch(pattern, maker + product):
            return kind, system + re.sub(pattern, short, maker + product) + check
    return kind, data


def _contrasted(gray: Gray) -> Gray:
    low, high = (float(level) for level in np.percentile(gray[::4, ::4], [1, 99]))
    if not 4 < high - low < _FAINT:
        return gray
    return np.asarray(cv2.convertScaleAbs(gray, alpha=255 / (high - low), beta=-255 * low / (high - low)), np.uint8)


def _corners(found: zxingcpp.Barcode) -> Points:
    place = found.position
    points = (place.top_left, place.top_right, place.bottom_right, place.bottom_left)
    return np.array([[point.x, point.y] for point in points], dtype=np.float64)
