"""Results of jobs, fetched as soon as they are there."""

from collections.abc import AsyncGenerator
from collections.abc import Set as AbstractSet
from contextlib import aclosing

from arachne.client.connection import Call, Connection, Params
from arachne.client.paths import job_path
from arachne.client.refusals import read_model
from arachne.client.watching import DONE, Watcher
from arachne.schemas.job import ImageView, JobView

_FEW = 3  # images that are asked for one by one; more come by pages


async def gather(connection: Connection, watcher: Watcher, job: JobView) -> AsyncGenerator[ImageView, None]:
    """Each image of the job with its result, once, as soon as it is done.

    Raises:
        ArachneError: they can't be had.
    """
    had: set[int] = set()
    async with aclosing(watcher.follow(job)) as sights:
        async for sight in sights:
            missing = set(range(job.progress.total)) - had if sight.finished else sight.done - had
            async with aclosing(_fetch(connection, job.job_id, missing)) as images:
                async for image in images:
                    had.add(image.index)
                    yield image


async def pages(connection: Connection, job_id: str) -> AsyncGenerator[ImageView, None]:
    """Each image of the job as it stands, with its result where it has one.

    Raises:
        ArachneError: as ever.
    """
    cursor: str | None = None
    while True:
        params: Params = {"include": "results", **({"images_cursor": cursor} if cursor else {})}
        job = read_model(JobView, await connection.send(Call("GET", job_path(job_id), params=params)))
        for image in job.images:
            yield image
        cursor = job.images_next_cursor
        if cursor is None:
            return


async def _fetch(connection: Connection, job_id: str, wanted: AbstractSet[int]) -> AsyncGenerator[ImageView, None]:
    if len(wanted) > _FEW:
        async with aclosing(pages(connection, job_id)) as images:
            async for image in images:
                if image.index in wanted and image.status in DONE:
                    yield image
        return
    for index in sorted(wanted):
        yield read_model(ImageView, await connection.send(Call("GET", f"{job_path(job_id)}/images/{index}")))
