"""Jobs: list, show, wait, cancel, erase."""

from contextlib import suppress

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from arachne.cursors import decode_cursor
from arachne.errors import Gone, MalformedRequest
from arachne.http import bodies
from arachne.http.answers import answer_poll, to_json, to_spliced_json
from arachne.http.exchange import caller_of
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.http.turn import turn
from arachne.http.waiting import MAX_WAIT_S
from arachne.jobs.cancel import cancel
from arachne.jobs.erasure import GOES_ON, erase_job, request_erasure, told_first
from arachne.jobs.views import find_job, list_jobs, show_job
from arachne.schemas.job import AnyJobView
from arachne.schemas.listing import JobList
from arachne.schemas.queries import JobQuery, JobsQuery

ERASE_WAIT_S = 30.0  # while others erase; the store may have stopped answering


async def show_jobs(request: Request, parts: Parts) -> Response:
    """The account's jobs, newest first."""
    query = bodies.read_query(request.query_params, JobsQuery)
    page = await parts.database.run(
        list_jobs,
        caller_of(request).account_id,
        status=query.status,
        created_after=query.created_after,
        limit=query.limit,
        cursor=query.cursor,
    )
    return to_json(JobList(data=page.data, next_cursor=page.next_cursor).model_dump(mode="json"))


async def show_one(request: Request, parts: Parts) -> Response:
    """The job, perhaps held until it has moved on."""
    query = bodies.read_query(request.query_params, JobQuery)
    return await answer_poll(
        request,
        parts,
        caller_of(request),
        request.path_params["job_id"],
        wait_s=min(query.wait, MAX_WAIT_S),
        with_results=query.include == "results",
        after_index=_after_index(query.images_cursor),
    )


async def cancel_one(request: Request, parts: Parts) -> Response:
    """The job, all that was not finished cancelled."""
    account_id, job_id = caller_of(request).account_id, request.path_params["job_id"]
    base_url, tombstone_s = parts.settings.base_url, parts.settings.tombstone_s
    await parts.database.run(find_job, account_id, job_id, tombstone_s)
    await cancel(parts.database, job_id, parts.settings)
    shown = await parts.database.run(show_job, account_id, job_id, base_url=base_url, tombstone_s=tombstone_s)
    return await to_spliced_json(shown)


async def delete_one(request: Request, parts: Parts) -> Response:
    """Nothing; the job and all that came of it are gone."""
    account_id, job_id = caller_of(request).account_id, request.path_params["job_id"]
    with told_first("Nothing was changed; send this again."):
        with suppress(Gone):  # deleting twice, or what has expired, is no fault
            await parts.database.run(find_job, account_id, job_id, parts.settings.tombstone_s)
        await parts.database.run(request_erasure, account_id, job_id)
    async with turn(parts.erasing, ERASE_WAIT_S, f"{GOES_ON}. Others are being erased."):
        await anyio.to_thread.run_sync(erase_job, parts.records, parts.storage, parts.settings, job_id)
    return Response(status_code=204)


def _after_index(cursor: str | None) -> int | None:
    key = decode_cursor("images", cursor)
    if key is None:
        return None
    if not key.isdigit() or len(key) > 6:
        raise MalformedRequest("This is no cursor of a job's images. Pass on `images_next_cursor` as it came.")
    return int(key)


RESOURCES = (
    Resource(
        "/api/extract/image-jobs",
        {
            "GET": Operation(
                show_jobs,
                "Jobs, newest first",
                scope="vision:read",
                policy="reads",
                answers={200: Answer("A page of jobs", JobList)},
                query=JobsQuery,
            )
        },
    ),
    Resource(
        "/api/extract/image-jobs/{job_id}",
        {
            "GET": Operation(
                show_one,
                "One job with its images",
                scope="vision:read",
                policy="reads",
                answers={
                    200: Answer("The job", AnyJobView, headers=("ETag", "Retry-After")),
                    304: Answer("The client has it already", headers=("ETag", "Retry-After")),
                },
                query=JobQuery,
                errors=(410,),
                headers=("If-None-Match",),
            ),
            "DELETE": Operation(
                delete_one,
                "Cancel the job and erase it: its images, results, events and all else that no other job needs",
                scope="vision:write",
                policy="other",
                answers={204: Answer("Nothing of it is left; the job answers 410 from now on")},
            ),
        },
    ),
    Resource(
        "/api/extract/image-jobs/{job_id}/cancel",
        {
            "POST": Operation(
                cancel_one,
                "Cancel what is not finished",
                scope="vision:write",
                policy="other",
                answers={200: Answer("The job", AnyJobView)},
                errors=(410,),
            )
        },
    ),
)
