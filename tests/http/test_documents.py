"""Results as hOCR, PDF and PNG: made outside the API's process, bounded, and harmless to open."""

import io
import subprocess
import sys
import xml.etree.ElementTree as ET

import httpx
import pypdfium2
import pytest
from PIL import Image

from tests.http.conftest import Service, Start
from tests.http.pictures import gif, png
from tests.http.sending import ONE, send
from tests.http.worker import PAGES, Worker

pytestmark = pytest.mark.processes

JOBS = "/api/extract/image-jobs"
KINDS = {"hocr": "application/xhtml+xml; charset=utf-8", "pdf": "application/pdf", "png": "image/png"}


async def get(service: Service, url: str) -> httpx.Response:
    """The answer to a GET with acme's token."""
    return await service.client.get(url, headers=await service.headers())


async def read(service: Service, data: bytes, name: str = "shot.gif", failing: tuple[str, ...] = ()) -> str:
    """The URL of the one image's result, once a worker has read it."""
    worker = await Worker(service).start()
    job_id = (await send(service, ONE, files={"file": (name, data)})).json()["job_id"]
    await worker.read_all(failing=failing)
    return f"{JOBS}/{job_id}/images/0/result"


def check_headers(response: httpx.Response, filename: str, kind: str) -> None:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == KINDS[kind]
    assert response.headers["content-disposition"] == f'attachment; filename="{filename}"'
    assert response.headers["content-security-policy"] == "sandbox"
    assert response.headers["x-content-type-options"] == "nosniff"


def forget_originals(service: Service) -> None:
    for path in (service.settings.data_dir / "storage").rglob("*"):
        if path.is_file():
            path.unlink()


async def test_every_document_is_what_it_says(start: Start) -> None:
    """Both pages in hOCR and PDF, the first in PNG; `page` chooses one. hOCR needs no original."""
    async with start(cpu_workers=1) as service:
        await service.account()
        url = await read(service, gif(PAGES))
        await check_documents(service, url)
        forget_originals(service)
        assert (await get(service, f"{url}?format=hocr")).status_code == 200


async def check_documents(service: Service, url: str) -> None:
    found = {kind: await get(service, f"{url}?format={kind}") for kind in KINDS}
    for kind, response in found.items():
        check_headers(response, f"shot.{kind}", kind)
    assert len(list(ET.fromstring(found["hocr"].content).iter("{http://www.w3.org/1999/xhtml}div"))) == PAGES
    document = pypdfium2.PdfDocument(found["pdf"].content)
    assert len(document) == PAGES
    document.close()
    with Image.open(io.BytesIO(found["png"].content)) as picture:
        assert (picture.format, picture.size) == ("PNG", (8, 8))
    one = pypdfium2.PdfDocument((await get(service, f"{url}?format=pdf&page=1")).content)
    assert len(one) == 1
    one.close()
    for kind in KINDS:
        missing = await get(service, f"{url}?format={kind}&page={PAGES}")
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


async def test_names_are_made_safe(service: Service) -> None:
    """Paths, quotes and markup in the name given by the client appear in no header."""
    url = await read(service, gif(PAGES), name="../<b>\"x'&.gif")
    response = await get(service, f"{url}?format=txt")
    assert response.headers["content-disposition"] == 'attachment; filename="b_22x.txt"'


async def test_unfinished_failed_and_gone(service: Service) -> None:
    """409 before it is read; 404 where it failed; 410 where the original is gone and needed."""
    early = (await send(service, ONE, files={"file": ("a.png", png())})).json()["job_id"]
    response = await get(service, f"{JOBS}/{early}/images/0/result?format=pdf")
    assert (response.status_code, response.json()["code"]) == (409, "not_finished")
    original = gif(PAGES)
    url = await read(service, original)
    await service.execute("UPDATE image SET state = 'failed' WHERE job_id = '" + early + "'")
    assert (await get(service, f"{JOBS}/{early}/images/0/result?format=pdf")).status_code == 404
    forget_originals(service)
    for kind, status in {"pdf": 410, "png": 410, "txt": 200}.items():
        response = await get(service, f"{url}?format={kind}")
        assert response.status_code == status, kind
        assert status == 200 or response.json()["code"] == "gone"


async def test_too_many_documents_at_once_are_put_off(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with a time to come back; formats made without a subprocess go on."""
    url = await read(service, gif(PAGES))
    monkeypatch.setattr(service.app.starlette.state.parts.renderer, "_max_pending", 0)
    response = await get(service, f"{url}?format=hocr")
    assert (response.status_code, response.json()["code"]) == (503, "unavailable")
    assert int(response.headers["retry-after"]) >= 1
    assert (await get(service, f"{url}?format=md")).status_code == 200


def test_the_api_loads_no_image_library() -> None:
    """Decoders of untrusted bytes, and what draws documents, are not even in the process."""
    heavy = "{'PIL', 'cv2', 'numpy', 'tesserocr', 'pillow_heif', 'pikepdf', 'fontTools'}"
    code = f"import sys, arachne.http.app, arachne.http.server; print(sorted({heavy} & set(sys.modules)))"
    line = [sys.executable, "-P", "-c", code]
    assert subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip() == "[]"
