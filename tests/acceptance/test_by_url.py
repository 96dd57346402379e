"""Images by URL, as a client sees them: fetched, read, cached, and each fault its own image's."""

import base64
from pathlib import Path

from tests.acceptance.conftest import Client
from tests.acceptance.picture_host import PictureHost
from tests.acceptance.receiver import Receiver
from tests.acceptance.test_product import JOBS, MANY, ONE, distinct, screenshots, words


def test_a_batch_of_urls_inline_images_and_bad_urls(
    client: Client, receiver: Receiver, picture_host: PictureHost, images: Path
) -> None:
    """Good ones are read, bad ones say why; the webhook tells of all, and of no URL's query."""
    first, second = screenshots(images)[:2]
    picture_host.pages |= {
        "/first.png": distinct(first, 7001),
        "/moved": "/first.png",
        "/text.png": b"This is text.\n",
        "/inside": "http://127.0.0.1:9/?q=secret",
    }
    endpoint = client.api.post(
        "/api/webhooks", json={"url": receiver.url("by-url"), "events": ["job.*", "image.*"]}
    ).json()
    inline = {"base64": base64.b64encode(distinct(second, 7002)).decode(), "name": "inline.png"}
    urls = [picture_host.url(f"/{path}?token=secret") for path in ("first.png", "moved", "gone", "text.png", "inside")]
    bad = ["https://10.0.0.1/a.png?token=secret", "file:///etc/passwd"]
    body = {"images": [{"url": urls[0], "name": "a.png"}, inline, *({"url": url} for url in urls[1:] + bad)]}
    answer = client.api.post(MANY, json=body)
    assert answer.status_code == 202, answer.text
    assert answer.json()["images"][0]["status"] == "fetching"
    assert answer.json()["images"][0]["source_url"] == urls[0]
    job_id = answer.json()["job_id"]
    events = []
    while not events or events[-1]["type"] not in {"job.partial", "job.completed", "job.failed"}:
        events.append(receiver.next("by-url", 120).verified(endpoint["secret"]))
        assert "secret" not in str(events[-1])
    job = client.get(f"{JOBS}/{job_id}", include="results")
    assert (job["status"], events[-1]["type"]) == ("partial", "job.partial")
    by_url, inlined, moved, *failed = job["images"]
    for image, picture in ((by_url, first), (moved, first), (inlined, second)):
        expected = words(picture.with_suffix(".txt").read_text())
        assert len(expected & words(image["result"]["text"])) >= 0.7 * len(expected)
    assert by_url["sha256"] == moved["sha256"]
    assert sorted([by_url["cached"], moved["cached"]]) == [False, True]
    codes = [image["error"]["code"] for image in failed]
    assert codes == ["fetch_failed", "unsupported_image", "fetch_failed", "egress_blocked", "invalid_url"]
    assert "http 404" in failed[0]["error"]["message"]
    assert "blocked" in failed[2]["error"]["message"]
    assert picture_host.asked["/gone"] == 1
    usage = client.get("/api/usage")["total"]
    assert (usage["images"], usage["cached"]) == (3, 1)


def test_a_single_url_is_read_within_the_wait_and_cached_after(
    client: Client, picture_host: PictureHost, images: Path
) -> None:
    """Fetched anew each time, since what is behind a URL may change; read once."""
    picture_host.pages["/again.png"] = distinct(screenshots(images)[0], 7003)
    body = {"image": {"url": picture_host.url("/again.png")}}
    first = client.api.post(ONE, json=body, headers={"Prefer": "wait=60"})
    assert (first.status_code, first.json()["status"], first.json()["cached"]) == (200, "completed", False)
    again = client.api.post(ONE, json=body, headers={"Prefer": "wait=60"})
    assert (again.status_code, again.json()["cached"]) == (200, True)
    assert again.json()["result"] == first.json()["result"]
    assert picture_host.asked["/again.png"] == 2
    original = client.api.get(f"{JOBS}/{again.json()['job_id']}/images/0/original")
    assert original.content == picture_host.pages["/again.png"]
