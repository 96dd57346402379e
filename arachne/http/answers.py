"""The job resource as an answer: at once, or held until something has happened."""

import hashlib
import json

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from arachne.http.departure import stay
from arachne.http.exchange import Caller
from arachne.http.parts import Parts
from arachne.http.preferences import matches_etag
from arachne.http.splicing import dump, splice
from arachne.http.waiting import Stand
from arachne.jobs.views import show_job

RETRY_AFTER_S = 1


def to_json(value: object, status: int = 200) -> Response:
    """A JSON answer without stored results in it."""
    return Response(dump(value).encode("utf-8", "replace"), status, media_type="application/json")


async def to_spliced_json(value: object, status: int = 200) -> Response:
    """A JSON answer with stored results in it; they may be megabytes, so a thread puts it together."""
    return Response(await anyio.to_thread.run_sync(splice, value), status, media_type="application/json")


async def answer_job(
    parts: Parts,
    caller: Caller,
    job_id: str,
    *,
    receive: Receive,
    wait_s: int | None,
    shown: dict[str, object] | None = None,
) -> Response:
    """The answer to a submission: 200 with a finished job, else 202; held up to `wait_s` for its end.

    `shown` is the job resource, where it is known already that the job is finished.
    """
    if shown is None:
        if wait_s:
            await stay(receive, parts.watcher.wait(job_id, lambda stand: stand.finished, wait_s))
        base_url, tombstone_s = parts.settings.base_url, parts.settings.tombstone_s
        shown = await parts.database.run(
            show_job, caller.account_id, job_id, base_url=base_url, tombstone_s=tombstone_s
        )
    response = await to_spliced_json(shown, 200 if shown["finished"] else 202)
    response.headers["Location"] = f"{parts.settings.base_url}/api/extract/image-jobs/{job_id}"
    if not shown["finished"]:
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    if wait_s is not None:
        response.headers["Preference-Applied"] = f"wait={wait_s}"
    return response


async def answer_poll(
    request: Request,
    parts: Parts,
    caller: Caller,
    job_id: str,
    *,
    wait_s: int = 0,
    with_results: bool = False,
    after_index: int | None = None,
) -> Response:
    """The job resource; 304 where the client has it already, held up to `wait_s` until it differs."""
    view = f"{with_results} {after_index}"
    if wait_s:
        await _await_change(request, parts, caller, job_id, view=view, wait_s=wait_s)
        await parts.authenticator.recheck(caller)
    shown = await parts.database.run(
        show_job,
        caller.account_id,
        job_id,
        base_url=parts.settings.base_url,
        tombstone_s=parts.settings.tombstone_s,
        with_results=with_results,
        after_index=after_index,
    )
    etag = _etag(job_id, _stand_of(shown), view)
    response = Response(status_code=304) if matches_etag(request.headers, etag) else await to_spliced_json(shown)
    response.headers["ETag"] = etag
    response.headers["Cache-Control"] = "private, no-cache"
    if not shown["finished"]:
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


async def _await_change(request: Request, parts: Parts, caller: Caller, job_id: str, *, view: str, wait_s: int) -> None:
    stand = (await parts.watcher.look_up(caller.account_id, job_id, parts.settings.tombstone_s)).stand
    assert stand is not None
    known = matches_etag(request.headers, _etag(job_id, stand, view)) or "if-none-match" not in request.headers
    if known and not stand.finished:
        await stay(request.receive, parts.watcher.wait(job_id, lambda now: now != stand, wait_s))


def _stand_of(shown: dict[str, object]) -> Stand:
    progress = shown["progress"]
    assert isinstance(progress, dict)
    return Stand(str(shown["status"]), *(int(progress[name]) for name in Stand._fields[1:]))


def _etag(job_id: str, stand: Stand, view: str) -> str:
    """Weak: it tells status and progress apart, not the queue's movements."""
    digest = hashlib.sha256(json.dumps([job_id, stand, view]).encode()).hexdigest()
    return f'W/"{digest[:24]}"'
