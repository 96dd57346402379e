"""Any Pillow mode as sRGB pixels: colour profiles, deep samples, and transparency laid on a readable ground."""

import io

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms

from arachne.stages.arrays import Gray, Rgb, Samples

_SRGB = ImageCms.createProfile("sRGB")
_STRIP_PIXELS = 1_000_000
_OPAQUE = 255
_CMS_MODES = {"L", "RGB", "CMYK"}


def to_rgb(image: Image.Image, notes: list[str]) -> Rgb:
    """The loaded image as uint8 (H, W, 3), writable; `notes` gets what had to be ignored."""
    profile = image.info.get("icc_profile")
    if image.mode == "RGBA" and not profile:  # as most screenshots are
        pixels = _pixels(image, "RGBA")
        colours = np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGBA2RGB), dtype=np.uint8)
        return _lay_on_ground(colours, np.ascontiguousarray(pixels[..., 3]))
    flat, alpha = _split_alpha(_eight_bit(image))
    rgb = _pixels(_through_profile(flat, profile, notes))
    return rgb if alpha is None else _lay_on_ground(rgb, alpha)


def _pixels(image: Image.Image, mode: str = "RGB") -> Samples:
    """The image as an array, made in strips: Pillow's own way holds large pictures three times."""
    pixels = np.empty((image.height, image.width, len(mode)), np.uint8)
    rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        pixels[top : top + rows] = np.asarray(strip if strip.mode == mode else strip.convert(mode))
    return pixels


def _eight_bit(image: Image.Image) -> Image.Image:
    if not image.mode.startswith(("I", "F")):
        return image
    samples = np.asarray(image)
    if image.mode.startswith("I;16"):
        deep = samples.astype(np.uint16, copy=False)
        # 12-bit scans come in 16-bit words; shifting those by 8 would leave them near black.
        bits = max(8, int(deep.max(initial=0)).bit_length()) if image.format == "TIFF" else 16
        return Image.fromarray((deep >> (bits - 8)).astype(np.uint8))
    return Image.fromarray(_stretched(samples))


def _stretched(samples: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    values = np.nan_to_num(samples.astype(np.float32), posinf=0, neginf=0)
    if values.min() >= 0 and 255 < values.max() <= 65535:
        return (values / 257).astype(np.uint8)
    low, high = float(values.min()), float(values.max())
    return ((values - low) * (255 / max(high - low, 1e-9))).astype(np.uint8)


def _split_alpha(image: Image.Image) -> tuple[Image.Image, Gray | None]:
    if not image.has_transparency_data:
        return image, None
    full = image.convert("RGBA")
    return full.convert("RGB"), np.asarray(full.getchannel("A"))


def _through_profile(image: Image.Image, profile: object, notes: list[str]) -> Image.Image:
    if not isinstance(profile, bytes) or image.mode not in _CMS_MODES or b"sRGB" in profile:
        return image
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        changed = ImageCms.profileToProfile(image, source, _SRGB, outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        notes.append("icc: the colour profile is damaged or of another colour space and was ignored")
        return image
    return image if changed is None else changed


def _lay_on_ground(rgb: Rgb, alpha: Gray) -> Rgb:
    """The picture on white or on black, whichever leaves more edges to see; white where that is equal."""
    if int(alpha.min()) == _OPAQUE:
        return rgb
    on_black = cv2.multiply(rgb, cv2.merge([alpha] * 3), scale=1 / 255)
    on_white = cv2.add(on_black, cv2.merge([cv2.bitwise_not(alpha)] * 3))
    seen = on_black if _edges(on_black) > 1.2 * _edges(on_white) else on_white
    return np.asarray(seen, dtype=np.uint8)


def _edges(rgb: cv2.typing.MatLike) -> float:
    green = rgb[..., 1]
    return float(cv2.absdiff(green[:, 1:], green[:, :-1]).mean()) if green.shape[1] > 1 else 0.0
