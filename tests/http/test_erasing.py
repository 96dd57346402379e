"""`DELETE` of a job: all of it is gone, and whoever waits for it or asks again is told so."""

import asyncio
import hashlib
import json
from datetime import UTC, datetime

import httpx
import pytest
from sqlalchemy import text

from arachne.cache.erased import ErasureWatch
from arachne.http.parts import ERASING
from arachne.http.routes import jobs
from arachne.jobs import erasure
from arachne.jobs.account_erasure import erase_account
from arachne.jobs.erasure import continue_erasures
from arachne.storage import open_storage
from tests.http.conftest import Service
from tests.http.pictures import png
from tests.http.sending import MANY, ONE, send
from tests.http.test_event_streams import LIMIT_S, opened, served
from tests.http.worker import Worker

JOBS = "/api/extract/image-jobs"


async def call(service: Service, method: str, path: str, name: str = "acme", **request: object) -> httpx.Response:
    headers = await service.headers(name)
    return await service.client.request(method, f"{JOBS}/{path}", headers=headers, **request)  # type: ignore[arg-type]


async def read_one(service: Service, name: str = "acme", **headers: str) -> str:
    """Id of a job of one image, read."""
    worker = await Worker(service).start()
    sent = await service.client.post(
        ONE, headers=await service.headers(name) | headers, files={"file": ("tax.png", png())}
    )
    assert sent.status_code in {200, 202}, sent.text
    await worker.read_all()
    return str(sent.json()["job_id"])


async def test_an_erased_job_is_gone_on_every_route(service: Service) -> None:
    """410, and 404 once nobody needs to know; asking again is no fault; another account's job was never there."""
    job_id = await read_one(service)
    await service.account("other")
    assert (await call(service, "DELETE", job_id, "other")).status_code == 404
    assert (await call(service, "GET", job_id)).status_code == 200
    answer = await call(service, "DELETE", job_id)
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await call(service, "DELETE", job_id)).status_code == 204
    image = f"{job_id}/images/0"
    for path in (job_id, f"{job_id}?wait=20", f"{job_id}/events", image, f"{image}/result", f"{image}/original"):
        gone = await call(service, "GET", path)
        assert (gone.status_code, gone.json()["code"]) == (410, "gone"), path
    for path in ("cancel", "retry"):
        assert (await call(service, "POST", f"{job_id}/{path}")).json()["code"] == "gone"
    listed = await service.client.get(JOBS, headers=await service.headers())
    assert listed.json()["data"] == []
    feed = (await service.client.get("/api/events", headers=await service.headers())).json()["data"]
    assert [set(event["data"]) for event in feed] == [{"job_id", "sequence", "redacted"}] * len(feed)
    await service.execute("DELETE FROM job")
    assert (await call(service, "GET", job_id)).status_code == 404
    assert (await call(service, "DELETE", job_id)).status_code == 404


async def test_an_expired_job_is_gone_at_once(service: Service) -> None:
    """On every route and in lists by the database's clock, and forgotten after its tombstone: no housekeeping runs."""
    job_id = await read_one(service)
    assert (await call(service, "GET", job_id)).status_code == 200
    await service.execute("UPDATE job SET expires_at = now() - interval '1 second'")
    image = f"{job_id}/images/0"
    reads = (job_id, f"{job_id}?wait=20", f"{job_id}/events", image, f"{image}/result", f"{image}/original")
    calls = [("GET", path) for path in reads] + [("POST", f"{job_id}/{verb}") for verb in ("cancel", "retry")]
    for method, path in calls:
        gone = await call(service, method, path)
        assert (gone.status_code, gone.json()["code"]) == (410, "gone"), path
    listed = await service.client.get(JOBS, headers=await service.headers())
    assert listed.json()["data"] == []
    assert (await call(service, "DELETE", job_id)).status_code == 204
    aged = f"now() - interval '1 second' * {service.settings.tombstone_s + 60}"
    for times in (f"deleted_at = NULL, expires_at = {aged}", f"expires_at = NULL, deleted_at = {aged}"):
        await service.execute(f"UPDATE job SET {times}")
        for method, path in [*calls, ("DELETE", job_id)]:
            unknown = await call(service, method, path)
            assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found"), path


async def test_an_erased_picture_is_read_anew(service: Service) -> None:
    """No cache answers it; another account that has the same one keeps its own, original and all."""
    await service.account("other")
    job_id, other = await read_one(service), await read_one(service, "other")
    assert (await call(service, "DELETE", job_id)).status_code == 204
    again = await send(service, ONE, files={"file": ("b.png", png())})
    assert (again.status_code, again.json()["cached"]) == (202, False)
    assert (await call(service, "GET", f"{other}/images/0/original", "other")).content == png()
    assert (await call(service, "GET", other, "other")).json()["result"]["text"].startswith("text of")


async def test_the_last_original_leaves_the_store_and_every_file(service: Service) -> None:
    """At once in the store; in the file of this machine when its process looks next."""
    job_id = await read_one(service)
    first = await send(service, ONE, files={"file": ("b.png", png())})
    assert first.json()["cached"] is True
    second = await send(service, ONE, files={"file": ("b.png", png())})
    cache = service.settings.data_dir / "cache" / "vlm_cache.db"
    assert b"text of" in b"".join(path.read_bytes() for path in cache.parent.glob("vlm_cache.db*"))
    for one in (job_id, first.json()["job_id"], second.json()["job_id"]):
        assert (await call(service, "DELETE", one)).status_code == 204
    digest = hashlib.sha256(png()).hexdigest()
    assert not await open_storage(service.settings).has_async(digest)
    parts = service.app.starlette.state.parts
    await asyncio.to_thread(ErasureWatch(parts.records, parts.cache).look)
    left = b"".join(path.read_bytes() for path in cache.parent.glob("vlm_cache.db*"))
    assert b"text of" not in left
    assert digest.encode() not in left


async def test_a_running_job_is_cancelled_first(service: Service) -> None:
    """What a worker finishes late is nobody's."""
    worker = await Worker(service).start()
    files = [("files", (f"{n}.png", png((n, n, n)))) for n in range(3)]
    job_id = (await send(service, MANY, files=files)).json()["job_id"]
    late = await worker.claim(1)
    assert (await call(service, "DELETE", job_id)).status_code == 204
    for image in late:
        await worker.finish(image)
    assert await worker.claim() == []
    assert [await service.count(table) for table in ("image", "image_result", "blob", "usage_entry")] == [0, 0, 0, 0]


async def test_erasing_that_waits_too_long_is_done_later(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a store that hangs keeps others busy, clients are told so; the job is out of sight all the same."""
    monkeypatch.setattr(jobs, "ERASE_WAIT_S", 0.05)
    job_id, parts = await read_one(service), service.app.starlette.state.parts
    for _ in range(ERASING):
        await parts.erasing.acquire()
    late = await call(service, "DELETE", job_id)
    assert (late.status_code, late.json()["code"]) == (503, "unavailable")
    assert "goes on by itself" in late.json()["detail"]
    assert int(late.headers["retry-after"]) >= 1
    assert (await call(service, "GET", job_id)).status_code == 410
    for _ in range(ERASING):
        parts.erasing.release()
    await asyncio.to_thread(continue_erasures, parts.records, parts.storage, parts.settings)
    assert [await service.count(table) for table in ("image", "image_result", "blob")] == [0, 0, 0]
    monkeypatch.setattr(jobs, "ERASE_WAIT_S", 60.0)
    assert (await call(service, "DELETE", job_id)).status_code == 204


async def test_a_wish_that_is_not_on_record_is_to_be_repeated(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database's disk is full: nothing has changed, and nobody goes on with what was asked for."""
    job_id, full = await read_one(service), "DO $$ BEGIN RAISE 'full' USING ERRCODE = 'disk_full'; END $$"
    with monkeypatch.context() as patched:
        patched.setattr(erasure, "_REQUEST", text(full))
        refused = await call(service, "DELETE", job_id)
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert "Nothing was changed; send this again." in refused.json()["detail"]
    assert "disk is full" in refused.json()["detail"]
    assert (await call(service, "GET", job_id)).status_code == 200


async def test_a_wish_on_record_needs_no_repeat(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up after it: the answer is 503 too, and says that the rest goes on by itself, which it does."""
    job_id, parts = await read_one(service), service.app.starlette.state.parts
    with monkeypatch.context() as patched:
        patched.setattr(erasure, "_STRIP_JOB", text("DO $$ BEGIN RAISE 'full' USING ERRCODE = 'disk_full'; END $$"))
        late = await call(service, "DELETE", job_id)
    assert (late.status_code, late.json()["code"]) == (503, "unavailable")
    assert "goes on by itself" in late.json()["detail"]
    assert "Nothing was changed" not in late.json()["detail"]
    await asyncio.to_thread(continue_erasures, parts.records, parts.storage, parts.settings)
    assert [await service.count(table) for table in ("image", "image_result", "blob")] == [0, 0, 0]


async def test_a_key_of_an_erased_job_says_that_it_is_gone(service: Service) -> None:
    """It makes no other job of what was erased on purpose; another request with it is still another one."""
    files = {"file": ("tax.png", png())}
    job_id = await read_one(service, **{"Idempotency-Key": "k"})
    assert (await call(service, "DELETE", job_id)).status_code == 204
    again = await send(service, ONE, files=files, headers={"Idempotency-Key": "k", "Prefer": "wait=5"})
    assert (again.status_code, again.json()["code"]) == (410, "gone")
    other = await send(service, ONE, files={"file": ("b.png", png())}, headers={"Idempotency-Key": "k"})
    assert other.json()["code"] == "idempotency_key_reused"
    assert await service.count("job") == 1


async def test_whoever_waits_or_listens_is_told(settings, async_database) -> None:
    """A held poll answers 410, a stream ends, and a stream that is opened again is refused."""
    async with served(settings, async_database) as (service, _):
        job_id = (await send(service, ONE, files={"file": ("a.png", png())})).json()["job_id"]
        async with asyncio.timeout(3 * LIMIT_S), opened(service, job_id) as stream:
            held = asyncio.create_task(call(service, "GET", f"{job_id}?wait=60"))
            while service.app.starlette.state.parts.watcher.count < 2:  # noqa: ASYNC110  # the other end is in a server
                await asyncio.sleep(0.01)
            assert (await call(service, "DELETE", job_id)).status_code == 204
            assert (await held).status_code == 410
            assert b"job.completed" not in await stream.aread()
        assert (await call(service, "GET", f"{job_id}/events")).status_code == 410


async def test_deliveries_of_an_erased_job_are_cancelled(service: Service) -> None:
    """What was still to be sent isn't; what was sent can be sent again no more, and its body says nothing."""
    body = json.dumps({"url": "https://93.184.215.14/hook", "events": ["job.*"]})
    made = await service.client.post(
        "/api/webhooks", headers=await service.headers() | {"Content-Type": "application/json"}, content=body
    )
    job_id = await read_one(service)
    await service.execute("UPDATE webhook_delivery SET state = 'succeeded', finished_at = now() WHERE message_id = "
                          "(SELECT max(message_id) FROM webhook_delivery)")  # fmt: skip
    assert (await call(service, "DELETE", job_id)).status_code == 204
    path = f"/api/webhooks/{made.json()['endpoint_id']}/deliveries"
    listed = (await service.client.get(path, headers=await service.headers())).json()["data"]
    assert [one["status"] for one in listed] == ["succeeded", "cancelled"]
    again = await service.client.post(f"{path}/{listed[0]['message_id']}/redeliver", headers=await service.headers())
    assert again.status_code == 410


@pytest.mark.parametrize("order", ["before", "after"])
async def test_a_submission_of_the_same_picture_loses_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Sent while the job is erased: its original is there in the end, whoever was first."""
    from arachne.http.routes import submissions

    job_id = await read_one(service)
    make, began = submissions.make_job, []

    def erase_between(transaction, *args, **kwargs):
        began.append(1)
        return make(transaction, *args, **kwargs)

    async def sent() -> httpx.Response:
        return await send(service, ONE, files={"file": ("b.png", png())}, params={"cache": "bypass"})

    monkeypatch.setattr(submissions, "make_job", erase_between)
    if order == "before":
        admit = submissions.admit_all

        async def admit_then_erase(*args, **kwargs):
            admitted = await admit(*args, **kwargs)
            assert (await call(service, "DELETE", job_id)).status_code == 204
            return admitted

        monkeypatch.setattr(submissions, "admit_all", admit_then_erase)
        new = (await sent()).json()["job_id"]
        assert len(began) == 2
    else:
        new = (await sent()).json()["job_id"]
        assert (await call(service, "DELETE", job_id)).status_code == 204
    assert (await call(service, "GET", f"{new}/images/0/original")).content == png()


async def test_calls_of_an_erased_account_are_nobodys(service: Service) -> None:
    """Those that were still to be written when it went, too; and its tokens are refused from the first moment."""
    headers, parts = await service.headers(), service.app.starlette.state.parts
    assert (await service.client.get(JOBS, headers=headers)).status_code == 200
    parts.usage_log.add({**one_call(), "account_id": (await service.account("other")).account_id})
    await asyncio.to_thread(erase_account, parts.records, parts.storage, parts.settings, "acme")
    refused = await service.client.get(JOBS, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (403, "account_unknown")
    await parts.usage_log.flush()
    async with service.database.session() as session:
        connection = await session.connection()
        rows = await connection.exec_driver_sql("SELECT DISTINCT subject FROM api_usage_log ORDER BY 1")
        assert rows.scalars().all() == ["somebody", None]


def one_call() -> dict[str, object]:
    return {
        "at": datetime.now(UTC), "request_id": "req_1", "subject": "somebody", "method": "GET", "route": "/",
        "status": 200, "ms": 1.0, "bytes_in": 0, "bytes_out": 0,
    }  # fmt: skip
