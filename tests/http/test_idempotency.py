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
        assert response.headers["ratelimit"].startswith('"vision";r=1')
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


def form(boundary: str, *parts: tuple[str, bytes]) -> dict[str, object]:
    """A form written by hand: the parts of its fields and files in this order, between these boundaries."""
    body = b"".join(f"--{boundary}\r\n{head}\r\n\r\n".encode() + data + b"\r\n" for head, data in parts)
    content_type = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    return {"content": body + f"--{boundary}--\r\n".encode(), "headers": content_type}


FILE = 'Content-Disposition: form-data; name="file"; filename="a.png"'


def field(name: str, text: str) -> tuple[str, bytes]:
    return f'Content-Disposition: form-data; name="{name}"', text.encode()


async def test_how_a_request_is_written_makes_it_no_other(service: Service) -> None:
    """Boundary, order and spelling of the parts, spaces in their JSON, defaults that are named, where options stand."""
    options, labels = '{"detail_level": "fast", "stages": ["assess", "decode"]}', '{"a": "1", "b": "2"}'
    picture = (FILE, png())
    first = form("one", picture, field("options", options), field("metadata", labels))
    same = (
        form("another-boundary", field("metadata", labels), field("options", options), picture),
        form("x", picture, field("options", '{"stages":["decode","assess"],"detail_level":"fast"}'),
             field("metadata", '{"b":"2","a":"1"}')),
        form("x", (f"{FILE}\r\nContent-Type: image/jpeg", png()), field("metadata", labels),
             field("options", options[:-1] + ', "cache": "use", "prompt": null}')),
        form("x", ("content-disposition: form-data; filename=a.png; name=file\r\nX-Other: 1", png()),
             field("options", '{"detail_level": "fast", "stages": ["assess"]}'), field("metadata", labels)),
        form("x", picture, field("metadata", labels))
        | {"params": {"detail_level": "fast", "stages": "decode,assess"}},
        {"json": {"image": {"base64": text(png()), "name": "a.png"}, "metadata": {"b": "2", "a": "1"},
                  "options": {"detail_level": "fast", "stages": ["decode", "assess"]}}},
    )  # fmt: skip
    made = await send(service, ONE, **with_key(first))
    assert made.status_code == 202, made.text
    for request in same:
        again = await send(service, ONE, **with_key(request))
        assert (again.status_code, again.headers.get("idempotent-replayed")) == (202, "true"), again.text
        assert again.json()["job_id"] == made.json()["job_id"]


def with_key(request: dict[str, object]) -> dict[str, object]:
    headers = request.get("headers", {})
    assert isinstance(headers, dict)
    return request | {"headers": headers | KEY}


async def test_a_batch_in_another_order_is_another_request(service: Service) -> None:
    pictures = [("files", (f"{n}.png", png((n, 0, 0)))) for n in range(3)]
    assert (await send(service, MANY, files=pictures, headers=KEY)).status_code == 202
    turned = await send(service, MANY, files=pictures[::-1], headers=KEY)
    assert turned.json()["code"] == "idempotency_key_reused"
    again = await send(service, MANY, files=pictures, headers=KEY)
    assert again.headers["idempotent-replayed"] == "true"


async def test_accounts_have_keys_of_their_own(service: Service) -> None:
    await service.account("other")
    request = {"files": {"file": ("a.png", png())}}
    ours = await send(service, ONE, headers=KEY, **request)
    theirs = await service.client.post(ONE, headers=await service.headers("other") | KEY, **request)
    assert (ours.status_code, theirs.status_code) == (202, 202)
    assert "idempotent-replayed" not in theirs.headers
    assert ours.json()["job_id"] != theirs.json()["job_id"]


async def test_a_key_is_forgotten_after_its_time(start: Start) -> None:
    """Then even another request may have it."""
    async with start(idempotency_ttl_s=3600.0) as service:
        await service.account()
        first = await send(service, ONE, files={"file": ("a.png", png())}, headers=KEY)
        left = "SELECT extract(epoch FROM expires_at - now()) FROM idempotency_key"
        async with service.database.session() as session:
            assert 3000 < float((await session.execute(sql(left))).scalar_one()) <= 3600
        await service.execute("UPDATE idempotency_key SET expires_at = now() - interval '1 s'")
        other = await send(service, ONE, files={"file": ("b.png", png((1, 2, 3)))}, headers=KEY)
        assert (other.status_code, "idempotent-replayed" in other.headers) == (202, False)
        assert other.json()["job_id"] != first.json()["job_id"]
        again = await send(service, ONE, files={"file": ("b.png", png((1, 2, 3)))}, headers=KEY)
        assert again.json()["job_id"] == other.json()["job_id"]


async def test_no_refusal_is_remembered(start: Start) -> None:
    """Whatever the reason, the key is free at once, and the next request with it is judged by itself."""
    refused = (
        ({"content": b"{", "headers": {"Content-Type": "application/json"}}, 400),
        ({"files": {"file": ("a.png", png() + bytes(5000))}}, 413),
        ({"content": b"x", "headers": {"Content-Type": "text/plain"}}, 415),
        ({"files": {"file": ("a.png", b"no image")}}, 415),
        ({"files": {"file": ("a.png", png())}, "data": {"options": '{"detail_level": "best"}'}}, 422),
        ({"files": {"file": ("a.png", png())}, "data": {"webhook": '{"url": "http://10.0.0.1/"}'}}, 422),
    )
    async with start(max_image_bytes=4000) as service:
        await service.account()
        for request, status in refused:
            answer = await send(service, ONE, **with_key(request))
            assert answer.status_code == status, answer.text
            assert await service.count("idempotency_key") == 0
        await service.execute("UPDATE plan SET monthly_images = 0")
        over = await send(service, ONE, files={"file": ("a.png", png())}, headers=KEY)
        assert (over.status_code, over.json()["code"]) == (403, "quota_exceeded")
        assert await service.count("idempotency_key") == 0
        await service.execute("UPDATE plan SET monthly_images = 1")
        assert (await send(service, ONE, files={"file": ("a.png", png())}, headers=KEY)).status_code == 202


async def test_a_repeat_costs_nothing_of_the_quota(service: Service) -> None:
    await service.execute("UPDATE plan SET monthly_images = 1")
    for _ in range(3):
        assert (await send(service, ONE, files={"file": ("a.png", png())}, headers=KEY)).status_code == 202
    further = await send(service, ONE, files={"file": ("a.png", png())}, headers={"Idempotency-Key": "order-8"})
    assert further.json()["code"] == "quota_exceeded"
    assert await service.count("job") == await service.count("image") == 1
