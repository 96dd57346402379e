"""Jobs tell how they stand: polled, waited for, listed, cancelled, with results inline and in other forms."""

import asyncio
import hashlib
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from sqlalchemy import text as sql

from arachne.schemas.job import JobView, SingleJobView
from arachne.schemas.result import Result
from tests.http.conftest import BASE_URL, Service
from tests.http.pictures import png
from tests.http.sending import MANY, ONE, send, text
from tests.http.worker import Worker

JOBS = "/api/extract/image-jobs"


async def get(service: Service, url: str, name: str = "acme", **headers: str) -> httpx.Response:
    return await service.client.get(url, headers=await service.headers(name) | headers)


async def submit_batch(service: Service, number: int = 3) -> str:
    files = [("files", (f"{n}.png", png((n, n, n)))) for n in range(number)]
    return str((await send(service, MANY, files=files)).json()["job_id"])


async def test_a_single_image_carries_its_result_at_the_top(service: Service) -> None:
    worker = await Worker(service).start()
    job_id = (await send(service, ONE, files={"file": ("a.png", png())})).json()["job_id"]
    assert await worker.read_all() == 1
    job = (await get(service, f"{JOBS}/{job_id}")).json()
    assert (job["status"], job["finished"], job["progress"]["percent"]) == ("completed", True, 100)
    assert job["queue"] is None
    assert job["result"]["text"].startswith("text of")
    assert job["result"] == job["images"][0]["result"]
    SingleJobView.model_validate(job)


async def test_the_same_image_again_is_answered_at_once_and_tells_its_webhooks(service: Service) -> None:
    worker = await Worker(service).start()
    await send(service, ONE, files={"file": ("a.png", png())})
    await worker.read_all()
    again = await send(service, ONE, files={"file": ("b.png", png())})
    assert again.status_code == 200
    job = again.json()
    assert (job["status"], job["cached"], job["progress"]["cached"]) == ("completed", True, 1)
    assert job["result"]["text"].startswith("text of")
    assert job["images"][0]["name"] == "b.png"
    assert job["model_version"] == "none"
    events = await service.database.run(
        lambda tx: list(
            tx.session.scalars(sql("SELECT type FROM webhook_message WHERE job_id = :id"), {"id": job["job_id"]})
        )
    )
    assert sorted(events) == ["image.completed", "job.completed"]
    usage = (await get(service, "/api/usage")).json()
    assert (usage["total"]["images"], usage["total"]["cached"]) == (2, 1)
    refreshed = await send(service, ONE, files={"file": ("b.png", png())}, params={"cache": "refresh"})
    other = await send(service, ONE, files={"file": ("b.png", png())}, params={"profile": "slip"})
    assert (refreshed.status_code, other.status_code) == (202, 202)


async def test_a_cached_result_of_one_account_is_none_of_anothers(service: Service) -> None:
    worker = await Worker(service).start()
    await send(service, ONE, files={"file": ("a.png", png())})
    await worker.read_all()
    await service.account("other")
    response = await service.client.post(ONE, headers=await service.headers("other"), files={"file": ("a.png", png())})
    assert response.status_code == 202


async def test_a_batch_inlines_results_only_when_asked(service: Service) -> None:
    worker = await Worker(service).start()
    job_id = await submit_batch(service, 22)
    await worker.read_all()
    plain = (await get(service, f"{JOBS}/{job_id}")).json()
    assert [image["result"] for image in plain["images"]] == [None] * 22
    assert plain["images_next_cursor"] is None
    JobView.model_validate(plain)
    first = (await get(service, f"{JOBS}/{job_id}?include=results")).json()
    assert [image["index"] for image in first["images"]] == list(range(20))
    assert all(image["result"]["text"] for image in first["images"])
    rest = (await get(service, f"{JOBS}/{job_id}?include=results&images_cursor={first['images_next_cursor']}")).json()
    assert [image["index"] for image in rest["images"]] == [20, 21]
    assert rest["images_next_cursor"] is None


async def test_a_partial_job_tells_which_image_failed_and_why(service: Service) -> None:
    worker = await Worker(service).start()
    job_id = await submit_batch(service, 2)
    await worker.read_all(failing=(hashlib.sha256(png((1, 1, 1))).hexdigest(),))
    job = (await get(service, f"{JOBS}/{job_id}")).json()
    assert job["status"] == "partial"
    assert job["images"][1]["error"] == {"code": "read_failed", "message": "It can't be read.", "stage": "read"}
    assert job["images"][1]["result_url"] is None
    missing = await get(service, f"{JOBS}/{job_id}/images/1/result")
    assert missing.status_code == 404


async def test_results_come_as_json_markdown_and_text(service: Service) -> None:
    worker = await Worker(service).start()
    job_id = (await send(service, ONE, files={"file": ("é shot.png", png())})).json()["job_id"]
    early = await get(service, f"{JOBS}/{job_id}/images/0/result")
    assert (early.status_code, early.json()["code"]) == (409, "not_finished")
    await worker.read_all()
    image = (await get(service, f"{JOBS}/{job_id}/images/0")).json()
    assert image["result_url"] == f"{BASE_URL}{JOBS}/{job_id}/images/0/result"
    found = {}
    for form in ("json", "md", "txt"):
        response = await get(service, f"{image['result_url']}?format={form}")
        assert response.status_code == 200
        assert response.headers["content-disposition"].startswith("attachment")
        assert response.headers["content-security-policy"] == "sandbox"
        assert response.headers["x-content-type-options"] == "nosniff"
        found[form] = response
    Result.model_validate(found["json"].json())
    assert found["json"].json() == image["result"]
    assert found["txt"].text == image["result"]["text"]
    assert found["txt"].headers["content-type"] == "text/plain; charset=utf-8"
    assert found["md"].text == image["result"]["markdown"]
    assert (await get(service, f"{image['result_url']}?format=txt&page=1")).text == "page 1"
    assert (await get(service, f"{image['result_url']}?page=2")).status_code == 404
    unknown = await get(service, f"{image['result_url']}?format=docx")
    assert (unknown.status_code, unknown.json()["code"]) == (422, "invalid_options")
    assert (await get(service, f"{JOBS}/{job_id}/images/1")).status_code == 404
    assert (await get(service, f"{JOBS}/{job_id}/images/x")).status_code == 404


async def test_prefer_wait_holds_the_submission_until_it_is_done(service: Service) -> None:
    worker = await Worker(service).start()
    waiting = asyncio.create_task(
        send(service, ONE, files={"file": ("a.png", png())}, headers={"Prefer": "respond-async, wait=30"})
    )
    while not await worker.read_all():  # noqa: ASYNC110  # only the database knows when it is there
        await asyncio.sleep(0.01)
    response = await waiting
    assert response.status_code == 200
    assert response.headers["preference-applied"] == "wait=30"
    assert response.json()["result"]["text"]
    at_once = await send(service, ONE, files={"file": ("a.png", png((9, 9, 9)))}, headers={"Prefer": "wait=0"})
    assert at_once.status_code == 202


async def test_polls_wait_for_a_change_and_answer_304_to_what_is_known(service: Service) -> None:
    worker = await Worker(service).start()
    job_id = await submit_batch(service, 2)
    first = await get(service, f"{JOBS}/{job_id}")
    etag = first.headers["etag"]
    assert etag.startswith('W/"')
    known = {"If-None-Match": etag}
    assert (await get(service, f"{JOBS}/{job_id}", **known)).status_code == 304
    began = time.monotonic()
    held = await get(service, f"{JOBS}/{job_id}?wait=1", **known)
    assert held.status_code == 304
    assert held.headers["etag"] == etag
    assert time.monotonic() - began >= 0.9
    polls = [
        asyncio.create_task(get(service, f"{JOBS}/{job_id}?wait=30", **known)),
        asyncio.create_task(get(service, f"{JOBS}/{job_id}?wait=30")),
    ]
    watcher = service.app.starlette.state.parts.watcher
    while watcher.count < len(polls):  # noqa: ASYNC110  # only the watcher knows who waits
        await asyncio.sleep(0.01)
    claimed = await worker.claim()
    await worker.finish(claimed[0])
    for poll in polls:
        answer = await poll
        assert answer.status_code == 200
        assert answer.json()["status"] == "processing"
    await worker.finish(claimed[1])
    done = await get(service, f"{JOBS}/{job_id}?wait=30", **{"If-None-Match": "*"})
    assert done.status_code == 304
    assert (await get(service, f"{JOBS}/{job_id}?wait=30")).json()["finished"] is True


@pytest.mark.parametrize(
    ("wait", "status"),
    [("0", 200), ("61", 200), ("999999999999", 200), ("9" * 400, 200), ("-1", 422), ("1.5", 422), ("1e3", 422)],
)
async def test_any_number_of_seconds_is_clamped(service: Service, wait: str, status: int) -> None:
    """However long a client would wait, it is a minute at most; what is no whole number is refused."""
    worker = await Worker(service).start()
    job_id = await submit_batch(service, 1)
    await worker.read_all()
    assert (await get(service, f"{JOBS}/{job_id}?wait={wait}")).status_code == status


async def test_cancelling_keeps_what_is_done_and_is_a_no_op_on_a_finished_job(service: Service) -> None:
    worker = await Worker(service).start()
    job_id = await submit_batch(service, 3)
    claimed = await worker.claim(2)
    await worker.finish(claimed[0])
    cancelled = await service.client.post(f"{JOBS}/{job_id}/cancel", headers=await service.headers())
    assert cancelled.status_code == 200
    job = cancelled.json()
    assert (job["status"], job["finished"]) == ("cancelled", True)
    assert job["progress"]["completed"] == 1
    assert job["progress"]["cancelled"] == 2
    await worker.finish(claimed[1])  # too late: its claim is gone
    again = await service.client.post(f"{JOBS}/{job_id}/cancel", headers=await service.headers())
    assert again.json() == job


async def test_jobs_are_listed_newest_first_page_by_page(service: Service) -> None:
    worker = await Worker(service).start()
    ids = [await submit_batch(service, 1) for _ in range(5)]
    await worker.read_all()
    ids.append(str((await send(service, ONE, files={"file": ("a.png", png((7, 7, 7)))})).json()["job_id"]))
    found, url = [], f"{JOBS}?limit=4"
    while True:
        page = (await get(service, url)).json()
        found += [job["job_id"] for job in page["data"]]
        if page["next_cursor"] is None:
            break
        url = f"{JOBS}?limit=4&cursor={page['next_cursor']}"
    assert found == ids[::-1]
    queued = (await get(service, f"{JOBS}?status=queued")).json()["data"]
    assert [job["job_id"] for job in queued] == ids[-1:]
    later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert (await get(service, f"{JOBS}?created_after={later}")).json()["data"] == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=0", 422),
        ("limit=201", 422),
        ("limit=x", 422),
        ("status=done", 422),
        ("created_after=yesterday", 422),
        ("created_after=0", 422),
        ("limit=5.0", 422),
        ("limit=1_0", 422),
        ("created_after=2026-01-01T00:00:00", 422),
        ("colour=red", 422),
        ("limit=1&limit=2", 422),
        ("status=%00", 422),
        ("cursor=garbage", 400),
        ("cursor=%00", 422),
        ("cursor=am9icyA7RFJPUA", 400),
    ],
)
@pytest.mark.asyncio(loop_scope="session")
async def test_bad_list_parameters_are_refused(shared: Service, query: str, status: int) -> None:
    response = await get(shared, f"{JOBS}?{query}")
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("job_id", ["job_01M8MCBQK32Z96E0JPN8CP9HNX", "nonsense", "%00", "..%2f", "job_'--", "x" * 300])
@pytest.mark.asyncio(loop_scope="session")
async def test_ids_that_name_nothing_are_404(shared: Service, job_id: str) -> None:
    for path in ("", "/images/0", "/images/0/result", "/images/0/original"):
        response = await get(shared, f"{JOBS}/{job_id}{path}")
        assert (response.status_code, response.json()["code"]) == (404, "not_found")
    cancel = await shared.client.post(f"{JOBS}/{job_id}/cancel", headers=await shared.headers())
    assert cancel.status_code == 404


async def test_a_webhook_of_the_job_is_kept_with_its_events(service: Service) -> None:
    body = {"image": {"base64": text(png())}, "webhook": {"url": "https://hooks.example.com/x", "events": ["job.*"]}}
    response = await send(service, ONE, json=body)
    assert response.status_code == 202, response.text
    kept = await service.database.run(
        lambda tx: tx.session.execute(
            sql(
                "SELECT url, hidden, webhook_events FROM job JOIN webhook_endpoint ON endpoint_id = webhook_endpoint_id"
            )
        ).one()
    )
    assert tuple(kept) == ("https://hooks.example.com/x", True, ["job.*"])
    unknown = await send(
        service, ONE, json=body | {"webhook": {"url": "https://hooks.example.com/x", "events": ["no"]}}
    )
    assert [one["loc"] for one in unknown.json()["errors"]] == [["webhook", "events", 0]]
    for url, code in (("http://127.0.0.1/x", "invalid_url"), ("https://10.0.0.1/x", "egress_blocked")):
        refused = await send(service, ONE, json=body | {"webhook": {"url": url}})
        assert (refused.status_code, refused.json()["code"]) == (422, code)
