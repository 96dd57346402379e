"""`POST /api/extract/image` and `/images`: a submission becomes a job."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from arachne.bodies import StoredJson
from arachne.errors import (
    DecodeFailed,
    EgressBlocked,
    ImageTooLarge,
    InvalidOptions,
    InvalidUrl,
    LanguageMissing,
    OptionsConflict,
    OriginalsErased,
    TooManyFrames,
    TooManyImages,
    UnsupportedImage,
)
from arachne.http import bodies
from arachne.http.admission import Admitted, admit_all, look_at_images, read_terms, store
from arachne.http.entry import MADE_HEADERS, MAKING, Held, Made, make_job, make_once
from arachne.http.exchange import Caller, caller_of, exchange_of
from arachne.http.intake import FORM, Intake, read_intake
from arachne.http.nearby import count_hits, keep_nearby, read_nearby
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.http.samples import EXAMPLE_BATCH, EXAMPLE_ONE
from arachne.jobs.idempotency import Remembered, Reservation, compute_fingerprint
from arachne.jobs.submit import NewJob, reserve_blobs
from arachne.reading import needed_stages
from arachne.schemas.job import JobView, SingleJobView
from arachne.schemas.options import Options
from arachne.schemas.submission import BatchSubmission, SingleSubmission, SubmissionTerms
from arachne.settings import Settings
from arachne.spool import Spool

_LISTS = ("stages", "languages")
IMAGES = (ImageTooLarge, TooManyFrames, TooManyImages, UnsupportedImage, DecodeFailed)
TERMS = (OptionsConflict, LanguageMissing, InvalidUrl, EgressBlocked)


async def submit_image(request: Request, parts: Parts) -> Response:
    """One image."""
    return await _serve(request, parts, single=True)


async def submit_images(request: Request, parts: Parts) -> Response:
    """A batch of images."""
    return await _serve(request, parts, single=False)


async def _serve(request: Request, parts: Parts, *, single: bool) -> Response:
    async def take_in(held: Held) -> Made | None:
        with parts.uploads.place(caller_of(request).account_id), ExitStack() as stack:
            new_spool = partial(Spool, budget=parts.spools, account_id=caller_of(request).account_id)
            intake = await read_intake(
                request, parts.settings, parts.loading, single=single, stack=stack, new_spool=new_spool
            )
            _add_query_options(request, intake, single=single)
            return await _accept(request, parts, caller_of(request), intake, held, single=single)

    return await make_once(request, parts, take_in)


async def _accept(
    request: Request,
    parts: Parts,
    caller: Caller,
    intake: Intake,
    held: Held,
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
        new = replace(new, reservation=held, fingerprint=_fingerprint(request, intake, terms))
    nearby = await read_nearby(parts, admitted.images[0].key) if single else {}
    job, shown = await _make(parts, intake, new, nearby)
    if not single:
        count_hits(parts, [image.key for image in admitted.images], job.result_ids)
    key = admitted.images[0].key
    if single and shown is not None and key is not None and (found := job.result_ids.get(key.digest)) not in nearby:
        await keep_nearby(parts, key, found, shown["result"])
    return job, shown


async def _make(parts: Parts, intake: Intake, new: NewJob, nearby: Mapping[str, StoredJson]) -> Made:
    """The job made. Originals that were erased since they were stored, with another job, are stored again."""
    try:
        return await parts.database.run(make_job, new, parts, nearby)
    except OriginalsErased:
        await parts.database.run(reserve_blobs, [image for image in new.images if image.error is None])
        await store(parts, intake.arrivals, set())
        return await parts.database.run(make_job, new, parts, nearby)


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
        traceparent=exchange_of(request.scope).traceparent,
    )


def _fingerprint(request: Request, intake: Intake, terms: SubmissionTerms) -> bytes:
    images = [(arrival.identity, arrival.name) for arrival in intake.arrivals]
    told = terms.model_dump(mode="json")
    told["options"]["stages"] = needed_stages(terms.options)  # the order they are named in tells nothing
    return compute_fingerprint(request.url.path, images, told)


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
            200: Answer(
                "The job, finished: all images were cached, refused, or done within the wait",
                view,
                headers=("Location", *MADE_HEADERS),
            ),
            202: Answer("The job, accepted", view, headers=("Location", "Retry-After", *MADE_HEADERS)),
        },
        body=body,
        query=Options if single else None,
        form={
            "media_type": FORM,
            "properties": files
            | {name: {"type": "string", "description": "JSON text"} for name in ("options", "webhook", "metadata")},
            "required": list(files),
        },
        errors=(410,),
        raises=(*MAKING, *IMAGES, *TERMS),
        headers=("Idempotency-Key", "Prefer"),
        example=EXAMPLE_ONE if single else EXAMPLE_BATCH,
        too_large="Send fewer images in one request.",
        max_bytes=_max_bytes,
    )


RESOURCES = (
    Resource("/api/extract/image", {"POST": _operation(True, SingleSubmission, SingleJobView)}),
    Resource("/api/extract/images", {"POST": _operation(False, BatchSubmission, JobView)}),
)
