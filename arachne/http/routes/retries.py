"""`POST …/image-jobs/{job_id}/retry`: what went wrong once more, as a new job."""

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from arachne.errors import (
    EgressBlocked,
    Gone,
    InvalidUrl,
    LanguageMissing,
    NotFinished,
    OptionsConflict,
    OriginalsErased,
)
from arachne.http import bodies
from arachne.http.admission import check_webhook, count_images
from arachne.http.entry import MADE_HEADERS, MAKING, Held, Made, make_job, make_once
from arachne.http.exchange import caller_of, exchange_of
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.jobs.idempotency import Remembered, Reservation, compute_fingerprint
from arachne.jobs.retry import Retry, make_room, plan_retry
from arachne.jobs.submit import NewJob
from arachne.schemas.job import AnyJobView
from arachne.schemas.submission import RetryRequest


async def retry_one(request: Request, parts: Parts) -> Response:
    """The new job."""

    async def make(held: Held) -> Made | None:
        wanted = await bodies.read_model(request, RetryRequest)
        fingerprint = compute_fingerprint(request.url.path, [], {"include": sorted(set(wanted.include))})
        if isinstance(held, Remembered):
            held.check(fingerprint)
            return None
        new = await _plan(request, parts, wanted)
        if isinstance(held, Reservation):
            new = replace(new, reservation=held, fingerprint=fingerprint)
        try:
            return await parts.database.run(make_job, new, parts)
        except OriginalsErased:
            raise _gone() from None

    return await make_once(request, parts, make)


async def _plan(request: Request, parts: Parts, wanted: RetryRequest) -> NewJob:
    caller, settings, run = caller_of(request), parts.settings, parts.database.run
    job_id = request.path_params["job_id"]
    found = await run(plan_retry, caller.account_id, job_id, set(wanted.include), settings)
    webhook = await check_webhook(found.webhook, settings)
    await count_images(request, parts, caller, found.images)
    await run(make_room, caller.account_id, found.images, settings)
    await _require_stored(parts, found)
    return NewJob(
        account_id=caller.account_id,
        subject=caller.subject,
        single=found.single,
        options=found.options,
        images=found.images,
        metadata=found.metadata,
        webhook=webhook,
        request_id=exchange_of(request.scope).request_id,
        traceparent=exchange_of(request.scope).traceparent,
        retry_of=found.job_id,
    )


async def _require_stored(parts: Parts, found: Retry) -> None:
    """Nothing, where all originals are in the store.

    Raises:
        Gone: one is not.
        Unavailable: the store can't be reached.
    """
    for digest in {image.sha256 for image in found.images}:
        if digest is not None and not await parts.storage.has_async(digest):
            raise _gone()


def _gone() -> Gone:
    return Gone("The originals are no longer kept. Send the images again.")


RESOURCES = (
    Resource(
        "/api/extract/image-jobs/{job_id}/retry",
        {
            "POST": Operation(
                retry_one,
                "Try a finished job's failed, cancelled or degraded images again, as a new job",
                scope="vision:write",
                policy="vision",
                answers={
                    200: Answer(
                        "The new job, finished: all its images were cached, or done within the wait",
                        AnyJobView,
                        headers=("Location", *MADE_HEADERS),
                    ),
                    202: Answer(
                        "The new job, accepted",
                        AnyJobView,
                        headers=("Location", "Retry-After", *MADE_HEADERS),
                    ),
                },
                body=RetryRequest,
                errors=(409, 410),
                raises=(*MAKING, NotFinished, OptionsConflict, LanguageMissing, InvalidUrl, EgressBlocked),
                headers=("Idempotency-Key", "Prefer"),
                example={"include": ["failed"]},
            )
        },
    ),
)
