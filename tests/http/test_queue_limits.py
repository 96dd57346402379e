"""A full queue, a used-up quota and an absent store refuse before anything is written."""

import asyncio
import shutil

from tests.http.conftest import Service, Start
from tests.http.pictures import png
from tests.http.sending import MANY, ONE, send
from tests.http.worker import Worker


def pictures(number: int, shade: int = 0) -> list[tuple[str, tuple[str, bytes]]]:
    return [("files", (f"{n}.png", png((n, shade, 0)))) for n in range(number)]


async def test_an_account_fills_a_quarter_of_the_queue_and_others_still_get_in(start: Start) -> None:
    async with start(max_queue_depth=8) as service:
        await service.account()
        await service.account("other")
        assert (await send(service, MANY, files=pictures(2))).status_code == 202
        full = await send(service, ONE, files={"file": ("a.png", png((9, 9, 9)))})
        assert (full.status_code, full.json()["code"]) == (429, "account_queue_full")
        assert int(full.headers["retry-after"]) >= 1
        other = await service.client.post(
            ONE, headers=await service.headers("other"), files={"file": ("a.png", png((9, 9, 9)))}
        )
        assert other.status_code == 202


async def test_more_than_the_queue_holds_can_never_pass(start: Start) -> None:
    async with start(max_queue_depth=4) as service:
        await service.account()
        refused = await send(service, MANY, files=pictures(5))
        assert (refused.status_code, refused.json()["code"]) == (413, "too_many_images")
        assert (await send(service, MANY, files=pictures(4))).status_code == 202


async def test_what_comes_at_once_is_counted_together(start: Start) -> None:
    """Neither one account by many requests, nor many accounts by one each, come past the limits."""
    async with start(max_queue_depth=8) as service:
        await service.account()
        answers = await asyncio.gather(*(send(service, MANY, files=pictures(2, shade)) for shade in range(8)))
        assert sorted(answer.status_code for answer in answers) == [202] + [429] * 7
        others = [str(number) for number in range(9)]
        for name in others:
            await service.account(name)
        heads = {name: await service.headers(name) for name in others}

        async def post(name: str, number: int) -> int:
            return (await service.client.post(MANY, headers=heads[name], files=pictures(number))).status_code

        assert [await post(name, 1) for name in others[:3]] == [202] * 3
        assert set(await asyncio.gather(*(post(name, 2) for name in others[3:]))) <= {202, 503}
        assert await service.count("image") <= 8


async def test_over_the_depth_only_those_above_their_share_are_refused(start: Start) -> None:
    async with start(max_queue_depth=4) as service:
        for name in ("acme", "b", "c", "d", "e"):
            await service.account(name)
        for name in ("acme", "b", "c", "d"):
            files = {"file": ("a.png", png())}
            assert (await service.client.post(ONE, headers=await service.headers(name), files=files)).status_code == 202
        refused = await service.client.post(ONE, headers=await service.headers("e"), files=files)
        assert (refused.status_code, refused.json()["code"]) == (503, "queue_full")
        assert int(refused.headers["retry-after"]) >= 1


async def test_cached_images_need_no_room(start: Start) -> None:
    async with start(max_queue_depth=4) as service:
        await service.account()
        worker = await Worker(service).start()
        await send(service, ONE, files={"file": ("a.png", png())})
        await worker.read_all()
        assert (await send(service, ONE, files={"file": ("b.png", png((1, 1, 1)))})).status_code == 202
        assert (await send(service, ONE, files={"file": ("a.png", png())})).status_code == 200


async def test_a_used_up_quota_is_403(service: Service) -> None:
    worker = await Worker(service).start()
    await service.execute("UPDATE plan SET monthly_images = 2")
    assert (await send(service, MANY, files=pictures(2))).status_code == 202
    await worker.read_all()
    refused = await send(service, ONE, files={"file": ("a.png", png((9, 9, 9)))})
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")


async def test_with_the_store_away_nothing_is_half_done(service: Service) -> None:
    folder = service.settings.data_dir / "storage"
    shutil.rmtree(folder)
    folder.write_bytes(b"no folder")
    refused = await send(service, ONE, files={"file": ("a.png", png())})
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert int(refused.headers["retry-after"]) >= 1
    ready = await service.client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
    assert await service.count("job") == 0
    assert (
        await service.count("blob") == 1
    )  # the original is on record before it is stored, so that the sweeper finds it
    folder.unlink()
    folder.mkdir()
    assert (await send(service, ONE, files={"file": ("a.png", png())})).status_code == 202
