"""From what came in to what may come in: terms validated, images within the limits, counted and stored."""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio.to_thread
from starlette.requests import Request

from arachne.database import Transaction
from arachne.errors import FieldError, ImageError, InvalidOptions, TooManyImages
from arachne.http import bodies
from arachne.http.exchange import Caller
from arachne.http.intake import Arrival, Intake, inspect
from arachne.http.parts import Parts
from arachne.http.throttle import most_at_once, throttle
from arachne.http.turn import turn
from arachne.images import admit
from arachne.jobs.publications import Published, published
from arachne.jobs.submit import NewImage, NewWebhook, check_room_for, reserve_blobs
from arachne.net.policy import webhook_policy
from arachne.net.registration import check_destination
from arachne.net.urls import MAX_URL_LENGTH, without_user_info
from arachne.reading import cache_key, settle_options
from arachne.schemas.options import Options
from arachne.schemas.submission import SubmissionTerms, WebhookInput
from arachne.schemas.text import is_storable
from arachne.settings import Settings
from arachne.webhooks.events import check_filters

STORE_WAIT_S = 60.0  # for a turn at the store, which may have stopped answering


@dataclass(frozen=True)
class Admitted:
    """What a job can be made of."""

    options: Options
    metadata: dict[str, str]
    webhook: NewWebhook | None
    images: list[NewImage]


async def look_at_images(parts: Parts, intake: Intake, *, single: bool) -> None:
    """Note on each arrival what it is.

    Raises:
        ArachneError: the only image is none, or its URL is never called.
    """
    for arrival in intake.arrivals:
        async with parts.loading:
            await anyio.to_thread.run_sync(inspect, arrival)
    if single and intake.arrivals[0].error is not None:
        raise intake.arrivals[0].error


def read_terms(intake: Intake) -> SubmissionTerms:
    """The terms, valid.

    Raises:
        InvalidOptions: they break a rule; says where.
    """
    given = {name: value for name, value in intake.terms.items() if value is not None}
    return bodies.validate(SubmissionTerms, given)


async def admit_all(
    request: Request, parts: Parts, caller: Caller, intake: Intake, terms: SubmissionTerms, *, single: bool
) -> Admitted:
    """What of the submission may become a job; refused images of a batch are marked, all others stored.

    Raises:
        ArachneError: the submission is refused; nothing was written but perhaps originals.
    """
    facts = await parts.database.run(published)
    options = settle_options(terms.options, parts.settings, facts)
    webhook = await check_webhook(terms.webhook, parts.settings)
    for arrival in intake.arrivals:
        _admit(arrival, options, parts.settings)
    _refuse_if_none_left(intake.arrivals, single=single)
    images = [_new_image(arrival, caller, options, parts.settings, facts) for arrival in intake.arrivals]
    await count_images(request, parts, caller, images)
    known = await parts.database.run(_make_room, caller.account_id, images, parts.settings)
    await store(parts, intake.arrivals, known)
    return Admitted(options, dict(terms.metadata), webhook, images)


async def store(parts: Parts, arrivals: Sequence[Arrival], known: set[str]) -> None:
    """Nothing; the originals of all acceptable images are in the store.

    Raises:
        Unavailable: the store can't be written.
    """
    missing = {arrival.sha256: arrival for arrival in arrivals if arrival.error is None and arrival.sha256}
    for digest, arrival in missing.items():
        if digest in known and await parts.storage.has_async(digest):
            continue
        async with turn(parts.storing, STORE_WAIT_S, "The object store is slow just now; try again in a moment."):
            data = await anyio.to_thread.run_sync(arrival.read)
            await parts.storage.write_async(digest, data)


def _admit(arrival: Arrival, options: Options, settings: Settings) -> None:
    if arrival.error is not None or arrival.header is None:
        return
    try:
        admit(
            arrival.header,
            max_bytes=settings.max_image_bytes,
            size_bytes=arrival.size_bytes,
            max_pixels=settings.max_image_pixels,
            max_frames=settings.max_frames,
            frames=options.frames,
        )
    except ImageError as error:
        arrival.error = error


def _refuse_if_none_left(arrivals: Sequence[Arrival], *, single: bool) -> None:
    errors = [arrival.error for arrival in arrivals if arrival.error is not None]
    if len(errors) < len(arrivals):
        return
    if single:
        raise errors[0]
    faults: list[FieldError] = [
        {"loc": ["images", index], "msg": f"{error.code}: {error.message}"} for index, error in enumerate(errors)
    ]
    raise InvalidOptions("None of the images can be read.", errors=faults)


def _new_image(
    arrival: Arrival, caller: Caller, options: Options, settings: Settings, facts: Published | None
) -> NewImage:
    error, header, digest = arrival.error, arrival.header, arrival.sha256
    url = arrival.url
    shown_url = without_user_info(url) if url and len(url) <= MAX_URL_LENGTH and is_storable(url) else None
    is_hash = digest is not None and ":" not in digest
    usable = error is None and facts is not None and digest is not None and options.cache == "use"
    return NewImage(
        name=arrival.name,
        sha256=digest if is_hash else None,
        format=header.format if header else None,
        size_bytes=arrival.size_bytes,
        units=header.frames if header and options.frames == "all" else 1,
        error=error,
        key=cache_key(options, caller.account_id, digest, settings, facts) if usable and facts and digest else None,
        source_url=shown_url,
        source_host=arrival.host,
    )


async def check_webhook(webhook: WebhookInput | None, settings: Settings) -> NewWebhook | None:
    """Where the job's own events go.

    Raises:
        InvalidOptions: an event filter matches nothing.
        InvalidUrl: a URL of a form that is never called.
        EgressBlocked: a URL that leads where we don't call.
    """
    if webhook is None:
        return None
    events = None if webhook.events is None else check_filters(webhook.events, inside=("webhook",))
    return NewWebhook(await check_destination(webhook.url, webhook_policy(settings)), events)


async def count_images(request: Request, parts: Parts, caller: Caller, accepted: Sequence[NewImage]) -> None:
    """Count the acceptable ones of the images against the limit, frames that are all read as so many.

    Raises:
        TooManyImages: more than could ever pass.
        RateLimited: over the limit.
    """
    images = sum(image.units for image in accepted if image.error is None)
    window = most_at_once(parts, caller, "images")
    if images > window.amount:
        raise TooManyImages(
            f"{images:,} images can never pass the limit of {window.amount:,} in {window.window_s} seconds. Split them."
        )
    await throttle(request, parts, caller, "images", cost=images)


def _make_room(transaction: Transaction, account_id: str, images: list[NewImage], settings: Settings) -> set[str]:
    """Hashes of the originals that are stored already, after checking that the images may come in."""
    check_room_for(transaction, account_id, images, settings)
    return reserve_blobs(transaction, [image for image in images if image.error is None])
