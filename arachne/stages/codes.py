"""QR and bar codes."""

from dataclasses import dataclass

import cv2
import numpy as np

from arachne.stages.arrays import Box, Rgb, Size, bounds, resized


@dataclass(frozen=True)
class FoundCode:
    """A code with its content; box in pixels of the picture given."""

    kind: str
    data: str
    box: Box


def find_codes(rgb: Rgb, max_side_px: int = 2000) -> tuple[FoundCode, ...]:
    """The readable codes of a picture, uint8 (H, W, 3)."""
    scale = min(1.0, max_side_px / max(rgb.shape[:2]))
    gray = cv2.cvtColor(resized(rgb, scale), cv2.COLOR_RGB2GRAY)
    if min(gray.shape) < 20:
        return ()
    size = Size(rgb.shape[1], rgb.shape[0])
    found = list[FoundCode]()
    ok, texts, points, _ = cv2.QRCodeDetector().detectAndDecodeMulti(gray)
    if ok:
        found += [
            FoundCode("qr", text, bounds(place / scale, size))
            for text, place in zip(texts, points, strict=True)
            if text
        ]
    ok, texts, kinds, points = cv2.barcode.BarcodeDetector().detectAndDecodeWithType(gray)
    if ok:
        found += [
            FoundCode(kind.lower() or "barcode", text, bounds(np.asarray(place) / scale, size))
            for text, kind, place in zip(texts, kinds, points, strict=True)
            if text
        ]
    return tuple(found)
