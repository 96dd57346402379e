"""The feed and the recovery of missed events over HTTP, and who may have them."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import httpx

from arachne.actors.broker import make_broker
from tests.http.conftest import Service
from tests.http.pictures import png
from tests.http.sending import ONE, send
from tests.http.test_event_streams import JOBS, stored, submit
from tests.http.worker import Worker

FEED = "/api/events"


async def test_streams_and_feed_are_for_those_who_may_read(service: Service) -> None:
    """No token 401, another scope 403, another account's job 404, a deleted one 410, a foreign cursor 400."""
    job_id = await submit(service)
    for path in (FEED, f"{JOBS}/{job_id}/events"):
        assert (await service.client.get(path)).status_code == 401
        writer = await service.headers(scopes=("vision:write", "webhooks:manage"))
        assert (await service.client.get(path, headers=writer)).status_code == 403
    await service.account("other")
    other = await service.headers("other")
    assert (await service.client.get(f"{JOBS}/{job_id}/events", headers=other)).status_code == 404
    assert (await service.client.get(FEED, headers=other)).json() == {"data": [], "next_cursor": None}
    await service.execute("UPDATE job SET deleted_at = now()")
    headers = await service.headers()
    assert (await service.client.get(f"{JOBS}/{job_id}/events", headers=headers)).status_code == 410
    for query, status in (("cursor=x", 400), ("cursor=ZXZlbnRzIDEueA", 400), ("limit=0", 422), ("limit=201", 422)):
        assert (await service.client.get(f"{FEED}?{query}", headers=headers)).status_code == status, query


async def test_the_feed_gives_each_event_once_and_goes_on_later(service: Service) -> None:
    """Bodies are those that are signed, with the id before them; the last cursor brings what happens next."""
    worker = await Worker(service).start()
    job_id = await submit(service, 2)
    await worker.read_all()
    headers = await service.headers()

    async def read(cursor: str | None) -> tuple[list[dict[str, object]], str | None]:
        found, given = [], cursor
        while True:
            query = {"limit": "3"} | ({"cursor": given} if given else {})
            page = (await service.client.get(FEED, params=query, headers=headers)).json()
            found += page["data"]
            given = page["next_cursor"] or given
            if page["next_cursor"] is None:
                return found, given

    events, cursor = await read(None)
    bodies = [json.loads(body) for _, _, body in await stored(service, job_id)]
    assert sorted(e["data"]["sequence"] for e in events) == [1, 2, 3, 4]  # type: ignore[index]
    for event in events:
        assert str(event.pop("message_id")).startswith("msg_")
        assert event in bodies
    assert await read(cursor) == ([], cursor)
    again = await submit_other(service)
    await worker.read_all()
    later, _ = await read(cursor)
    assert {event["data"]["job_id"] for event in later} == {again}  # type: ignore[index]


async def submit_other(service: Service) -> str:
    response = await send(service, ONE, files={"file": ("z.png", png((200, 1, 1)))})
    return str(response.json()["job_id"])


async def test_missed_events_are_listed_and_sent_again(service: Service) -> None:
    """`recover` lists with `dry_run`, sends without, refuses a disabled endpoint and times that make no sense."""
    worker = await Worker(service).start()
    await submit(service, 2)
    await worker.read_all()
    headers = await service.headers()
    made = await service.client.post("/api/webhooks", json={"url": "https://93.184.216.34/hook"}, headers=headers)
    path = f"/api/webhooks/{made.json()['endpoint_id']}"
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()

    async def recover(**body: object) -> httpx.Response:
        return await service.client.post(f"{path}/recover", json=body, headers=headers)

    dry = await recover(since=since, dry_run=True)
    assert dry.status_code == 200
    assert (dry.json()["dry_run"], dry.json()["count"], dry.json()["more"]) == (True, 1, False)
    [missed] = dry.json()["data"]
    assert (missed["event"], missed["status"]) == ("job.completed", None)
    assert await service.count("webhook_delivery") == 0
    sent = await recover(since=since)
    assert (sent.status_code, sent.json()["data"]) == (202, [missed])
    assert (await recover(since=since)).json()["count"] == 0
    [delivery] = (await service.client.get(f"{path}/deliveries", headers=headers)).json()["data"]
    assert (delivery["message_id"], delivery["cause"]) == (missed["message_id"], "recovery")
    assert (await recover(dry_run=True)).json()["count"] == 0  # what was before the endpoint it didn't miss
    for body in ({"since": "yesterday"}, {"since": since, "until": since}, {"since": "2026-01-01T00:00:00"}):
        assert (await recover(**body)).status_code == 422, body
    await service.client.patch(path, json={"enabled": False}, headers=headers)
    refused = await recover(since=since)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")


async def test_what_a_request_ends_wakes_the_deliverers(service: Service) -> None:
    """A cancelled job's event is not left to a tick."""
    headers = await service.headers()
    await service.client.post("/api/webhooks", json={"url": "https://93.184.216.34/hook"}, headers=headers)
    broker = make_broker(service.settings)
    job_id = await submit(service)
    assert broker.count_waiting("webhooks") == 0
    await service.client.post(f"{JOBS}/{job_id}/cancel", headers=headers)
    async with asyncio.timeout(20):
        while not broker.count_waiting("webhooks"):  # noqa: ASYNC110  # Redis has no event for it
            await asyncio.sleep(0.01)
    broker.client.close()
