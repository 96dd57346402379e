"""This machine's cache file saves reading results from afar, and never answers by itself."""

import pytest
from sqlalchemy import text

from arachne.cache import CacheKey, VisionCache
from arachne.database import Transaction
from tests.http.conftest import Service
from tests.http.pictures import png
from tests.http.sending import MANY, ONE, send
from tests.http.worker import Worker


def machine_cache(service: Service) -> VisionCache:
    """The cache file of the API's machine."""
    found: VisionCache = service.app.starlette.state.parts.cache
    return found


async def nearby(service: Service) -> list[tuple[str, str, int]]:
    """Result id, text and hits of what the file holds."""
    cache = machine_cache(service)
    cache.flush()
    return [(row.result_id, row.result_json, row.hits) for rows in cache.rows() for row in rows]


async def test_erased_result_is_not_answered_from_this_machines_file(service: Service) -> None:
    """A first-level hit counts only while its second-level row exists."""
    worker = await Worker(service).start()
    await send(service, ONE, files={"file": ("a.png", png())})
    await worker.read_all()
    assert (await send(service, ONE, files={"file": ("a.png", png())})).json()["cached"] is True
    assert len(await nearby(service)) == 1

    def erase(transaction: Transaction) -> None:
        transaction.session.execute(text("UPDATE image SET result_id = NULL"))
        transaction.session.execute(text("DELETE FROM image_result"))

    await service.database.run(erase)
    again = await send(service, ONE, files={"file": ("a.png", png())})
    assert (again.status_code, again.json()["cached"]) == (202, False)


async def test_replaced_result_is_not_answered_from_this_machines_file(service: Service) -> None:
    """The file still has the former text under the key; the id tells that it is not the one that counts."""
    worker = await Worker(service).start()
    await send(service, ONE, files={"file": ("a.png", png())})
    await worker.read_all()
    await send(service, ONE, files={"file": ("a.png", png())})
    ((former, told, _),) = await nearby(service)
    cache = machine_cache(service)
    (key,) = [row.key for rows in cache.rows() for row in rows]
    cache.put(key, former, told.replace("text of", "lie of").encode())
    await send(service, ONE, files={"file": ("a.png", png())}, params={"cache": "refresh"})
    await worker.read_all()
    again = (await send(service, ONE, files={"file": ("a.png", png())})).json()
    assert again["cached"] is True
    assert again["result"]["text"].startswith("text of")
    assert [result_id for result_id, _, _ in await nearby(service)] != [former]


@pytest.mark.parametrize("mode", ["refresh", "bypass"])
async def test_no_other_mode_is_answered_or_kept_nearby(service: Service, mode: str) -> None:
    worker = await Worker(service).start()
    await send(service, ONE, files={"file": ("a.png", png())})
    await worker.read_all()
    other = await send(service, ONE, files={"file": ("a.png", png())}, params={"cache": mode})
    assert (other.status_code, await nearby(service)) == (202, [])


async def test_hits_are_counted_for_single_images_and_for_batches(service: Service) -> None:
    """The first repeat puts the result here; each later one is a hit, and none is a write of its own."""
    worker = await Worker(service).start()
    await send(service, ONE, files={"file": ("a.png", png())})
    await worker.read_all()
    for _ in range(3):
        await send(service, ONE, files={"file": ("a.png", png())})
    files = [("files", (f"{n}.png", png())) for n in range(4)]
    assert (await send(service, MANY, files=files)).json()["progress"]["cached"] == 4
    ((_, _, hits),) = await nearby(service)
    assert hits == 2 + 4


async def test_probe_of_readyz_is_no_result(service: Service) -> None:
    """What is put to see whether the file works is neither counted nor carried."""
    await service.client.get("/readyz")
    cache = machine_cache(service)
    assert cache.get(CacheKey("probe", "", "", "", "")) is not None
    assert (await nearby(service), cache.stats().entries) == ([], 0)
    assert cache.drop_unless(lambda _: set()) == 0
