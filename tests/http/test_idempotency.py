"""An Idempotency-Key makes one job, however often and however close together its request comes."""

import asyncio

import pytest
from sqlalchemy import text as sql

from arachne.http import entry, throttle
from arachne.jobs.idempotency import Reservation, is_taken, reserve
from tests.http.conftest import Service, Start
from tests.http.pictures import png
from tests.http.sending import MANY, ONE, send, text
from tests.http.worker import Worker

KEY = {"Idempotency-Key": "order-7"}


async def test_a_repeat_answers_with_the_same_job_as_it_now_stands(service: Service) -> None:
    worker = await Worker(service).start()
    first = await send(service, ONE, files={"file": ("a.png", png())}, headers=KEY)
    assert "idempotent-replayed" not in first.headers
    await worker.read_all()
    again = await send(service, ONE, files={"file": ("a.png", png())}, headers=KEY)
    assert again.status_code == 200
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["job_id"] == first.json()["job_id"]
    assert again.json()["status"] == "completed"
    inline = await send(service, ONE, json={"image": {"base64": text(png()), "name": "a.png"}}, headers=KEY)
    assert inline.json()["job_id"] == first.json()["job_id"]


async def test_another_request_with_the_key_is_422(service: Service) -> None:
    await send(service, ONE, files={"file": ("a.png", png())}, headers=KEY)
    others = (
        (ONE, {"files": {"file": ("a.png", png((1, 2, 3)))}}),
        (ONE, {"files": {"file": ("b.png", png())}}),
        (ONE, {"files": {"file": ("a.png", png())}, "params": {"detail_level": "fast"}}),
        (ONE, {"files": {"file": ("a.png", png())}, "data": {"metadata": '{"a": "b"}'}}),
        (MANY, {"files": {"files": ("a.png", png())}}),
    )
    for url, request in others:
        response = await send(service, url, headers=KEY, **request)
        assert (response.status_code, response.json()["code"]) == (422, "idempotency_key_reused")


async def test_two_at_once_make_one_job(service: Service) -> None:
    answers = await asyncio.gather(
        *(send(service, ONE, files={"file": ("a.png", png())}, headers=KEY) for _ in range(6))
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert set(statuses) <= {202, 409}
    ids = {answer.json()["job_id"] for answer in answers if answer.status_code == 202}
    assert len(ids) == 1
    assert {answer.json()["code"] for answer in answers if answer.status_code == 409} <= {"idempotency_key_in_use"}


async def test_a_refused_request_is_not_remembered(service: Service) -> None:
    refused = await send(service, ONE, files={"file": ("a.png", b"no image")}, headers=KEY)
    assert refused.status_code == 415
    accepted = await send(service, ONE, files={"file": ("a.png", png())}, headers=KEY)
    assert accepted.status_code == 202


async def test_a_reservation_ends_with_its_lease_when_its_process_died(service: Service) -> None:
    account_id = (await service.account("other")).account_id
    insert = (
        "INSERT INTO idempotency_key (account_id, key, holder, lease_until, expires_at) "
        "VALUES (:id, 'order-7', gen_random_uuid(), {}, {})"
    )
    alive, dead, later = "now() + interval '1 min'", "now() - interval '1 s'", "now() + interval '1 day'"
    headers = await service.headers("other") | KEY
    await service.database.run(lambda tx: tx.session.execute(sql(insert.format(alive, later)), {"id": account_id}))
    held = await service.client.post(ONE, headers=headers, files={"file": ("a.png", png())})
    assert (held.status_code, held.json()["code"]) == (409, "idempotency_key_in_use")
    assert held.headers["retry-after"] == "1"
    await service.database.run(lambda tx: tx.session.execute(sql(f"UPDATE idempotency_key SET lease_until = {dead}")))
    taken = await service.client.post(ONE, headers=headers, files={"file": ("a.png", png())})
    assert taken.status_code == 202


async def test_a_long_upload_keeps_its_key(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is short, so that a dead process frees the key soon; a request that takes long renews it."""
    monkeypatch.setattr(entry, "RENEW_S", 0.01)
    account_id = (await service.account("slow")).account_id
    held = await service.database.run(reserve, account_id, "order-7", service.settings)
    assert isinstance(held, Reservation)
    past = sql("UPDATE idempotency_key SET lease_until = now() - interval '1 s'")
    await service.database.run(lambda tx: tx.session.execute(past))
    parts = service.app.starlette.state.parts
    async with entry._renewed(parts, held), asyncio.timeout(20):
        while not await service.database.run(is_taken, account_id, "order-7"):  # noqa: ASYNC110  # rows tell no events
            await asyncio.sleep(0.01)
    taken = await service.client.post(
        ONE, headers=await service.headers("slow") | KEY, files={"file": ("a.png", png())}
    )
    assert taken.status_code == 409


async def test_a_repeat_costs_nothing_of_any_limit(start: Start) -> None:
    async with start(
        vision_rate_limit="2/minute",
        other_rate_limit="1/minute",
        read_rate_limit="1/minute",
        image_rate_limit="2/minute",
    ) as service:
        await service.account()
        for _ in range(4):
            response = await send(service, ONE, files={"file": ("a.png", png())}, headers=KEY)
            assert response.status_code == 202
        assert "ratelimit" not in response.headers
        assert (await send(service, ONE, files={"file": ("a.png", png())})).status_code == 202
        assert (await send(service, ONE, files={"file": ("a.png", png())})).status_code == 429


async def test_keys_have_a_form(service: Service) -> None:
    for key in ("", "k" * 256, "with space"):
        response = await send(service, ONE, files={"file": ("a.png", png())}, headers={"Idempotency-Key": key})
        assert response.status_code == 422


async def test_a_repeat_that_comes_too_early_costs_nothing_but_one_that_makes_a_job_does(start: Start) -> None:
    async with start(vision_rate_limit="1/minute", other_rate_limit="1/minute") as service:
        account_id = (await service.account()).account_id
        insert = (
            "INSERT INTO idempotency_key (account_id, key, holder, lease_until, expires_at)"
            " VALUES (:id, 'order-7', gen_random_uuid(), now() + interval '1 min', now() + interval '1 day')"
        )
        await service.database.run(lambda tx: tx.session.execute(sql(insert), {"id": account_id}))
        for _ in range(3):
            early = await send(service, ONE, files={"file": ("a.png", png())}, headers=KEY)
            assert (early.status_code, early.json()["code"]) == (409, "idempotency_key_in_use")
        await service.execute("UPDATE idempotency_key SET lease_until = now() - interval '1 s'")
        first = await send(service, ONE, files={"file": ("a.png", png())}, headers=KEY)
        assert first.status_code == 202
        assert (await send(service, ONE, files={"file": ("a.png", png())})).status_code == 429


async def test_a_request_that_was_taken_for_a_repeat_counts_once_it_makes_a_job(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of the first request may end between the two looks at the key."""
    monkeypatch.setattr(throttle, "is_taken", lambda *_: True)
    async with start(vision_rate_limit="1/minute") as service:
        await service.account()
        assert (await send(service, ONE, files={"file": ("a.png", png())}, headers=KEY)).status_code == 202
        other = await send(service, ONE, files={"file": ("a.png", png())}, headers={"Idempotency-Key": "order-8"})
        assert other.status_code == 429
        assert await service.count("idempotency_key") == 1
