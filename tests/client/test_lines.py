"""Bad lines and busy services: each image is read once, and whoever waits gets everything."""

import asyncio
from pathlib import Path

import httpx2
import pytest

from arachne.client import AsyncClient, Extracted, UnexpectedAnswer
from tests.client.conftest import NewClient
from tests.client.wire import Wire
from tests.http.conftest import Service
from tests.http.pictures import png

pytestmark = pytest.mark.usefixtures("reading")


def pictures(number: int) -> list[bytes]:
    return [png((number, index, 7)) for index in range(number)]


def texts(found: list[Extracted]) -> list[str]:
    return [image.result.text or "" if image.result else str(image.error) for image in found]


async def test_an_answer_that_is_lost_makes_no_second_job(new_client: NewClient, wire: Wire, live: Service) -> None:
    """The line breaks when the job is accepted and its client doesn't know: the repeat answers with the same job."""
    wire.holds = lambda request: wire.cuts == 0 and request.startswith("POST /api/extract")
    held = asyncio.create_task(new_client().extract(pictures(3)))
    while await live.count("job") < 1:  # noqa: ASYNC110  # the database has no event for this
        await asyncio.sleep(0.02)
    wire.cut()
    found = await held
    assert [image.index for image in found] == [0, 1, 2]
    assert all(image.result for image in found)
    assert (await live.count("job"), await live.count("usage_entry")) == (1, 3)


async def test_one_bad_image_and_one_missing_file_among_many(new_client: NewClient) -> None:
    """Each fails alone, with the service's own code or the client's, and keeps its place."""
    found = await new_client().extract([png(), b"no image", "no/such/file.png", png((1, 2, 3))])
    assert [image.error.code if image.error else None for image in found] == [
        None, "unsupported_image", "source_unreadable", None,
    ]  # fmt: skip
    assert [image.name for image in found] == ["image-1", "image-2", "no/such/file.png", "image-4"]


async def test_a_file_that_never_stays_as_it_is_fails_alone(new_client: NewClient, tmp_path: Path) -> None:
    """Its size is not what is read of it; the others, sent beside it, are read."""
    (tmp_path / "steady.png").write_bytes(png())
    found = await new_client().extract([tmp_path / "steady.png", "/proc/self/status", png((1, 2, 3))])
    assert [image.error.code if image.error else None for image in found] == [None, "source_unreadable", None]


async def test_a_file_that_changes_once_is_sent_as_it_is_then(tmp_path: Path) -> None:
    """It shrinks when the request has begun: that one is given up, and made again."""
    path, sent = tmp_path / "a.png", list[bytes]()
    path.write_bytes(bytes(300_000))

    class Shrinking(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if request.url.path != "/api/extract/images":
                return httpx2.Response(200, json={"access_token": "t", "expires_in": 600, "token_type": "Bearer"})
            path.write_bytes(b"now short")
            sent.append(await request.aread())
            assert len(sent[-1]) == int(request.headers["Content-Length"])
            return httpx2.Response(403)

    async with AsyncClient("http://x", client_id="c", client_secret="s", transport=Shrinking()) as client:
        with pytest.raises(UnexpectedAnswer):
            await client.submit([path])
    assert len(sent) == 1
    assert b"now short" in sent[0]


async def test_a_call_of_bad_images_alone_does_not_raise(new_client: NewClient) -> None:
    """The service refuses such a batch as a whole; each image is told why."""
    found = await new_client().extract([b"no image", b"GIF89a"])
    assert [image.error.code if image.error else None for image in found] == ["unsupported_image"] * 2


async def test_two_clients_with_one_key_share_their_jobs(new_client: NewClient, live: Service) -> None:
    """At once, so that one finds the other's submission still being accepted; nothing is read twice."""
    calls = (new_client().extract(pictures(4), key="one") for _ in range(2))
    first, second = await asyncio.gather(*calls)
    assert [image.job_id for image in first] == [image.job_id for image in second]
    assert texts(first) == texts(second)
    assert await live.count("usage_entry") == 4
