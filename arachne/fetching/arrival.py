"""What was downloaded becomes an image: looked at by its bytes, stored under their hash, with the key of its result."""

import asyncio
from dataclasses import replace

from pydantic import ValidationError

from arachne.errors import FetchFailed, ImageError
from arachne.fetching.download import Download
from arachne.fetching.means import Means
from arachne.images import admit, sniff
from arachne.jobs.erasure import is_erased
from arachne.jobs.fetch_claim import Fetch
from arachne.jobs.publications import published
from arachne.jobs.retention import sweep_original_async
from arachne.jobs.submit import NewImage, reserve_blobs
from arachne.reading import cache_key
from arachne.schemas.options import Options
from arachne.settings import Settings
from arachne.spool import Spool


async def take_in(means: Means, fetch: Fetch, found: Download, spool: Spool) -> NewImage:
    """The image, in the store; with its `error` where it may not come in. It is whole in memory for a while.

    Raises:
        FetchFailed: the job's options are another version's.
        Unavailable: it can't be stored.
    """
    options = _read_options(fetch)
    data = await asyncio.to_thread(spool.read, 0, found.size_bytes)
    image = await asyncio.to_thread(_look_at, data, found, options, means.settings)
    if image.error is not None:
        return image
    known = await means.database.run(reserve_blobs, [image])
    if not known or not await means.storage.has_async(found.sha256):
        await means.storage.write_async(found.sha256, data)
    facts = await means.database.run(published)
    if facts is None or options.cache != "use":
        return image
    return replace(image, key=cache_key(options, fetch.account_id, found.sha256, means.settings, facts))


async def leave_nothing(means: Means, fetch: Fetch, image: NewImage) -> None:
    """Nothing; where the image's job was erased while it was fetched, its original is not kept after all.

    Raises:
        Unavailable: the store or the database can't be reached.
    """
    if image.error is None and image.sha256 and await means.database.run(is_erased, fetch.job_id):
        await sweep_original_async(means.database, means.storage, means.settings, image.sha256)


def _read_options(fetch: Fetch) -> Options:
    try:
        return Options.model_validate(fetch.options)
    except ValidationError as error:
        raise FetchFailed(
            f"This version can't read the job's options ({error.error_count()} faults). Submit the image again."
        ) from None


def _look_at(data: bytes, found: Download, options: Options, settings: Settings) -> NewImage:
    """What the bytes are, or why they may not come in."""
    known = NewImage(None, found.sha256, None, found.size_bytes)
    try:
        header = sniff(data)
        admit(
            header,
            max_bytes=settings.max_image_bytes,
            size_bytes=found.size_bytes,
            max_pixels=settings.max_image_pixels,
            max_frames=settings.max_frames,
            frames=options.frames,
        )
    except ImageError as error:
        return replace(known, error=error)
    return replace(known, format=header.format, units=header.frames if options.frames == "all" else 1)
