"""Webhook endpoints: made, shown, changed, deleted, rotated, tested."""

from collections.abc import Mapping
from dataclasses import asdict

import anyio.to_thread
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from arachne.cursors import decode_cursor, encode_cursor
from arachne.errors import EgressBlocked, InvalidOptions, InvalidUrl
from arachne.http import bodies
from arachne.http.answers import to_json
from arachne.http.exchange import caller_of
from arachne.http.operations import Answer, Endpoint, Operation, Resource
from arachne.http.parts import Parts
from arachne.net.policy import webhook_policy
from arachne.net.registration import check_destination
from arachne.schemas.listing import EndpointList
from arachne.schemas.queries import PageQuery
from arachne.schemas.verification import VerdictView, VerifyRequest
from arachne.schemas.webhook import (
    AttemptView,
    EndpointChange,
    EndpointRequest,
    EndpointView,
    NewEndpointView,
    RotateRequest,
    SecretView,
)
from arachne.signatures.verification import verify
from arachne.webhooks.delivery import DeliveryEngine
from arachne.webhooks.endpoint_secrets import get_default_secret, rotate_default_secret, rotate_endpoint_secret
from arachne.webhooks.endpoints import (
    create_endpoint,
    delete_endpoint,
    find_endpoint,
    list_endpoints,
    update_endpoint,
    view_endpoint,
)

PATH = "/api/webhooks"
MAX_VERIFY_BYTES = 256 * 1024  # the body in it is parsed and written anew in several forms; ours are far smaller
_CURSOR = "endpoints"


async def create(request: Request, parts: Parts) -> Response:
    """The new endpoint with its secret."""
    wanted = await bodies.read_model(request, EndpointRequest)
    url = await check_destination(wanted.url, webhook_policy(parts.settings))

    account_id = caller_of(request).account_id
    made = await parts.database.run(lambda tx: create_endpoint(tx.session, parts.box, account_id, wanted, url))
    response = to_json(made.model_dump(mode="json"), 201)
    response.headers["Location"] = f"{parts.settings.base_url}{PATH}/{made.endpoint_id}"
    return response


async def show_all(request: Request, parts: Parts) -> Response:
    """The account's endpoints, oldest first."""
    query = bodies.read_query(request.query_params, PageQuery)
    account_id, cursor = caller_of(request).account_id, decode_cursor(_CURSOR, query.cursor)
    page = await parts.database.run(lambda tx: list_endpoints(tx.session, account_id, limit=query.limit, cursor=cursor))
    following = encode_cursor(_CURSOR, page.next_cursor) if page.next_cursor else None
    return to_json(EndpointList(data=page.data, next_cursor=following).model_dump(mode="json"))


async def show_one(request: Request, parts: Parts) -> Response:
    """The endpoint, without its secret."""
    account_id, endpoint_id = caller_of(request).account_id, request.path_params["endpoint_id"]
    view = await parts.database.run(lambda tx: view_endpoint(find_endpoint(tx.session, account_id, endpoint_id)))
    return to_json(view.model_dump(mode="json"))


async def change(request: Request, parts: Parts) -> Response:
    """The endpoint as changed."""
    wanted = await bodies.read_model(request, EndpointChange)
    null = next((name for name in wanted.model_fields_set & {"url", "enabled"} if getattr(wanted, name) is None), None)
    if null is not None:
        raise InvalidOptions(f"{null} can't be null.", errors=[{"loc": [null], "msg": "can't be null"}])
    url = None if wanted.url is None else await check_destination(wanted.url, webhook_policy(parts.settings))
    account_id, endpoint_id = caller_of(request).account_id, request.path_params["endpoint_id"]
    view = await parts.database.run(lambda tx: update_endpoint(tx.session, account_id, endpoint_id, wanted, url))
    return to_json(view.model_dump(mode="json"))


async def delete(request: Request, parts: Parts) -> Response:
    """Nothing: the endpoint is gone."""
    account_id, endpoint_id = caller_of(request).account_id, request.path_params["endpoint_id"]
    await parts.database.run(lambda tx: delete_endpoint(tx.session, account_id, endpoint_id))
    return Response(status_code=204)


async def rotate(request: Request, parts: Parts) -> Response:
    """The endpoint's new secret."""
    wanted = await bodies.read_model(request, RotateRequest)
    account_id, endpoint_id = caller_of(request).account_id, request.path_params["endpoint_id"]
    view = await parts.database.run(
        lambda tx: rotate_endpoint_secret(tx.session, parts.box, account_id, endpoint_id, grace_s=wanted.grace_seconds)
    )
    return to_json(view.model_dump(mode="json"))


async def send_test(request: Request, parts: Parts) -> Response:
    """The attempt to deliver a `webhook.test`, made now."""
    engine = DeliveryEngine(parts.database, parts.box, parts.settings)
    attempt = await engine.send_test(caller_of(request).account_id, request.path_params["endpoint_id"])
    return to_json(attempt.model_dump(mode="json"))


async def show_default_secret(request: Request, parts: Parts) -> Response:
    """The secret that signs events to jobs' own URLs."""
    account_id = caller_of(request).account_id
    view = await parts.database.run(lambda tx: get_default_secret(tx.session, parts.box, account_id))
    return to_json(view.model_dump(mode="json"))


async def rotate_default(request: Request, parts: Parts) -> Response:
    """The new secret that signs events to jobs' own URLs."""
    wanted = await bodies.read_model(request, RotateRequest)
    account_id = caller_of(request).account_id
    view = await parts.database.run(
        lambda tx: rotate_default_secret(tx.session, parts.box, account_id, grace_s=wanted.grace_seconds)
    )
    return to_json(view.model_dump(mode="json"))


async def verify_signature(request: Request, _: Parts) -> Response:
    """Whether a received webhook's signature is right and, where not, why."""
    wanted = await bodies.read_model(request, VerifyRequest)
    verdict = await anyio.to_thread.run_sync(lambda: verify(wanted.secret, wanted.headers, wanted.body.encode()))
    return to_json(VerdictView(**asdict(verdict)).model_dump(mode="json"))


_EXAMPLES: Mapping[type[BaseModel] | None, Mapping[str, object]] = {
    EndpointRequest: {"url": "https://example.com/hooks/arachne", "events": ["job.*"], "description": "The archive"},
    EndpointChange: {"events": ["job.completed", "job.partial"], "description": None},
    RotateRequest: {"grace_seconds": 3600},
    # Source: the test vector of the Standard Webhooks specification.
    VerifyRequest: {
        "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "headers": {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
        "body": '{"test": 2432232314}',
    },
}


def _operation(
    endpoint: Endpoint,
    summary: str,
    answers: Mapping[int, Answer],
    *,
    body: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
    errors: tuple[int, ...] = (),
    max_bytes: int = bodies.MAX_SMALL_BYTES,
) -> Operation:
    return Operation(
        endpoint,
        summary,
        scope="webhooks:manage",
        policy="other",
        answers=answers,
        body=body,
        query=query,
        errors=errors,
        raises=(InvalidUrl, EgressBlocked) if body in (EndpointRequest, EndpointChange) else (),
        example=_EXAMPLES.get(body),
        max_bytes=lambda _settings, _media_type: max_bytes,
    )


RESOURCES = (
    Resource(
        PATH,
        {
            "POST": _operation(
                create,
                "A new webhook endpoint; its secret is shown only here",
                {201: Answer("The endpoint", NewEndpointView, headers=("Location",))},
                body=EndpointRequest,
                errors=(409,),
            ),
            "GET": _operation(
                show_all,
                "Webhook endpoints, oldest first",
                {200: Answer("A page of endpoints", EndpointList)},
                query=PageQuery,
            ),
        },
    ),
    Resource(
        f"{PATH}/default/secret",
        {
            "GET": _operation(
                show_default_secret,
                "The secret that signs events to jobs' own URLs",
                {200: Answer("The secret", SecretView)},
                errors=(404,),
            )
        },
    ),
    Resource(
        f"{PATH}/default/rotate",
        {
            "POST": _operation(
                rotate_default,
                "A new default secret",
                {200: Answer("The new secret", SecretView)},
                body=RotateRequest,
                errors=(404, 409),
            )
        },
    ),
    Resource(
        f"{PATH}/verify",
        {
            "POST": _operation(
                verify_signature,
                "Whether a received webhook's signature is right, and where not, why",
                {200: Answer("The verdict", VerdictView)},
                body=VerifyRequest,
                max_bytes=MAX_VERIFY_BYTES,
            )
        },
    ),
    Resource(
        f"{PATH}/{{endpoint_id}}",
        {
            "GET": _operation(show_one, "One webhook endpoint", {200: Answer("The endpoint", EndpointView)}),
            "PATCH": _operation(
                change,
                "Change an endpoint; members that are absent stay",
                {200: Answer("The endpoint", EndpointView)},
                body=EndpointChange,
            ),
            "DELETE": _operation(delete, "Delete an endpoint", {204: Answer("It is gone")}),
        },
    ),
    Resource(
        f"{PATH}/{{endpoint_id}}/rotate",
        {
            "POST": _operation(
                rotate,
                "A new secret for an endpoint",
                {200: Answer("The new secret", SecretView)},
                body=RotateRequest,
                errors=(409,),
            )
        },
    ),
    Resource(
        f"{PATH}/{{endpoint_id}}/test",
        {
            "POST": _operation(
                send_test,
                "Send `webhook.test` now",
                {200: Answer("The attempt", AttemptView)},
            )
        },
    ),
)
