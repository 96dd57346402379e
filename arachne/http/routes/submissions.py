"""`POST /api/extract/image` and `/images`: a submission becomes a job."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from arachne.bodies import StoredJson
from arachne.database import Transaction
from arachne.errors import InvalidOptions, Unavailable
from arachne.http import bodies
from arachne.http.admission import Admitted, admit_all, look_at_images, read_terms
from arachne.http.answers import answer_job
from arachne.http.exchange import Caller, caller_of, exchange_of
from arachne.http.intake import FORM, Intake, read_intake
from arachne.http.nearby import count_hits, keep_nearby, read_nearby
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.http.preferences import read_wait
from arachne.http.throttle import throttle_new_job
from arachne.jobs.idempotency import RENEW_S, Remembered, Reservation, compute_fingerprint, release, renew, reserve
from arachne.jobs.submit import NewJob, Submitted, submit
from arachne.jobs.views import show_job
from arachne.schemas.job import JobView, SingleJobView
from arachne.schemas.options import Options
from arachne.schemas.submission import BatchSubmission, SingleSubmission, SubmissionTerms
from arachne.settings import Settings

log = logging.getLogger(__name__)
MAX_KEY = 255
_KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
_LISTS = ("stages", "languages")
REPLAYED = "Idempotent-Replayed"
Made = tuple[Submitted, dict[str, object] | None]
"""A job just made, and its resource where it is finished already."""


async def submit_image(request: Request, parts: Parts) -> Response:
    """One image."""
    return await _serve(request, parts, single=True)


async def submit_images(request: Request, parts: Parts) -> Response:
    """A batch of images."""
    return await _serve(request, parts, single=False)


async def _serve(request: Request, parts: Parts, *, single: bool) -> Response:
    caller = caller_of(request)
    held = await _reserve(request, parts, caller)
    try:
        if not isinstance(held, Remembered):
            await throttle_new_job(request, parts, caller)
        async with _renewed(parts, held):
            submitted = await _take_in(request, parts, caller, held, single=single)
    except BaseException:
        await _give_up(parts, held)
        raise
    if submitted is None:
        wait_s, receive = read_wait(request.headers), request.receive
        response = await answer_job(parts, caller, _remembered_id(held), receive=receive, wait_s=wait_s)
        response.headers[REPLAYED] = "true"
        return response
    job, shown = submitted
    if job.waiting:
        parts.waker.wake_gpu()
    if job.fetching:
        parts.waker.wake_fetches()
    wait_s, receive = read_wait(request.headers), request.receive
    return await answer_job(parts, caller, job.job_id, receive=receive, wait_s=wait_s, shown=shown)


async def _take_in(
    request: Request, parts: Parts, caller: Caller, held: Reservation | Remembered | None, *, single: bool
) -> Made | None:
    with parts.uploads.place(caller.account_id), ExitStack() as stack:
        intake = await read_intake(request, parts.settings, parts.loading, single=single, stack=stack)
        _add_query_options(request, intake, single=single)
        return await _accept(request, parts, caller, intake, held, single=single)


@asynccontextmanager
async def _renewed(parts: Parts, held: Reservation | Remembered | None) -> AsyncIterator[None]:
    """The key stays held for as long as the request takes, and no longer than a lease after this process."""
    if not isinstance(held, Reservation):
        yield
        return

    async def keep() -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await parts.database.run(renew, held)
            except Exception:  # the next try may pass; if none does, the fence tells at the end
                log.exception("an idempotency key's lease could not be renewed")

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _give_up(parts: Parts, held: Reservation | Remembered | None) -> None:
    """Free the key for the next request; where that fails, its lease ends by itself."""
    if isinstance(held, Reservation):
        with suppress(Unavailable):
            await parts.database.run(release, held)


async def _accept(
    request: Request,
    parts: Parts,
    caller: Caller,
    intake: Intake,
    held: Reservation | Remembered | None,
    *,
    single: bool,
) -> Made | None:
    """The job made; None where an earlier one answers."""
    if isinstance(held, Remembered):
        held.check(_fingerprint(request, intake, read_terms(intake)))
        return None
    await look_at_images(parts, intake, single=single)
    terms = read_terms(intake)
    admitted = await admit_all(request, parts, caller, intake, terms, single=single)
    new = _new_job(request, caller, admitted, single=single)
    if isinstance(held, Reservation):
        new = _with_reservation(new, held, _fingerprint(request, intake, terms))
    nearby = await read_nearby(parts, admitted.images[0].key) if single else {}
    job, shown = await parts.database.run(_make, new, parts, nearby)
    if not single:
        count_hits(parts, [image.key for image in admitted.images], job.result_ids)
    key = admitted.images[0].key
    if single and shown is not None and key is not None and (found := job.result_ids.get(key.digest)) not in nearby:
        await keep_nearby(parts, key, found, shown["result"])
    return job, shown


def _make(transaction: Transaction, new: NewJob, parts: Parts, nearby: Mapping[str, StoredJson]) -> Made:
    submitted = submit(transaction, new, parts.settings, parts.box)
    if not submitted.finished:
        return submitted, None
    base_url = parts.settings.base_url
    return submitted, show_job(transaction, new.account_id, submitted.job_id, base_url=base_url, known=nearby)


def _new_job(request: Request, caller: Caller, admitted: Admitted, *, single: bool) -> NewJob:
    return NewJob(
        account_id=caller.account_id,
        subject=caller.subject,
        single=single,
        options=admitted.options,
        images=admitted.images,
        metadata=admitted.metadata,
        webhook=admitted.webhook,
        request_id=exchange_of(request.scope).request_id,
    )


def _with_reservation(new: NewJob, held: Reservation, fingerprint: bytes) -> NewJob:
    return NewJob(**{**vars(new), "reservation": held, "fingerprint": fingerprint})


async def _reserve(request: Request, parts: Parts, caller: Caller) -> Reservation | Remembered | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        raise InvalidOptions(f"An Idempotency-Key has 1 to {MAX_KEY} printable ASCII characters.")
    return await parts.database.run(reserve, caller.account_id, key, parts.settings)


def _remembered_id(held: Reservation | Remembered | None) -> str:
    assert isinstance(held, Remembered)
    return held.job_id


def _fingerprint(request: Request, intake: Intake, terms: SubmissionTerms) -> bytes:
    images = [(arrival.identity, arrival.name) for arrival in intake.arrivals]
    return compute_fingerprint(request.url.path, images, terms.model_dump(mode="json"))


def _add_query_options(request: Request, intake: Intake, *, single: bool) -> None:
    """Option members among the query parameters, which only the single upload takes, join the others."""
    query = request.query_params
    if not query:
        return
    if not single or bodies.media_type(request.headers) != FORM:
        raise InvalidOptions("Only the upload of a single image takes options as query parameters.")
    given = intake.terms.get("options")
    if given is not None and not isinstance(given, dict):
        raise InvalidOptions("The options are no JSON object.", errors=[{"loc": ["options"], "msg": "no object"}])
    options: dict[str, Any] = dict(given or {})
    for name in dict.fromkeys(query):
        values = query.getlist(name)
        if name in options or name not in Options.model_fields or (len(values) > 1 and name not in _LISTS):
            raise InvalidOptions(
                f"The option {name!r} is unknown or given twice.",
                errors=[{"loc": ["query", name], "msg": "not acceptable"}],
            )
        options[name] = [part for value in values for part in value.split(",")] if name in _LISTS else values[0]
    intake.terms["options"] = options


def _max_bytes(settings: Settings, media_type: str) -> int:
    return settings.max_json_bytes if media_type == bodies.JSON else settings.max_request_bytes


def _operation(single: bool, body: type[BaseModel], view: type[BaseModel]) -> Operation:
    part = {"type": "string", "format": "binary"}
    files: dict[str, object] = {"file": part} if single else {"files": {"type": "array", "items": part, "minItems": 1}}
    return Operation(
        submit_image if single else submit_images,
        "Read one image" if single else "Read a batch of images",
        scope="vision:write",
        policy="vision",
        answers={
            200: Answer("The job, finished: all images were cached, refused, or done within the wait", view),
            202: Answer("The job, accepted", view),
        },
        body=body,
        query=Options if single else None,
        form={
            "media_type": FORM,
            "properties": files
            | {name: {"type": "string", "description": "JSON text"} for name in ("options", "webhook", "metadata")},
            "required": list(files),
        },
        errors=(400, 409, 413, 415, 422, 503),
        max_bytes=_max_bytes,
    )


RESOURCES = (
    Resource("/api/extract/image", {"POST": _operation(True, SingleSubmission, SingleJobView)}),
    Resource("/api/extract/images", {"POST": _operation(False, BatchSubmission, JobView)}),
)
