"""The deliveries of a webhook endpoint: listed, shown with every attempt, sent again, what was missed among them."""

from starlette.requests import Request
from starlette.responses import Response

from arachne.cursors import decode_cursor, encode_cursor
from arachne.http import bodies
from arachne.http.answers import to_json
from arachne.http.exchange import caller_of
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.schemas.listing import DeliveryList
from arachne.schemas.queries import DeliveriesQuery
from arachne.schemas.webhook import DeliveryDetailView, DeliveryView, RecoverRequest, RecoveryView
from arachne.webhooks.log import get_delivery, list_deliveries, redeliver
from arachne.webhooks.recovery import recover

PATH = "/api/webhooks/{endpoint_id}/deliveries"
_CURSOR = "deliveries"


async def show_all(request: Request, parts: Parts) -> Response:
    """The endpoint's deliveries, newest first."""
    query = bodies.read_query(request.query_params, DeliveriesQuery)
    account_id, cursor = caller_of(request).account_id, decode_cursor(_CURSOR, query.cursor)
    page = await parts.database.run(
        lambda tx: list_deliveries(
            tx.session,
            account_id,
            request.path_params["endpoint_id"],
            status=query.status,
            event=query.event,
            limit=query.limit,
            cursor=cursor,
        )
    )
    following = encode_cursor(_CURSOR, page.next_cursor) if page.next_cursor else None
    return to_json(DeliveryList(data=page.data, next_cursor=following).model_dump(mode="json"))


async def show_one(request: Request, parts: Parts) -> Response:
    """The delivery with every attempt."""
    account_id, names = caller_of(request).account_id, request.path_params
    view = await parts.database.run(
        lambda tx: get_delivery(tx.session, account_id, names["endpoint_id"], names["message_id"])
    )
    return to_json(view.model_dump(mode="json"))


async def send_again(request: Request, parts: Parts) -> Response:
    """The delivery, due now."""
    account_id, names = caller_of(request).account_id, request.path_params
    view = await parts.database.run(
        lambda tx: redeliver(tx.session, account_id, names["endpoint_id"], names["message_id"])
    )
    return to_json(view.model_dump(mode="json"), 202)


async def send_missed(request: Request, parts: Parts) -> Response:
    """The events the endpoint missed, due now, or only listed."""
    wanted = await bodies.read_model(request, RecoverRequest)
    account_id, endpoint_id = caller_of(request).account_id, request.path_params["endpoint_id"]
    found = await parts.database.run(
        lambda tx: recover(
            tx.session, account_id, endpoint_id, since=wanted.since, until=wanted.until, dry_run=wanted.dry_run
        )
    )
    view = RecoveryView(dry_run=wanted.dry_run, count=len(found.missed), more=found.more, data=found.missed)
    return to_json(view.model_dump(mode="json"), 200 if wanted.dry_run else 202)


RESOURCES = (
    Resource(
        PATH,
        {
            "GET": Operation(
                show_all,
                "An endpoint's deliveries, newest first",
                scope="webhooks:manage",
                policy="other",
                answers={200: Answer("A page of deliveries", DeliveryList)},
                query=DeliveriesQuery,
            )
        },
    ),
    Resource(
        f"{PATH}/{{message_id}}",
        {
            "GET": Operation(
                show_one,
                "One delivery with every attempt",
                scope="webhooks:manage",
                policy="other",
                answers={200: Answer("The delivery", DeliveryDetailView)},
            )
        },
    ),
    Resource(
        f"{PATH}/{{message_id}}/redeliver",
        {
            "POST": Operation(
                send_again,
                "Send an event again",
                scope="webhooks:manage",
                policy="other",
                answers={202: Answer("The delivery, due now", DeliveryView)},
                errors=(409, 410),
            )
        },
    ),
    Resource(
        "/api/webhooks/{endpoint_id}/recover",
        {
            "POST": Operation(
                send_missed,
                "Send an endpoint what it missed, or list that",
                scope="webhooks:manage",
                policy="other",
                answers={
                    200: Answer("What would be sent", RecoveryView),
                    202: Answer("What is sent now", RecoveryView),
                },
                body=RecoverRequest,
                errors=(409,),
                example={"since": "2026-01-31T00:00:00Z", "dry_run": True},
            )
        },
    ),
)
