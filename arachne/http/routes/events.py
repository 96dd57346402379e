"""Events without webhooks: the account's feed, and the stream of a job."""

import re

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from arachne.bodies import StoredJson
from arachne.cursors import decode_cursor, encode_cursor
from arachne.errors import MalformedRequest
from arachne.http import bodies
from arachne.http.answers import to_spliced_json
from arachne.http.event_stream import MEDIA_TYPE, EventStream
from arachne.http.exchange import caller_of
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.schemas.listing import EventList
from arachne.schemas.queries import PageQuery
from arachne.webhooks.history import FeedEvent, Position, read_feed

_CURSOR = "events"
_POSITION = re.compile(r"([0-9]{1,20})\.(msg_[0-9A-Z]{26})", re.ASCII)
_MAX_TXID = 2**64 - 1
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


async def show_feed(request: Request, parts: Parts) -> Response:
    """The account's next events. A page with events has a cursor, the last one too: later ones come after it."""
    query = bodies.read_query(request.query_params, PageQuery)
    account_id, after = caller_of(request).account_id, _position(decode_cursor(_CURSOR, query.cursor))
    found = await parts.database.run(lambda tx: read_feed(tx.session, account_id, after, query.limit))
    return await to_spliced_json({"data": [_shown(event) for event in found], "next_cursor": _cursor(found)})


async def stream(request: Request, parts: Parts) -> Response:
    """The job's events, from after the one the client had last; 204 tells one that had all not to come again."""
    caller, job_id = caller_of(request), request.path_params["job_id"]
    job = await parts.watcher.look_up(caller.account_id, job_id, parts.settings.tombstone_s)
    after = _last_event(request.headers)
    if job.stand is not None and job.stand.finished and after >= job.sequence:
        return Response(status_code=204)
    return EventStream(parts.watcher, parts.standing, caller, job_id, after=after)


def _position(key: str | None) -> Position:
    if key is None:
        return Position()
    found = _POSITION.fullmatch(key)
    if found is None or int(found[1]) > _MAX_TXID:
        raise MalformedRequest("This is no cursor of the events. Pass on `next_cursor` as it came, or leave it out.")
    return Position(int(found[1]), found[2])


def _cursor(found: list[FeedEvent]) -> str | None:
    if not found:
        return None
    last = found[-1].position
    return encode_cursor(_CURSOR, f"{last.txid}.{last.message_id}")


def _shown(event: FeedEvent) -> StoredJson:
    """The body as it is signed and sent, with the event's id before its first member."""
    return StoredJson(f'{{"message_id":"{event.message_id}",'.encode() + event.body[1:], is_compressed=False)


def _last_event(headers: Headers) -> int:
    """The number of the last event the client had; 0 where it names none of ours."""
    given = headers.get("last-event-id", "").strip()
    return int(given) if _NUMBER.fullmatch(given) else 0


RESOURCES = (
    Resource(
        "/api/events",
        {
            "GET": Operation(
                show_feed,
                "The account's events, in the order in which they became visible",
                scope="vision:read",
                policy="other",
                answers={200: Answer("A page of events", EventList)},
                query=PageQuery,
            )
        },
    ),
    Resource(
        "/api/extract/image-jobs/{job_id}/events",
        {
            "GET": Operation(
                stream,
                "A job's events as they happen; `Last-Event-ID` resumes",
                scope="vision:read",
                policy="reads",
                answers={
                    200: Answer("Server-sent events, to the terminal one", media_type=MEDIA_TYPE),
                    204: Answer("The client has had all of them"),
                },
                errors=(410,),
                headers=("Last-Event-ID",),
            )
        },
    ),
)
