"""What a user sees of the whole product: batches in, text and signed webhooks out, whatever happens meanwhile."""

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.acceptance.conftest import Client, Product
from tests.acceptance.receiver import Receiver

ONE, MANY, JOBS = "/api/extract/image", "/api/extract/images", "/api/extract/image-jobs"


def screenshots(images: Path) -> list[Path]:
    return sorted(images.glob("*.png"))


def words(text: str) -> set[str]:
    return {word.strip(".,:;()\"'") for word in text.lower().split()}


def distinct(picture: Path, number: int) -> bytes:
    """The picture with a mark in its corner that makes it another one."""
    with Image.open(picture) as opened:
        changed = opened.convert("RGB")
    changed.putpixel((number % changed.width, changed.height - 1), (number % 256, 77, 7))
    buffer = io.BytesIO()
    changed.save(buffer, "PNG")
    return buffer.getvalue()


def test_a_batch_comes_back_as_text_with_a_signed_webhook(client: Client, receiver: Receiver, images: Path) -> None:
    url = receiver.url("batch")
    endpoint = client.api.post("/api/webhooks", json={"url": url}).json()
    files = [("files", (path.name, path.read_bytes(), "image/png")) for path in screenshots(images)]
    assert len(files) >= 6
    answer = client.api.post(MANY, files=files, data={"metadata": '{"order": "42"}'})
    assert answer.status_code == 202, answer.text
    job_id = answer.json()["job_id"]
    event = receiver.next("batch", 180).verified(endpoint["secret"])
    assert event["type"] == "job.completed"
    assert event["data"]["job_id"] == job_id
    assert event["data"]["metadata"] == {"order": "42"}
    job = client.get(f"{JOBS}/{job_id}", include="results")
    assert (job["status"], job["progress"]["completed"]) == ("completed", len(files))
    for path, image in zip(screenshots(images), job["images"], strict=True):
        expected = words(path.with_suffix(".txt").read_text())
        found = words(image["result"]["text"])
        assert len(expected & found) >= 0.7 * len(expected), (path.name, expected - found)
        assert [stage["name"] for stage in image["result"]["stages"]][-1] == "describe"
        assert image["result"]["stages"][-1]["reason"] == "not_configured"


def test_a_jobs_own_webhook_is_signed_with_the_default_secret(client: Client, receiver: Receiver, images: Path) -> None:
    secret = client.get("/api/webhooks/default/secret")["secret"]
    data = base64.b64encode(screenshots(images)[0].read_bytes()).decode()
    body = {"image": {"base64": data, "name": "a.png"}, "webhook": {"url": receiver.url("own"), "events": ["job.*"]}}
    job_id = client.api.post(ONE, json=body).json()["job_id"]
    events = [receiver.next("own").verified(secret), receiver.next("own").verified(secret)]
    assert {event["type"] for event in events} == {"job.started", "job.completed"}
    assert {event["data"]["job_id"] for event in events} == {job_id}


def test_a_batch_with_two_bad_images_is_partial(client: Client, images: Path) -> None:
    good = screenshots(images)[0].read_bytes()
    files = [
        ("files", ("good.png", good)),
        ("files", ("header.png", good[:33])),
        ("files", ("text.png", b"This is text.\n")),
    ]
    answer = client.api.post(MANY, files=files)
    assert answer.status_code == 202
    job = client.wait(answer.json()["job_id"])
    assert job["status"] == "partial"
    assert [image["status"] for image in job["images"]] == ["completed", "failed", "failed"]
    assert job["images"][1]["error"]["code"] == "decode_failed"
    assert job["images"][2]["error"]["code"] == "unsupported_image"
    result = client.get(f"{JOBS}/{job['job_id']}/images/0/result")
    assert result["text"].strip()


def test_the_same_image_again_is_answered_at_once(client: Client, images: Path) -> None:
    files = {"file": ("a.png", screenshots(images)[1].read_bytes())}
    first = client.api.post(ONE, files=files, headers={"Prefer": "wait=60"})
    assert first.status_code == 200
    assert first.json()["cached"] is False
    again = client.api.post(ONE, files=files)
    assert (again.status_code, again.json()["cached"]) == (200, True)
    assert again.json()["result"] == first.json()["result"]
    usage = client.get("/api/usage")
    assert (usage["total"]["images"], usage["total"]["cached"]) == (2, 1)


def test_the_same_image_twice_in_a_batch_is_read_once(client: Client, images: Path) -> None:
    data = distinct(screenshots(images)[1], 4242)
    answer = client.api.post(MANY, files=[("files", ("a.png", data)), ("files", ("b.png", data))])
    job = client.wait(answer.json()["job_id"])
    assert job["status"] == "completed"
    assert sorted(image["cached"] for image in job["images"]) == [False, True]


def test_tokens_and_ownership(client: Client, new_client: Any, images: Path) -> None:
    files = {"file": ("a.png", screenshots(images)[0].read_bytes())}
    job_id = client.api.post(ONE, files=files).json()["job_id"]
    url = f"{JOBS}/{job_id}"
    assert client.api.get(url, headers={"Authorization": "Bearer nonsense"}).status_code == 401
    assert client.api.get(url, headers={"Authorization": ""}).status_code == 401
    assert new_client().api.get(url).status_code == 404
    client.wait(job_id)


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b"", "application/json"),
        (b"no json", "application/json"),
        (b"[]", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"--x\r\n", "multipart/form-data"),
        (b'{"image": {"base64": "%%%"}}', "application/json"),
        (b'{"image": {"base64": "AAAA", "name": "a\\u0000b"}}', "application/json"),
        (b'{"image": {"base64": "AAAA"}, "options": {"colour": "red"}}', "application/json"),
    ],
)
def test_malformed_bodies_are_4xx_problems(client: Client, content: bytes, content_type: str) -> None:
    answer = client.api.post(ONE, content=content, headers={"Content-Type": content_type})
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code


def test_cancelling_stops_a_batch(client: Client, images: Path) -> None:
    picture = screenshots(images)[0]
    files = [("files", (f"{n}.png", distinct(picture, 500 + n))) for n in range(30)]
    job_id = client.api.post(MANY, files=files).json()["job_id"]
    answer = client.api.post(f"{JOBS}/{job_id}/cancel")
    assert answer.status_code == 200
    job = client.wait(job_id, 20)
    assert job["status"] == "cancelled"
    assert job["progress"]["cancelled"] > 0
    assert client.get("/api/usage")["total"]["images"] == job["progress"]["completed"]


def test_a_killed_gpu_worker_loses_nothing(client: Client, product: Product, images: Path) -> None:
    pictures = screenshots(images)
    files = [("files", (f"{n}.png", distinct(pictures[n % len(pictures)], 1000 + n))) for n in range(16)]
    job_id = client.api.post(MANY, files=files).json()["job_id"]
    while not client.get(f"{JOBS}/{job_id}", wait=10)["progress"]["completed"]:
        pass
    [worker] = product.parts("worker", "gpu")
    worker.kill()
    job = client.wait(job_id)
    assert (job["status"], job["progress"]["completed"]) == ("completed", len(files))
    assert sorted(image["index"] for image in job["images"]) == list(range(len(files)))
    usage = client.get("/api/usage")["total"]
    assert usage["images"] == len(files)
    assert client.get("/readyz")["status"] == "ok"


def test_the_service_describes_itself(product: Product, client: Client) -> None:
    document = client.get("/openapi.json")
    assert document["openapi"].startswith("3.1")
    assert document["servers"] == [{"url": product.url}]
    assert "<script" not in client.api.get("/docs").text
