"""Rate limits: exactly so many in any window, headers that say how one stands, and a Retry-After that is true."""

import asyncio
import time
from itertools import cycle

import httpx
import pytest
import redis

from arachne.http import limiter
from arachne.http.limiter import Limiter
from arachne.http.windows import Policy, Windows
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
        answers = [await send(service, ONE, files={"file": ("a.png", png())}) for _ in range(2)]
        for _ in range(100):  # on a slow machine a window may be over before it is full
            if answers[-1].status_code == 429:
                break
            answers.append(await send(service, ONE, files={"file": ("a.png", png())}))
        *passed, refused = answers
        assert {answer.status_code for answer in passed} == {202}
        assert len(passed) >= 2
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
    refused: list[limiter.Verdict] = []
    for _ in range(400):  # on a slow machine a window may be over meanwhile
        verdict = await counter.hit(policy, "somebody", cost=cost)
        refused = [] if verdict.passed else [*refused, verdict]
        if len(refused) == 5:
            break
    assert len(refused) == 5
    await asyncio.sleep(refused[-1].retry_after_s)
    assert (await counter.hit(policy, "somebody", cost=cost)).passed
    await counter.close()


def test_identities_that_join_to_the_same_text_are_kept_apart() -> None:
    assert limiter.identify("a", "b/c") != limiter.identify("a/b", "c")
    assert limiter.identify("ab", "") != limiter.identify("a", "b")


class Unreachable:
    """Stands in the place of the limiter's Redis while that is away."""

    async def hit(self, *_: object, **__: object) -> bool:
        """Nobody answers."""
        raise redis.ConnectionError("away")

    get_window_stats = hit


@pytest.mark.parametrize("disturbed", [False, True])
async def test_no_window_has_more_than_the_limit_over_two_processes_and_whatever_redis_does(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, disturbed: bool
) -> None:
    """Two limiters count together. One holds by itself while Redis is away, is back, and has been emptied."""
    monkeypatch.setattr(limiter, "COOL_DOWN_S", 0.0)
    counters = [Limiter(redis_url) for _ in range(1 if disturbed else 2)]
    policy, redis_there = Policy("test", RateWindow(5, 1)), counters[0]._shared
    passed: list[tuple[float, float]] = []
    client = redis.Redis.from_url(redis_url)
    for turn, counter in zip(range(400), cycle(counters), strict=False):
        if disturbed and turn % 10 == 0:
            counter._shared = Unreachable() if turn % 20 else redis_there  # type: ignore[assignment]
            client.flushdb()
        before = time.time()
        verdict = await counter.hit(policy, "somebody")
        if verdict.passed:
            passed.append((before, time.time()))
        elif turn % 7 == 0:
            await asyncio.sleep(verdict.retry_after_s / 3)
        if len(passed) > 10:
            break
    assert len(passed) > 10
    assert all(sixth[1] - first[0] > 1.0 for first, sixth in zip(passed, passed[5:], strict=False))
    client.close()
    for counter in counters:
        await counter.close()


async def test_the_wait_for_several_hits_is_until_the_window_has_room_for_them_all() -> None:
    """Kept by this process alone: by the window's own clock, and what was given back counts no more."""
    now = [100.0]
    windows, policy = Windows(lambda: now[0]), Policy("test", RateWindow(10, 60))
    for _ in range(3):
        assert windows.take(policy, "key", 3)
        now[0] += 10
    assert windows.take(policy, "key", 2) is None
    assert windows.stand(policy, "key", 1) == (1, 30.0, 0.0)
    assert windows.stand(policy, "key", 4) == (1, 30.0, 30.0)
    assert windows.stand(policy, "key", 5) == (1, 30.0, 40.0)
    last = windows.take(policy, "key", 1)
    assert last
    windows.give_back(policy, "key", last)
    assert windows.stand(policy, "key", 1).remaining == 1
    assert windows.stand(policy, "other", 1) == (10, 60.0, 0.0)
    now[0] += 61
    assert windows.take(policy, "other", 10)
    assert list(windows._windows[policy]) == ["other"]


async def test_a_plan_may_cap_all_users_of_an_account_together(start: Start) -> None:
    """What the account's cap refuses costs the user nothing, and what can never pass the cap is 413."""
    async with start() as service:
        account = await service.account()
        await service.execute("""UPDATE plan SET rates = '{"vision": "3/minute", "account_vision": "4/minute"}'""")
        form = {"grant_type": "client_credentials", "client_id": account.client_id}
        token = await service.client.post("/api/auth/token", data=form | {"client_secret": account.client_secret})
        client = {"Authorization": f"Bearer {token.json()['access_token']}"}

        async def one(number: int, headers: dict[str, str]) -> httpx.Response:
            return await service.client.post(ONE, headers=headers, files={"file": ("a.png", png((number, 0, 0)))})

        operator = await service.headers()
        assert [(await one(n, operator)).status_code for n in range(3)] == [202] * 3
        last = await one(4, client)
        assert last.status_code == 202
        assert last.headers["ratelimit-policy"].startswith('"vision";q=3;w=60, "account_vision";q=4;w=60')
        assert last.headers["x-ratelimit-limit"] == "4"
        refused = await one(5, client)
        assert (refused.status_code, refused.json()["violated-policies"]) == (429, ["account_vision"])
        assert '"vision";r=2' in refused.headers["ratelimit"]
        files = [("files", (f"{n}.png", png((n, 1, 0)))) for n in range(6)]
        await service.execute("""UPDATE plan SET rates = '{"account_images": "5/minute"}'""")
        never = await send(service, MANY, files=files)
        assert (never.status_code, never.json()["code"]) == (413, "too_many_images")


async def test_a_refusal_by_one_limit_waits_for_the_others_too(start: Start) -> None:
    """The images would pass in two seconds, but the submission only in a minute."""
    async with start(vision_rate_limit="2/minute", image_rate_limit="2/2 seconds") as service:
        await service.account()
        files = [("files", (f"{n}.png", png((n, 0, 0)))) for n in range(2)]
        assert (await send(service, MANY, files=files)).status_code == 202
        later = await send(service, MANY, files=files)
        if later.status_code == 202:  # on a machine so slow that two seconds had passed
            later = await send(service, MANY, files=files)
        assert later.status_code == 429
        assert int(later.headers["retry-after"]) > 2


async def test_a_repeat_is_told_how_the_limits_stand_without_being_counted(start: Start) -> None:
    async with start(vision_rate_limit="2/minute") as service:
        await service.account()
        headers = {**await service.headers(), "Idempotency-Key": "once"}
        told = []
        for _ in range(4):
            answer = await service.client.post(ONE, headers=headers, files={"file": ("a.png", png())})
            assert answer.status_code == 202
            told.append(answer.headers["x-ratelimit-remaining"])
        assert told == ["1"] * 4
