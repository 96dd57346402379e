"""Images given by their URL: accepted at once, refused at once where the URL is never called, fetched by others."""

import json

import httpx
import pytest

from arachne.net.urls import MAX_URL_LENGTH
from tests.http.conftest import Service
from tests.http.pictures import png
from tests.http.sending import MANY, ONE, send, text

JOBS = "/api/extract/image-jobs"
URL = "https://pictures.example.com/a.png?token=secret"
LITERALS = [
    "https://127.0.0.1/",
    "https://[::1]/",
    "https://10.0.0.1/a.png",
    "https://169.254.169.254/",
    "https://localhost/",
]
FORMS = ["", "x", "ftp://example.com/a.png", "http://example.com/", "https://2130706433/", "https://u:p@example.com/",
         "https://example.com/#x", "https://example.com/a b", "https://example.com/\0", "https://example.com/\ud800",
         "https://example.com/" + "a" * MAX_URL_LENGTH]  # fmt: skip


SHARED = pytest.mark.asyncio(loop_scope="session")


async def post(service: Service, path: str, body: object, **headers: str) -> httpx.Response:
    """The answer to this JSON, in which whatever isn't ASCII is escaped."""
    return await send(service, path, content=json.dumps(body), headers={"Content-Type": "application/json"} | headers)


async def test_an_image_by_url_is_accepted_and_waits_to_be_fetched(service: Service) -> None:
    """No host is asked meanwhile; its owner sees the whole URL."""
    response = await post(service, ONE, {"image": {"url": URL, "name": "a.png"}})
    assert response.status_code == 202, response.text
    job = response.json()
    assert (job["status"], job["progress"]["total"]) == ("queued", 1)
    [image] = job["images"]
    assert (image["status"], image["source_url"], image["name"]) == ("fetching", URL, "a.png")
    assert (image["sha256"], image["attempts"], image["error"]) == (None, 0, None)
    headers = await service.headers()
    for path in ("original", "result"):
        answer = await service.client.get(f"{JOBS}/{job['job_id']}/images/0/{path}", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (409, "not_finished")
    cancelled = await service.client.post(f"{JOBS}/{job['job_id']}/cancel", headers=headers)
    assert cancelled.json()["status"] == "cancelled"
    answer = await service.client.get(f"{JOBS}/{job['job_id']}/images/0/original", headers=headers)
    assert answer.status_code == 410


@SHARED
@pytest.mark.parametrize(
    ("url", "code"), [*((url, "invalid_url") for url in FORMS), *((url, "egress_blocked") for url in LITERALS)]
)
async def test_a_url_that_is_never_called_is_422_for_a_single_image(shared: Service, url: str, code: str) -> None:
    response = await post(shared, ONE, {"image": {"url": url}})
    assert (response.status_code, response.json()["code"]) == (422, code), response.text


async def test_in_a_batch_it_is_that_images_error(service: Service) -> None:
    """Beside inline images and other URLs, in their order."""
    bad = [*FORMS, *LITERALS]
    images = [{"url": URL}, *({"url": url, "name": "bad"} for url in bad), {"base64": text(png())}]
    response = await post(service, MANY, {"images": images})
    assert response.status_code == 202, response.text
    first, *refused, last = response.json()["images"]
    assert (first["status"], last["status"]) == ("fetching", "queued")
    codes = [image["error"]["code"] for image in refused]
    assert codes == ["invalid_url"] * len(FORMS) + ["egress_blocked"] * len(LITERALS)
    assert [image["source_url"] for image in refused[-len(LITERALS) :]] == LITERALS
    assert response.json()["progress"]["failed"] == len(bad)


@SHARED
async def test_a_batch_with_no_acceptable_image_is_422(shared: Service) -> None:
    response = await post(shared, MANY, {"images": [{"url": "https://10.0.0.1/"}, {"url": "x"}]})
    assert (response.status_code, response.json()["code"]) == (422, "invalid_options")
    assert [error["msg"].split(":")[0] for error in response.json()["errors"]] == ["egress_blocked", "invalid_url"]


async def test_the_setting_opens_literals_at_submission(service: Service, start) -> None:
    async with start(image_egress_allow=["10.0.0.1"], webhook_egress_allow=["10.0.0.2"]) as running:
        assert (await post(running, ONE, {"image": {"url": "https://10.0.0.1/a.png"}})).status_code == 202
        assert (await post(running, ONE, {"image": {"url": "https://10.0.0.2/a.png"}})).status_code == 422


async def test_the_url_is_part_of_what_makes_a_repeat(service: Service) -> None:
    """The same one gives the same job, another one is another request."""
    key = {"Idempotency-Key": "order-7"}
    first = await post(service, ONE, {"image": {"url": URL}}, **key)
    again = await post(service, ONE, {"image": {"url": URL}}, **key)
    assert (again.status_code, again.json()["job_id"]) == (202, first.json()["job_id"])
    assert again.headers["idempotent-replayed"] == "true"
    other = await post(service, ONE, {"image": {"url": URL + "2"}}, **key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    named = await post(service, ONE, {"image": {"url": URL, "name": "b"}}, **key)
    assert named.status_code == 422


@SHARED
async def test_both_or_neither_of_url_and_base64_is_422(shared: Service) -> None:
    for image in ({}, {"url": URL, "base64": text(png())}, {"url": None}, {"url": 5}):
        response = await post(shared, ONE, {"image": image})
        assert (response.status_code, response.json()["code"]) == (422, "invalid_options")
