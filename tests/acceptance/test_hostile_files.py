"""One batch of files made to break decoders: each gets its text or a precise error, and no process is restarted."""

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tests.acceptance.conftest import Client, Product

TEXT = "Still readable 2468"


def picture(mode: str = "RGB", size: tuple[int, int] = (460, 90)) -> Image.Image:
    image = Image.new("L", size, 255)
    ImageDraw.Draw(image).text((24, 24), TEXT, fill=0, font=ImageFont.load_default(36))
    return image.convert(mode)


def saved(image: Image.Image, image_format: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, image_format, **options)
    return out.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def claiming(width: int, height: int) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000)))


def clear_ground() -> bytes:
    ink = Image.new("RGBA", (460, 90), (0, 0, 0, 0))
    ImageDraw.Draw(ink).text((24, 24), TEXT, fill=(0, 0, 0, 255), font=ImageFont.load_default(36))
    return saved(ink, "PNG")


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    turn = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
    return saved(picture().transpose(turn[orientation]), "JPEG", exif=exif, quality=95)


def noise() -> bytes:
    return saved(Image.fromarray(np.random.default_rng(2).integers(0, 255, (400, 500), dtype=np.uint8)), "PNG")


def animated(image_format: str) -> bytes:
    return saved(picture(), image_format, save_all=True, append_images=[Image.new("RGB", (460, 90), "white")] * 3)


READABLE: dict[str, Callable[[], bytes]] = {
    "palette.png": lambda: saved(picture("P"), "PNG"),
    "gray16.png": lambda: saved(Image.fromarray(np.asarray(picture("L")).astype(np.uint16) * 257), "PNG"),
    "one-bit.png": lambda: saved(picture("1"), "PNG"),
    "black on nothing.png": clear_ground,
    "bomb in a comment.png": lambda: (
        saved(picture(), "PNG")[:33]
        + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(64 << 20)))
        + saved(picture(), "PNG")[33:]
    ),
    "zip behind.png": lambda: saved(picture(), "PNG") + b"PK\x03\x04" + bytes(500),
    "../../etc/ไทย \u202e.png": lambda: saved(picture(), "PNG"),
    "named.png": lambda: saved(picture(), "JPEG", quality=95),
    "no end.jpg": lambda: saved(picture(), "JPEG", quality=95)[:-2],
    "progressive.jpg": lambda: saved(picture(), "JPEG", quality=95, progressive=True),
    "cmyk.jpg": lambda: saved(picture("CMYK"), "JPEG", quality=95),
    "cmyk.tif": lambda: saved(picture("CMYK"), "TIFF"),
    "exif3.jpg": lambda: turned(3),
    "exif6.jpg": lambda: turned(6),
    "exif8.jpg": lambda: turned(8),
    "moving.gif": lambda: animated("GIF"),
    "moving.png": lambda: animated("PNG"),
    "moving.webp": lambda: animated("WEBP"),
    "pages.tif": lambda: animated("TIFF"),
    "still.webp": lambda: saved(picture(), "WEBP"),
    "still.avif": lambda: saved(picture(), "AVIF", quality=90),
    "still.bmp": lambda: saved(picture(), "BMP"),
}
WORDLESS: dict[str, Callable[[], bytes]] = {
    "noise.png": noise,
    "one pixel.png": lambda: saved(Image.new("RGB", (1, 1)), "PNG"),
    "strip.png": lambda: saved(Image.new("RGB", (1, 20_000), "white"), "PNG"),
    "black.jpg": lambda: saved(Image.new("RGB", (400, 300)), "JPEG"),
    "nothing.png": lambda: saved(Image.new("RGBA", (300, 300), (0, 0, 0, 0)), "PNG"),
}
REFUSED: dict[str, tuple[Callable[[], bytes], set[str]]] = {
    "empty.png": (lambda: b"", {"unsupported_image"}),
    "text.png": (lambda: b"Only text.\n", {"unsupported_image"}),
    "script.svg": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", {"unsupported_image"}),
    "huge.png": (lambda: claiming(2_147_483_647, 2_147_483_647), {"image_too_large"}),
    "large.png": (lambda: claiming(20_000, 20_000), {"image_too_large"}),
    "no width.gif": (lambda: b"GIF89a\0\0\x20\0\0\0\0", {"unsupported_image"}),
    "header.png": (lambda: saved(picture(), "PNG")[:33], {"decode_failed"}),
    "bad checksum.png": (
        lambda: saved(picture(), "PNG")[:29] + b"\0\0\0\0" + saved(picture(), "PNG")[33:],
        {"decode_failed"},
    ),
    "no rows.jpg": (lambda: cut_before_rows(saved(picture(), "JPEG")), {"decode_failed"}),
    "loop.tif": (lambda: b"II*\0\x08\0\0\0" + b"\0\0" + b"\x08\0\0\0", {"unsupported_image", "decode_failed"}),
}


def cut_before_rows(data: bytes) -> bytes:
    return data[: data.index(b"\xff\xda") + 14]


def pids(product: Product) -> set[int]:
    """Every part that is running, without the stage subprocesses, which come and go by design."""
    words = (["api"], ["worker", "gpu"], ["worker", "io"], ["scheduler"])
    return {product.process.pid} | {part.pid for command in words for part in product.parts(*command)}


def test_a_batch_of_hostile_files(client: Client, product: Product) -> None:
    before = pids(product)
    makers = READABLE | WORDLESS | {name: maker for name, (maker, _) in REFUSED.items()}
    files = [("files", (name, maker(), "application/octet-stream")) for name, maker in makers.items()]
    answer = client.api.post("/api/extract/images", files=files)
    assert answer.status_code == 202, answer.text
    job = client.wait(answer.json()["job_id"], timeout_s=300)
    assert job["status"] == "partial"
    images = dict(zip(makers, job["images"], strict=True))
    wrong = {name: told for name, image in images.items() if (told := judge(client, job["job_id"], name, image))}
    assert wrong == {}
    assert pids(product) == before
    assert client.get("/readyz")["status"] in {"ok", "ready"}


def judge(client: Client, job_id: str, name: str, image: dict[str, object]) -> object:
    """What is wrong with an image's end; None where it is as it should be."""
    if name in REFUSED:
        error = image["error"]
        right = isinstance(error, dict) and error["code"] in REFUSED[name][1] and str(error["message"]).endswith(".")
        return None if right else error or image["status"]
    if image["status"] != "completed":
        return image["error"]
    found = client.get(f"/api/extract/image-jobs/{job_id}/images/{image['index']}")["result"]
    if name in READABLE:
        return None if TEXT in found["text"] else found["text"]
    return found["text"] if any(word.isalpha() and len(word) > 3 for word in found["text"].split()) else None
