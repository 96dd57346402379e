"""Every form of a result from the running product, each read by a program that is not ours."""

import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pypdfium2
import pytest
from PIL import Image

from tests.acceptance.conftest import Client, Product, is_alive

ONE, JOBS = "/api/extract/image", "/api/extract/image-jobs"
FORMATS = {
    "json": "application/json",
    "md": "text/markdown",
    "txt": "text/plain",
    "hocr": "application/xhtml+xml",
    "pdf": "application/pdf",
    "png": "image/png",
}
WORDS = "Save changes before closing?"


def read(client: Client, picture: Path, **options: Any) -> tuple[str, dict[str, Any]]:
    """The URL of a picture's result, and the result."""
    options = {"cache": "bypass", "detail_level": "fast", **options}
    answer = client.api.post(
        ONE,
        files={"file": (picture.name, picture.read_bytes())},
        data={"options": json.dumps(options)},
        headers={"Prefer": "wait=60"},
    )
    assert answer.status_code in {200, 202}, answer.text
    job = client.wait(answer.json()["job_id"])
    assert job["status"] == "completed", job
    return f"{JOBS}/{job['job_id']}/images/0/result", job["result"]


def get(client: Client, url: str, form: str, **parameters: Any) -> httpx.Response:
    """A document, with the headers that make it harmless to open."""
    answer = client.api.get(url, params={"format": form, **parameters})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].split(";")[0] == FORMATS[form]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "sandbox"
    assert re.fullmatch(rf'attachment; filename="[\w.-]+\.{form}"', answer.headers["content-disposition"])
    return answer


def test_every_format_of_one_picture(client: Client, images: Path) -> None:
    """All say the same words; hOCR and PDF at the boxes of the JSON, and the PDF shows the picture unchanged."""
    picture = images / "dialog_light.png"
    url, result = read(client, picture)
    found = {form: get(client, url, form) for form in FORMATS}
    assert found["json"].json() == result
    assert WORDS in found["txt"].text
    assert WORDS in found["md"].text
    words = [word for block in result["blocks"] for line in block["lines"] for word in line["words"]]
    spans = [span for span in ET.fromstring(found["hocr"].content).iter() if span.get("class") == "ocrx_word"]
    assert [span.text for span in spans] == [word["text"] for word in words]
    for span, word in zip(spans, words, strict=True):
        x, y, width, height = word["bbox"]
        told = [float(number) for number in re.findall(r"bbox (\d+) (\d+) (\d+) (\d+)", str(span.get("title")))[0]]
        assert told == pytest.approx([x, y, x + width, y + height], abs=1)
    document = pypdfium2.PdfDocument(found["pdf"].content)
    shown = np.asarray(document[0].render(scale=1).to_pil().convert("RGB"))
    text = document[0].get_textpage().get_text_range()
    document.close()
    assert text.split() == [word["text"] for word in words]
    with Image.open(picture) as image:
        expected = np.asarray(image.convert("RGB"))
    assert (shown == expected).all()
    with Image.open(io.BytesIO(found["png"].content)) as drawn:
        assert drawn.size == (expected.shape[1], expected.shape[0])
        changed = (np.asarray(drawn) != expected).any(axis=2).mean()
    assert 0.005 < changed < 0.3


def test_frames_are_pages(client: Client, images: Path, tmp_path: Path) -> None:
    """A TIFF of two pages: two in the PDF, and one alone on request."""
    with Image.open(images / "dialog_light.png") as first:
        page = first.convert("RGB")
        page.save(tmp_path / "scan.tiff", save_all=True, append_images=[page.rotate(180)])
    url, _ = read(client, tmp_path / "scan.tiff", frames="all")
    for parameters, pages in (({}, 2), ({"page": 1}, 1)):
        document = pypdfium2.PdfDocument(get(client, url, "pdf", **parameters).content)
        assert len(document) == pages
        assert "changes" in document[pages - 1].get_textpage().get_text_range()
        document.close()
    assert client.api.get(url, params={"format": "hocr", "page": 2}).status_code == 404


def test_documents_are_made_beside_the_api(client: Client, product: Product, images: Path) -> None:
    """At most two subprocesses make documents, and end with the API; the API's process stays small."""
    url, _ = read(client, images / "chat.png")
    get(client, url, "pdf")
    (api,) = product.parts("api")
    beside = [child for child in api.children(recursive=True) if "spawn_main" in " ".join(child.cmdline())]
    assert 1 <= len([child for child in beside if is_alive(child)]) <= 2
