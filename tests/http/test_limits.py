"""Rate limits: exactly so many in any window, headers that say how one stands, and a Retry-After that is true."""

import asyncio
import time

import httpx
import pytest

from arachne.http import limiter
from arachne.http.limiter import Limiter, Policy
from arachne.schemas.limits import RateWindow
from tests.http.conftest import Service, Start
from tests.http.pictures import png
from tests.http.sending import MANY, ONE, send


async def test_a_burst_of_forty_passes_twenty(service: Service) -> None:
    headers = await service.headers()

    async def one(number: int) -> httpx.Response:
        files = {"file": ("a.png", png((number, 0, 0)))}
        return await service.client.post(ONE, headers=headers, files=files)

    answers = await asyncio.gather(*(one(number) for number in range(40)))
    assert sorted(answer.status_code for answer in answers) == [202] * 20 + [429] * 20
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["code"] == "rate_limited"
    assert refused.json()["violated-policies"] == ["vision"]
    assert 1 <= int(refused.headers["retry-after"]) <= 61
    assert refused.headers["ratelimit-policy"] == '"vision";q=20;w=60'
    assert refused.headers["ratelimit"].startswith('"vision";r=0;t=')
    assert refused.headers["x-ratelimit-limit"] == "20"
    assert refused.headers["x-ratelimit-remaining"] == "0"
    assert 0 < int(refused.headers["x-ratelimit-reset"]) - time.time() <= 61
    reads = await service.client.get("/api/extract/image-jobs", headers=headers)
    assert reads.headers["ratelimit-policy"] == '"reads";q=1200;w=60'


async def test_the_wait_that_is_told_is_enough(start: Start) -> None:
    async with start(vision_rate_limit="2/2 seconds") as service:
        await service.account()
        for _ in range(2):
            assert (await send(service, ONE, files={"file": ("a.png", png())})).status_code == 202
        refused = await send(service, ONE, files={"file": ("a.png", png())})
        assert refused.status_code == 429
        await asyncio.sleep(int(refused.headers["retry-after"]))
        assert (await send(service, ONE, files={"file": ("a.png", png())})).status_code == 202


async def test_users_of_an_account_are_limited_apart_and_plans_have_rates_of_their_own(start: Start) -> None:
    async with start(vision_rate_limit="1/minute") as service:
        account = await service.account()
        form = {"grant_type": "client_credentials", "client_id": account.client_id}
        token = (
            await service.client.post("/api/auth/token", data=form | {"client_secret": account.client_secret})
        ).json()
        client = {"Authorization": f"Bearer {token['access_token']}"}
        assert (await send(service, ONE, files={"file": ("a.png", png())})).status_code == 202
        assert (await send(service, ONE, files={"file": ("a.png", png())})).status_code == 429
        assert (await service.client.post(ONE, headers=client, files={"file": ("a.png", png())})).status_code == 202
        await service.execute('UPDATE plan SET rates = \'{"vision": "5/minute"}\'')
        assert (await send(service, ONE, files={"file": ("a.png", png())})).status_code == 202


async def test_more_images_than_the_window_allows_is_413_and_too_many_at_once_429(start: Start) -> None:
    async with start(image_rate_limit="3/minute") as service:
        await service.account()
        files = [("files", (f"{n}.png", png((n, 0, 0)))) for n in range(4)]
        never = await send(service, MANY, files=files)
        assert (never.status_code, never.json()["code"]) == (413, "too_many_images")
        assert (await send(service, MANY, files=files[:2])).status_code == 202
        later = await send(service, MANY, files=files[:2])
        assert later.status_code == 429
        assert later.json()["violated-policies"] == ["images"]
        assert '"images";r=1' in later.headers["ratelimit"]


async def test_without_redis_each_process_counts_by_itself_and_readiness_says_degraded(start: Start) -> None:
    async with start(redis_url="redis://127.0.0.1:1/0", vision_rate_limit="2/minute") as service:
        await service.account()
        statuses = [(await send(service, ONE, files={"file": ("a.png", png())})).status_code for _ in range(3)]
        assert statuses == [202, 202, 429]
        ready = await service.client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert ready.json()["checks"]["redis"] == "unavailable"


@pytest.mark.parametrize("cost", [1, 3])
async def test_a_refused_hit_costs_nothing_and_passes_after_its_wait(redis_url: str, cost: int) -> None:
    counter, policy = Limiter(redis_url), Policy("test", RateWindow(4, 1))
    for _ in range(4):
        assert (await counter.hit(policy, "somebody")).passed
    refused = [await counter.hit(policy, "somebody", cost=cost) for _ in range(5)]
    assert not any(verdict.passed for verdict in refused)
    await asyncio.sleep(refused[-1].retry_after_s)
    assert (await counter.hit(policy, "somebody", cost=cost)).passed
    await counter.close()


def test_identities_that_join_to_the_same_text_are_kept_apart() -> None:
    assert limiter.identify("a", "b/c") != limiter.identify("a/b", "c")
    assert limiter.identify("ab", "") != limiter.identify("a", "b")
