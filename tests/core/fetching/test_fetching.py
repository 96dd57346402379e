"""What becomes of an image that was fetched: bounded, looked at, stored, queued or answered from the cache."""

import asyncio
import json
from hashlib import sha256

import pytest
from aiohttp import web

from arachne.cache import compress
from arachne.cache.shared import insert_result
from arachne.database import Database
from arachne.errors import Unavailable
from arachne.jobs.erasure import erase_job, request_erasure
from arachne.jobs.publications import Published, publish
from arachne.reading import cache_key
from arachne.schemas.options import Options
from arachne.settings import Settings
from tests.core.fetching.conftest import Fetching, Site, gif, png

FACTS = Published("pipeline-1", ("eng",), {})


async def test_an_image_is_fetched_stored_and_queued(fetching: Fetching, site: Site) -> None:
    """Its hash, format and size are noted, its bytes are in the store, and the readers are told."""
    data = site.pages["/a.png"] = png()
    [image] = await fetching.fetch(site.url("/a.png?token=secret"))
    digest = sha256(data).hexdigest()
    assert (image.state, image.sha256, image.format, image.size_bytes) == ("queued", digest, "png", len(data))
    assert (image.attempts, image.fetch_attempts, image.claim_id, image.worker_id) == (0, 1, None, None)
    assert image.source_url == site.url("/a.png?token=secret")
    assert fetching.storage.read(digest) == data
    assert fetching.told == {"queued": 1}
    job = await fetching.job(image.job_id)
    assert job.state == "processing"
    assert job.started_at is not None
    assert await fetching.events(image.job_id) == ["job.started"]
    assert site.headers[0]["Accept-Encoding"] == "identity"
    assert not {"Cookie", "Authorization", "Referer"} & site.headers[0].keys()


async def test_a_fetched_image_that_is_known_is_answered_from_the_cache(fetching: Fetching, site: Site) -> None:
    """Completed, charged as cached with its bytes, and its job closed with the events in their order."""
    site.pages["/a.png"] = data = png()
    account_id, digest = await fetching.account(), sha256(data).hexdigest()
    await fetching.database.run(publish, FACTS)
    key = cache_key(Options(), account_id, digest, fetching.settings, FACTS)
    body = compress(b"{}")
    await fetching.database.run(
        insert_result, account_id=account_id, key=key, body=body, model_version="none", reusable=True, units=1
    )
    [image] = await fetching.fetch(site.url("/a.png"))
    assert (image.state, image.cached, image.model_version) == ("completed", True, "none")
    assert await fetching.events(image.job_id) == ["job.started", "image.completed", "job.completed"]
    assert await fetching.column("SELECT size_bytes FROM usage_entry WHERE cached") == [len(data)]
    assert fetching.told == {}
    [again] = await fetching.fetch(site.url("/a.png"), cache="refresh")
    assert again.state == "queued"


async def test_the_same_bytes_are_stored_once(fetching: Fetching, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many URLs lead to them."""
    written, write = [], fetching.storage.write_async

    async def count(digest: str, data: bytes) -> None:
        written.append(digest)
        await write(digest, data)

    monkeypatch.setattr(fetching.storage, "write_async", count)
    site.pages["/a.png"] = site.pages["/b.png"] = png()
    [first] = await fetching.fetch(site.url("/a.png"))
    [second] = await fetching.fetch(site.url("/b.png"))
    assert first.sha256 == second.sha256
    assert written == [first.sha256]
    assert await fetching.column("SELECT count(*) FROM blob") == [1]


async def test_limits_on_pixels_and_frames_hold_for_fetched_images(fetching: Fetching, site: Site) -> None:
    """As for uploads; all frames count where all are read."""
    fetching.settings = fetching.settings.model_copy(update={"max_image_pixels": 1000, "max_frames": 3})
    site.pages |= {"/big": png(size=(100, 100)), "/many": gif(4), "/three": gif(3)}
    big, many, three = await fetching.fetch(site.url("/big"), site.url("/many"), site.url("/three"), frames="all")
    assert (big.error_code, many.error_code) == ("image_too_large", "too_many_frames")
    assert (three.state, three.units) == ("queued", 3)


async def test_frames_that_were_not_foreseen_count_for_the_quota(fetching: Fetching, site: Site) -> None:
    """Accepted as one image, an animation of three is more than the plan has left; the image says so."""
    await fetching.column(
        "INSERT INTO plan (plan_id, currency, price_image, price_cached, price_vlm, monthly_images, rates) "
        "VALUES ('small', 'EUR', 0.01, 0.001, 0, 3, '{}')"
    )
    await fetching.account("small", plan_id="small")
    site.pages |= {"/one": png(), "/three": gif(3)}
    job_id = await fetching.submit(site.url("/one"), site.url("/three"), account="small", frames="all")
    await (await fetching.engine()).fetch_due()
    one, three = await fetching.images(job_id)
    assert one.state == "queued"
    assert (three.state, three.error_code) == ("failed", "quota_exceeded")


async def test_a_store_that_is_away_costs_no_try(
    fetching: Fetching, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image is fetched again a little later."""

    async def fail(*_: object) -> None:
        raise Unavailable("The object store can't be reached.")

    monkeypatch.setattr(fetching.storage, "write_async", fail)
    site.pages["/a.png"] = png()
    [image] = await fetching.fetch(site.url("/a.png"))
    assert (image.state, image.fetch_attempts, image.worker_id) == ("fetching", 0, None)
    assert image.fetch_at is not None
    [later] = await fetching.column("SELECT fetch_at > now() FROM image")
    assert later


@pytest.mark.usefixtures("at_once")
async def test_a_fault_of_ours_ends_the_image_too(
    fetching: Fetching, site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After three tries; the log names the place, and nothing of the URL's query."""

    async def fail(_: object, url: str, *__: object) -> None:
        raise RuntimeError(f"nobody thought of {url}")

    monkeypatch.setattr("arachne.fetching.engine.take_in", lambda _, fetch, *__: fail(_, fetch.url))
    site.pages["/a.png"] = png()
    [image] = await fetching.fetch(site.url("/a.png?q=secret"))
    assert (image.state, image.error_code, image.fetch_attempts) == ("failed", "fetch_failed", 3)
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


async def test_options_of_another_version_fail_the_image_and_no_other(fetching: Fetching, site: Site) -> None:
    """A worker that doesn't know an option says so."""
    site.pages["/a.png"] = png()
    job_id = await fetching.submit(site.url("/a.png"))
    strange = json.dumps({"invented": True})
    await fetching.column("UPDATE job SET options = CAST(:it AS jsonb)", it=strange)
    await (await fetching.engine()).fetch_due()
    [image] = await fetching.images(job_id)
    assert (image.state, image.error_code) == ("failed", "fetch_failed")


async def test_the_setting_opens_what_it_names(fetching: Fetching, site: Site, settings: Settings) -> None:
    """Without IMAGE_EGRESS_ALLOW nothing of this machine is called, with it just what it names."""
    site.pages["/a.png"] = png()
    named = [f"127.0.0.1:{site.port}"]
    for allow, state in (
        ({}, "failed"),
        ({"webhook_egress_allow": named}, "failed"),
        ({"image_egress_allow": named}, "queued"),
    ):
        fetching.settings = settings.model_copy(update={"egress_allow_http": True, **allow})
        job_id = await fetching.submit(site.url("/a.png"))
        await (await fetching.engine(policy=None)).fetch_due()
        [image] = await fetching.images(job_id)
        assert image.state == state
    assert site.asked["/a.png"] == 1


async def test_an_image_fetched_for_an_erased_job_is_not_kept(
    fetching: Fetching, site: Site, database: Database
) -> None:
    """The job goes while its image is on the way: its bytes leave the store again, and nothing is on record."""
    data = png()

    async def answer(_: web.Request) -> web.Response:
        await fetching.database.run(request_erasure, await fetching.account(), job_id)
        await asyncio.to_thread(erase_job, database, fetching.storage, fetching.settings, job_id)
        return web.Response(body=data)

    site.pages["/a.png"] = answer
    job_id = await fetching.submit(site.url("/a.png"))
    await (await fetching.engine()).fetch_due()
    assert site.asked == {"/a.png": 1}
    assert await fetching.column("SELECT count(*) FROM blob") == [0]
    assert not await fetching.storage.has_async(sha256(data).hexdigest())
    assert await fetching.images(job_id) == []
    assert (await fetching.job(job_id)).state == "cancelled"
