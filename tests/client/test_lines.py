"""Bad lines and busy services: each image is read once, and whoever waits gets everything."""

import asyncio

import pytest

from arachne.client import Extracted
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


async def test_nothing_is_left_of_a_call_that_is_cancelled(new_client: NewClient) -> None:
    """No task goes on."""
    before = asyncio.all_tasks()
    client = new_client()
    call = asyncio.create_task(client.extract(pictures(2)))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await client.close()
    left = {
        task for task in asyncio.all_tasks() - before if "Wire" not in repr(task) and "arachne/client" in repr(task)
    }
    assert left == set()
