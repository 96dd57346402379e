"""Who fetches what: bounded by host and account, fenced, taken back from whoever is gone, cut when it is cancelled."""

import asyncio

import pytest
from aiohttp import web

from arachne import resident_loop
from arachne.database import Database
from arachne.errors import AccountQueueFull, FetchFailed, OriginalsErased, QueueFull, QuotaExceeded
from arachne.jobs import fetch_claim
from arachne.jobs.cancel import cancel
from arachne.jobs.closing import MAX_LOST_LEASES
from arachne.jobs.fetch_claim import Fetch, claim_fetches
from arachne.jobs.fetch_finish import LOST, fetch_later, finish_fetched, finish_unfetched
from arachne.jobs.queue import Room, check_quota, check_room
from arachne.jobs.reconcile import reconcile
from arachne.jobs.submit import NewImage, reserve_blobs
from arachne.jobs.workers import register
from tests.core.fetching.conftest import Fetching, Site, png, until

IMAGE = NewImage(None, "0" * 64, "png", 10)


async def claim(fetching: Fetching, worker_id: str, limit: int = 100) -> list[Fetch]:
    found = await fetching.database.run(claim_fetches, worker_id, limit, fetching.settings)
    return found.images


async def worker(fetching: Fetching) -> str:
    return await fetching.database.run(register, "io")


def urls(host: str, number: int) -> list[str]:
    return [f"http://{host}/{n}.png" for n in range(number)]


async def test_a_slow_host_never_takes_more_than_its_places(fetching: Fetching) -> None:
    """Over all workers and accounts; the other hosts' images are handed out beside it."""
    await fetching.submit(*urls("slow.example.com", 50), account="one")
    await fetching.submit(*urls("slow.example.com", 50), account="two")
    await fetching.submit(*urls("fast.example.com", 3), account="one")
    first, second = await worker(fetching), await worker(fetching)
    held = await claim(fetching, first, 6) + await claim(fetching, second)
    hosts = [fetch.url.split("/")[2] for fetch in held]
    assert hosts.count("slow.example.com") == fetch_claim.PER_HOST
    assert hosts.count("fast.example.com") == 3
    assert {fetch.account_id for fetch in held if "slow" in fetch.url} == set(fetching.accounts.values())
    assert await claim(fetching, second) == []


async def test_many_hosts_are_no_way_round_for_one_account(fetching: Fetching) -> None:
    """It has its places, however many hosts its images come from; another's image is next."""
    await fetching.submit(*(f"http://h{n}.example.com/a.png" for n in range(60)), account="greedy")
    await fetching.submit("http://other.example.org/a.png", account="modest")
    held = await claim(fetching, await worker(fetching), 40)
    accounts = [fetch.account_id for fetch in held]
    assert accounts.count(fetching.accounts["greedy"]) == fetch_claim.PER_ACCOUNT
    assert accounts.index(fetching.accounts["modest"]) < 2


async def test_a_nearly_full_worker_keeps_places_for_whoever_comes_now(fetching: Fetching) -> None:
    """Accounts with much under way get no more of them, one with nothing does."""
    worker_id, run = await worker(fetching), fetching.database.run
    await fetching.submit(*(f"http://h{n}.example.com/a.png" for n in range(20)), account="greedy")
    await claim(fetching, worker_id, fetch_claim.PER_ACCOUNT_WHEN_FULL)
    await fetching.submit(*(f"http://n{n}.example.com/a.png" for n in range(20)), account="new")
    found = await run(claim_fetches, worker_id, 100, fetching.settings, nearly_full=True)
    accounts = [fetch.account_id for fetch in found.images]
    assert accounts == [fetching.accounts["new"]] * fetch_claim.PER_ACCOUNT_WHEN_FULL


async def test_every_host_comes_into_view(fetching: Fetching, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more hosts than one claim walks, the cursor moves on and comes round."""
    monkeypatch.setattr(fetch_claim, "WINDOW", 4)
    await fetching.submit(*(f"http://h{n}.example.com/a.png" for n in range(10)))
    worker_id, cursor, seen = await worker(fetching), None, []
    for _ in range(3):
        found = await fetching.database.run(claim_fetches, worker_id, 100, fetching.settings, cursor=cursor)
        seen += [fetch.url for fetch in found.images]
        cursor = found.cursor
    assert len(set(seen)) == 10
    assert cursor == fetch_claim.Cursor()


async def test_requests_to_one_host_are_bounded_while_others_are_served(fetching: Fetching, site: Site) -> None:
    """A host that hangs is asked a few times at once; what comes from another is there long before it answers."""
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response(body=png())

    site.pages |= {f"/{n}": hang for n in range(20)} | {"/fast": png(1)}
    slow = await fetching.submit(*(site.url(f"/{n}", "slow.example.com") for n in range(20)))
    fast = await fetching.submit(site.url("/fast", "fast.example.com"))
    task = asyncio.create_task((await fetching.engine()).fetch_due())

    async def fetched() -> bool:
        return (await fetching.images(fast))[0].state == "queued"

    await until(fetched)
    assert {image.state for image in await fetching.images(slow)} == {"fetching"}
    release.set()
    await task
    assert site.most <= fetch_claim.PER_HOST + 1
    assert {image.state for image in await fetching.images(slow)} == {"queued"}


async def test_the_last_places_are_kept_for_whoever_comes_now(
    fetching: Fetching, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An account with more images than places, all of hosts that hang, leaves some to another."""
    monkeypatch.setattr(resident_loop, "PLACES", 8)
    monkeypatch.setattr(resident_loop, "LAST_PLACES", 4)
    monkeypatch.setattr(fetch_claim, "PER_ACCOUNT_WHEN_FULL", 1)
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response(body=png())

    site.pages |= {"/slow": hang, "/fast": png(1)}
    greedy = await fetching.submit(*(site.url("/slow", f"h{n}.example.com") for n in range(10)), account="greedy")
    modest = await fetching.submit(site.url("/fast", "fast.example.com"), account="modest")
    task = asyncio.create_task((await fetching.engine()).fetch_due())

    async def fetched() -> bool:
        return (await fetching.images(modest))[0].state == "queued"

    await until(fetched)
    assert site.under_way <= 4
    release.set()
    await task
    assert {image.state for image in await fetching.images(greedy)} == {"queued"}


async def test_whoever_lost_its_claim_writes_nothing(fetching: Fetching) -> None:
    """A fetcher taken for dead finds nothing to finish, fail or put off."""
    await fetching.submit(*urls("a.example.com", 1))
    run = fetching.database.run
    [late] = await claim(fetching, await worker(fetching))
    await fetching.column("UPDATE image SET claim_id = NULL, worker_id = NULL")
    [fresh] = await claim(fetching, await worker(fetching))
    assert await run(finish_fetched, late, IMAGE, fetching.settings) == LOST
    assert await run(finish_unfetched, late, FetchFailed("x"), fetching.settings) == LOST
    assert await run(fetch_later, late, 1, counted=True) == LOST
    with pytest.raises(OriginalsErased):  # put on record by nobody, so it can't be in the store
        await run(finish_fetched, fresh, IMAGE, fetching.settings)
    await run(reserve_blobs, [IMAGE])
    assert (await run(finish_fetched, fresh, IMAGE, fetching.settings)).queued


async def test_images_of_a_lost_fetcher_are_fetched_by_another(
    fetching: Fetching, database: Database, site: Site
) -> None:
    """Without a beat for the lease; too many losses are the image's end."""
    site.pages["/a.png"] = png()
    job_id = await fetching.submit(site.url("/a.png"))
    await claim(fetching, await worker(fetching))
    reconcile(database, fetching.settings)
    assert (await fetching.images(job_id))[0].worker_id is not None
    await fetching.column("UPDATE worker SET beat_at = now() - interval '1 min'")
    await worker(fetching)
    await fetching.column("UPDATE worker SET steady_since = now() - interval '1 min'")
    assert reconcile(database, fetching.settings, thorough=False).recovered == 1
    await (await fetching.engine()).fetch_due()
    [image] = await fetching.images(job_id)
    assert (image.state, image.lost_leases, image.fetch_attempts) == ("queued", 1, 1)
    poison = await fetching.submit(site.url("/poison"))
    await fetching.column("UPDATE image SET lost_leases = :it WHERE job_id = :job", it=MAX_LOST_LEASES, job=poison)
    await claim(fetching, await worker(fetching))
    await fetching.column("DELETE FROM worker")
    reconcile(database, fetching.settings)
    [image] = await fetching.images(poison)
    assert (image.state, image.error_code) == ("failed", "worker_lost")
    assert (await fetching.job(poison)).state == "failed"


async def hang_until_cut(cut: asyncio.Event, asked: asyncio.Event) -> web.StreamResponse:
    asked.set()
    try:
        await asyncio.Event().wait()
    finally:
        cut.set()
    raise AssertionError("unreachable")


async def test_cancelling_and_deadlines_cut_what_is_being_fetched(
    fetching: Fetching, database: Database, site: Site
) -> None:
    """The job ends at once, and the request to its host soon after; nothing is written late."""
    stop, ended = asyncio.Event(), {}
    for name in ("cancelled", "late"):
        cut, asked = asyncio.Event(), asyncio.Event()
        site.pages[f"/{name}"] = lambda _, cut=cut, asked=asked: hang_until_cut(cut, asked)  # type: ignore[misc]
        ended[name] = (cut, asked)
    engine = await fetching.engine()
    running = asyncio.create_task(engine.run(stop))
    jobs = {name: await fetching.submit(site.url(f"/{name}")) for name in ended}
    engine.wake()
    async with asyncio.timeout(20):
        for _, asked in ended.values():
            await asked.wait()
        assert await cancel(fetching.database, jobs["cancelled"], fetching.settings)
        await fetching.column("UPDATE job SET deadline_at = now() - interval '1 s' WHERE finished_at IS NULL")
        assert reconcile(database, fetching.settings).late == 1
        for cut, _ in ended.values():
            await cut.wait()
        stop.set()
        await running
    assert (await fetching.job(jobs["cancelled"])).state == "cancelled"
    [late] = await fetching.images(jobs["late"])
    assert (late.state, late.error_code) == ("failed", "deadline_exceeded")


async def test_a_fetcher_that_leaves_gives_back_uncounted(
    fetching: Fetching, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is under way at its end is due again at once, with no try and no loss noted."""
    monkeypatch.setattr("arachne.resident_loop._STOP_GRACE_S", 0.01)
    cut, asked, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    site.pages["/a.png"] = lambda _: hang_until_cut(cut, asked)
    job_id = await fetching.submit(site.url("/a.png"))
    running = asyncio.create_task((await fetching.engine()).run(stop))
    async with asyncio.timeout(20):
        await asked.wait()
        stop.set()
        await running
    [image] = await fetching.images(job_id)
    assert (image.state, image.worker_id, image.fetch_attempts, image.lost_leases) == ("fetching", None, 0, 0)


async def test_a_claim_nobody_knows_of_is_given_back(fetching: Fetching, site: Site) -> None:
    """Where the record has the fetcher holding an image that it doesn't, it is fetched all the same."""
    site.pages["/a.png"] = png()
    job_id = await fetching.submit(site.url("/a.png"))
    engine, stop = await fetching.engine(), asyncio.Event()
    await fetching.column(
        "UPDATE image SET claim_id = gen_random_uuid(), worker_id = (SELECT worker_id FROM worker), "
        "fetch_at = now() - interval '1 min'"
    )
    running = asyncio.create_task(engine.run(stop))

    async def free() -> bool:
        return (await fetching.images(job_id))[0].worker_id is None

    await until(free)
    await fetching.column("UPDATE image SET fetch_at = now()")

    async def queued() -> bool:
        return (await fetching.images(job_id))[0].state == "queued"

    await until(queued)
    stop.set()
    await running


async def test_images_to_be_fetched_count_as_waiting(fetching: Fetching) -> None:
    """For the account's share, for the depth and its fair division, and for the quota."""
    run, settings = fetching.database.run, fetching.settings.model_copy(update={"max_queue_depth": 12})
    await fetching.submit(*urls("a.example.com", 3))
    one, other = fetching.accounts["somebody"], await fetching.account("other")
    with pytest.raises(AccountQueueFull, match="3 images"):
        await run(check_room, one, Room(1, 1), settings)
    await run(check_room, other, Room(6, 6), settings)
    with pytest.raises(QueueFull):
        await run(check_room, other, Room(10, 10), settings)
    await fetching.column("UPDATE plan SET monthly_images = 5")
    await run(check_quota, one, 2)
    with pytest.raises(QuotaExceeded, match="3 accepted"):
        await run(check_quota, one, 3)
