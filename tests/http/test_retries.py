"""`POST …/retry`: what went wrong once more, as a new job that counts like any other."""

import hashlib
import json

import httpx
import pytest

from tests.http.conftest import Service, Start
from tests.http.pictures import png
from tests.http.sending import MANY, ONE, send, text
from tests.http.worker import Worker

JOBS = "/api/extract/image-jobs"
WEBHOOK = {"url": "https://93.184.215.14/hook?key=1", "events": ["job.failed"]}


async def retry(service: Service, job_id: str, body: object = None, **headers: str) -> httpx.Response:
    path = f"{JOBS}/{job_id}/retry"
    if body is None:
        return await send(service, path, headers=headers)
    return await send(service, path, headers={"Content-Type": "application/json"} | headers, content=json.dumps(body))


def digest_of(shade: int) -> str:
    return hashlib.sha256(png((shade, shade, shade))).hexdigest()


async def failed_job(service: Service, worker: Worker) -> str:
    """Id of a job whose second image failed and whose first is fine; its third was refused at once."""
    images = [{"base64": text(png((n, n, n))), "name": f"{n}.png"} for n in range(2)]
    body = {
        "images": [*images, {"base64": text(b"no picture")}],
        "options": {"detail_level": "fast"},
        "metadata": {"order": "7"},
        "webhook": WEBHOOK,
    }
    sent = await send(service, MANY, headers={"Content-Type": "application/json"}, content=json.dumps(body))
    assert sent.status_code == 202, sent.text
    await worker.read_all(failing=(digest_of(1),))
    return str(sent.json()["job_id"])


async def test_failed_images_are_read_again_on_the_same_terms(service: Service) -> None:
    """Only those of which something was kept; the new job names the old one, and tells the same webhook."""
    worker = await Worker(service).start()
    job_id = await failed_job(service, worker)
    answer = await retry(service, job_id)
    assert answer.status_code == 202, answer.text
    job = answer.json()
    assert answer.headers["Location"].endswith(f"{JOBS}/{job['job_id']}")
    assert (job["retry_of"], job["metadata"], job["progress"]["total"]) == (job_id, {"order": "7"}, 1)
    assert (job["options"]["detail_level"], job["images"][0]["name"], job["images"][0]["index"]) == ("fast", "1.png", 0)
    assert "vision" in answer.headers["RateLimit-Policy"]
    await worker.read_all()
    done = (await service.client.get(f"{JOBS}/{job['job_id']}", headers=await service.headers())).json()
    assert (done["status"], done["images"][0]["sha256"]) == ("completed", digest_of(1))
    nothing = await retry(service, job["job_id"])
    assert (nothing.status_code, nothing.json()["code"]) == (409, "conflict")
    async with service.database.session() as session:
        connection = await session.connection()
        rows = await connection.exec_driver_sql("SELECT webhook_endpoint_id, webhook_events FROM job")
        assert len({(row[0], *row[1]) for row in rows}) == 1


async def test_cancelled_and_degraded_images_are_included_as_asked(service: Service) -> None:
    worker = await Worker(service).start()
    files = [("files", (f"{n}.png", png((n, n, n)))) for n in range(3)]
    job_id = (await send(service, MANY, files=files)).json()["job_id"]
    early = await retry(service, job_id)
    assert (early.status_code, early.json()["code"]) == (409, "not_finished")
    [first] = await worker.claim(1)
    await worker.finish(first)
    await service.execute("UPDATE image SET degraded = true WHERE state = 'completed'")
    await service.client.post(f"{JOBS}/{job_id}/cancel", headers=await service.headers())
    totals = []
    for include in (None, ["cancelled"], ["degraded"], ["failed", "cancelled", "degraded"], ["failed"]):
        answer = await retry(service, job_id, None if include is None else {"include": include})
        totals.append(answer.json()["progress"]["total"] if answer.is_success else answer.json()["code"])
    assert totals == [2, 2, 1, 3, "conflict"]
    for body in ({"include": []}, {"include": ["completed"]}, {"exclude": []}):
        assert (await retry(service, job_id, body)).status_code == 422


async def test_a_repeated_retry_is_the_same_job(service: Service) -> None:
    """At no cost; another body under the key is another request."""
    worker = await Worker(service).start()
    job_id = await failed_job(service, worker)
    first, again = [await retry(service, job_id, **{"Idempotency-Key": "r"}) for _ in range(2)]
    assert first.json()["job_id"] == again.json()["job_id"]
    assert (again.headers["Idempotent-Replayed"], "Idempotent-Replayed" in first.headers) == ("true", False)
    other = await retry(service, job_id, {"include": ["failed"]}, **{"Idempotency-Key": "r"})
    assert other.json()["code"] == "idempotency_key_reused"
    assert await service.count("job") == 2


async def test_a_retry_without_originals_is_gone(service: Service) -> None:
    """By its time, by the record, or by the store; and a deleted job has none."""
    worker = await Worker(service).start()
    job_id = await failed_job(service, worker)
    await service.app.starlette.state.parts.storage.delete_async(digest_of(1))
    assert (await retry(service, job_id)).json()["code"] == "gone"
    await service.execute("DELETE FROM blob")
    assert (await retry(service, job_id)).json()["code"] == "gone"
    await service.execute("UPDATE job SET finished_at = now() - interval '8 days'")
    assert (await retry(service, job_id)).json()["code"] == "gone"
    assert (await retry(service, "job_01ARZ3NDEKTSV4RRFFQ69G5FAV")).status_code == 404
    assert await service.count("job") == 1


async def test_urls_that_gave_nothing_are_fetched_again(service: Service) -> None:
    """With the whole URL; one that may not be called is left out."""
    urls = ["https://pictures.example.com/a.png?token=hush", "https://10.0.0.1/a.png"]
    body = {"images": [{"url": url, "name": "a.png"} for url in urls]}
    sent = await send(service, MANY, headers={"Content-Type": "application/json"}, content=json.dumps(body))
    job_id = sent.json()["job_id"]
    await service.client.post(f"{JOBS}/{job_id}/cancel", headers=await service.headers())
    answer = await retry(service, job_id)
    assert answer.status_code == 202, answer.text
    assert [(one["source_url"], one["status"]) for one in answer.json()["images"]] == [(urls[0], "fetching")]
    async with service.database.session() as session:
        rows = await (await session.connection()).exec_driver_sql(
            "SELECT source_host FROM image WHERE state = 'fetching'"
        )
        assert rows.scalars().all() == ["pictures.example.com"]


async def test_a_retry_counts_like_a_submission(start: Start) -> None:
    """For the rate of submissions, that of images, and the room in the queue."""
    async with start(vision_rate_limit="3/minute") as service:
        await service.account()
        worker = await Worker(service).start()
        job_id = await failed_job(service, worker)
        codes = [(await retry(service, job_id)).status_code for _ in range(3)]
        assert codes == [202, 202, 429]


async def test_a_retry_that_another_job_answers_is_done_at_once(service: Service) -> None:
    """What was read for somebody else of the account meanwhile is no work any more, and its events say so."""
    worker = await Worker(service).start()
    sent = await send(service, ONE, files={"file": ("a.png", png())})
    await worker.read_all(failing=(hashlib.sha256(png()).hexdigest(),))
    await send(service, ONE, files={"file": ("b.png", png())})
    await worker.read_all()
    answer = await retry(service, sent.json()["job_id"])
    assert (answer.status_code, answer.json()["status"], answer.json()["cached"]) == (200, "completed", True)
    assert answer.json()["images"][0]["result"]["text"].startswith("text of")
    feed = (await service.client.get("/api/events", headers=await service.headers())).json()["data"]
    types = [event["type"] for event in feed if event["data"]["job_id"] == answer.json()["job_id"]]
    assert types == ["image.completed", "job.completed"]


@pytest.mark.parametrize("method", ["DELETE", "POST"])
async def test_readers_may_not(service: Service, method: str) -> None:
    """Erasing and retrying need the scope to write."""
    path = f"{JOBS}/job_01ARZ3NDEKTSV4RRFFQ69G5FAV" + ("/retry" if method == "POST" else "")
    answer = await service.client.request(method, path, headers=await service.headers(scopes=("vision:read",)))
    assert answer.json()["code"] == "insufficient_scope"
