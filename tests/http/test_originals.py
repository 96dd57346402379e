"""Originals come back to who sent them, in pieces, and tell nothing of what other accounts have sent."""

import os

import pytest

from tests.http.conftest import Service
from tests.http.pictures import huge_png, png
from tests.http.sending import MANY, ONE, send
from tests.http.worker import Worker

JOBS = "/api/extract/image-jobs"


async def original(service: Service, job_id: str, index: int = 0) -> tuple[int, bytes]:
    url = f"{JOBS}/{job_id}/images/{index}/original"
    response = await service.client.get(url, headers=await service.headers())
    return response.status_code, response.content


async def test_an_original_comes_back_as_it_was_sent(service: Service) -> None:
    data = png() + os.urandom(700_000)
    job_id = (await send(service, ONE, files={"file": ("a b.png", data)})).json()["job_id"]
    response = await service.client.get(f"{JOBS}/{job_id}/images/0/original", headers=await service.headers())
    assert (response.status_code, response.content) == (200, data)
    assert response.headers["content-length"] == str(len(data))
    assert response.headers["content-type"] == "image/png"
    assert response.headers["content-disposition"] == 'attachment; filename="a_b.png"'


@pytest.mark.parametrize("refused", [huge_png(100_000, 100_000), b"no image"])
async def test_a_refused_image_has_no_original_whatever_others_send(service: Service, refused: bytes) -> None:
    files = [("files", ("a.png", png())), ("files", ("b.png", refused))]
    job_id = (await send(service, MANY, files=files)).json()["job_id"]
    status, before = await original(service, job_id, 1)
    assert status == 410
    digest = (await service.client.get(f"{JOBS}/{job_id}/images/1", headers=await service.headers())).json()["sha256"]
    await service.app.starlette.state.parts.storage.write_async(digest, refused)  # as another account's job would
    assert (await original(service, job_id, 1))[0] == 410
    assert b"refused at once" in before
    assert (await original(service, job_id, 0))[0] == 200


async def test_an_original_is_gone_when_its_time_is_over_even_if_others_keep_it(service: Service) -> None:
    worker = await Worker(service).start()
    job_id = (await send(service, ONE, files={"file": ("a.png", png())})).json()["job_id"]
    await worker.read_all()
    assert (await original(service, job_id))[0] == 200
    await service.execute("UPDATE job SET finished_at = now() - interval '8 days'")
    assert (await original(service, job_id))[0] == 410
    drawn = await service.client.get(f"{JOBS}/{job_id}/images/0/result?format=png", headers=await service.headers())
    assert drawn.status_code == 410


async def test_an_image_that_failed_later_keeps_its_original(service: Service) -> None:
    job_id = (await send(service, ONE, files={"file": ("a.png", png())})).json()["job_id"]
    await service.execute("UPDATE image SET state = 'failed', error_code = 'deadline_exceeded', finished_at = now()")
    assert (await original(service, job_id))[0] == 200
