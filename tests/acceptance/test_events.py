"""Events as integrators see them: by webhook, by stream and by pulling, the same ones."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.acceptance.conftest import Client
from tests.acceptance.receiver import Receiver

MANY, JOBS = "/api/extract/images", "/api/extract/image-jobs"
CHANCES_S = 60


def submit(client: Client, images: Path, number: int = 2) -> str:
    """A job of some screenshots that nobody has read before for this account."""
    files = [("files", (path.name, path.read_bytes())) for path in sorted(images.glob("*.png"))[:number]]
    answer = client.api.post(MANY, files=files, data={"options": '{"detail_level": "fast"}'})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])


def stream(client: Client, job_id: str, **headers: str) -> list[dict[str, str]]:
    """All events of a job's stream, to its end."""
    found, event = [], {}
    with client.api.stream("GET", f"{JOBS}/{job_id}/events", headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if line.startswith(":"):
                continue
            if line:
                event[name] = value
            elif event:
                found.append(event)
                event = {}
    return found


def pull(client: Client, cursor: str | None = None) -> tuple[list[dict[str, Any]], str | None]:
    """All events there are after a cursor, and the cursor to go on with."""
    found: list[dict[str, Any]] = []
    while True:
        page = client.get("/api/events", limit=2, **({"cursor": cursor} if cursor else {}))
        found += page["data"]
        if page["next_cursor"] is None:
            return found, cursor
        cursor = page["next_cursor"]


def test_stream_feed_and_webhook_tell_the_same(client: Client, receiver: Receiver, images: Path) -> None:
    """Of a job read while its stream is open: the same events, byte for byte, with the numbers that order them."""
    secret = client.api.post("/api/webhooks", json={"url": receiver.url("same"), "events": ["*"]}).json()["secret"]
    job_id = submit(client, images)
    streamed = stream(client, job_id)
    assert [event["event"] for event in streamed] == [
        "job.started",
        "image.completed",
        "image.completed",
        "job.completed",
    ]
    assert [int(event["id"]) for event in streamed] == [1, 2, 3, 4]
    delivered = {}
    for _ in streamed:
        delivery = receiver.next("same")
        delivered[delivery.verified(secret)["data"]["sequence"]] = delivery
    for event in streamed:
        assert delivered[int(event["id"])].body == event["data"].encode()
    events, cursor = pull(client)
    ids = {event.pop("message_id"): event for event in events}
    assert ids == {delivery.headers["webhook-id"]: json.loads(delivery.body) for delivery in delivered.values()}
    assert [event["id"] for event in stream(client, job_id, **{"Last-Event-ID": "2"})] == ["3", "4"]
    again = client.api.get(f"{JOBS}/{job_id}/events", headers={"Last-Event-ID": "4"})
    assert (again.status_code, again.content) == (204, b"")
    later = submit(client, images, 3)
    client.wait(later)
    assert {event["data"]["job_id"] for event in pull(client, cursor)[0]} == {later}


def test_what_an_endpoint_missed_while_disabled_arrives_on_recovery(
    client: Client, receiver: Receiver, images: Path
) -> None:
    """Disabled when a job ends, enabled, recovered: the event comes once, with the id that the feed gives it."""
    since = datetime.now(UTC).isoformat()
    endpoint = client.api.post("/api/webhooks", json={"url": receiver.url("missed")}).json()
    path = f"/api/webhooks/{endpoint['endpoint_id']}"
    client.api.patch(path, json={"enabled": False})
    job_id = submit(client, images)
    client.wait(job_id)
    assert client.api.post(f"{path}/recover", json={"since": since}).status_code == 409
    client.api.patch(path, json={"enabled": True})
    listed = client.api.post(f"{path}/recover", json={"since": since, "dry_run": True}).json()
    assert [missed["event"] for missed in listed["data"]] == ["job.completed"]
    sent = client.api.post(f"{path}/recover", json={"since": since})
    assert (sent.status_code, sent.json()["data"]) == (202, listed["data"])
    delivery = receiver.next("missed")
    assert delivery.verified(endpoint["secret"])["data"]["job_id"] == job_id
    [feed_id] = [event["message_id"] for event in pull(client)[0] if event["type"] == "job.completed"]
    assert delivery.headers["webhook-id"] == listed["data"][0]["message_id"] == feed_id
    ends_s = time.monotonic() + CHANCES_S
    while time.monotonic() < ends_s:
        shown = client.get(f"{path}/deliveries/{feed_id}")
        if shown["status"] != "pending":
            break
    assert (shown["status"], [attempt["cause"] for attempt in shown["attempts"]]) == ("succeeded", ["recovery"])
