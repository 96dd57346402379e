"""Clients of accounts, for administrators: made, listed, given a new secret, disabled, enabled."""

from functools import partial

from sqlmodel import Session
from starlette.requests import Request
from starlette.responses import Response

from arachne import accounts
from arachne.cursors import decode_cursor
from arachne.http import bodies
from arachne.http.administration import PATH as ROOT
from arachne.http.administration import act, operation, page_of
from arachne.http.answers import to_json
from arachne.http.operations import Answer, Resource
from arachne.http.parts import Parts
from arachne.http.routes.admin_accounts import PATH as ACCOUNTS
from arachne.http.routes.admin_accounts import account_id_of
from arachne.schemas.admin import (
    ClientList,
    ClientRequest,
    ClientView,
    NewAccountView,
    NewSecretView,
    SecretRequest,
)
from arachne.schemas.queries import PageQuery
from arachne.schemas.tables import ApiClient
from arachne.schemas.token import SCOPES

PATH = f"{ROOT}/clients"
_CURSOR = "clients"


async def create(request: Request, parts: Parts) -> Response:
    """The new client with its secret."""
    wanted, account_id = await bodies.read_model(request, ClientRequest), account_id_of(request)
    made = await act(
        request, parts, lambda session: accounts.create_client(session, account_id, wanted.name, scopes=wanted.scopes)
    )
    view = NewAccountView(account_id=account_id, client_id=made.client_id, client_secret=made.client_secret)
    return to_json(view.model_dump(mode="json"), 201)


async def show_all(request: Request, parts: Parts) -> Response:
    """The account's clients, oldest first."""
    query, account_id = bodies.read_query(request.query_params, PageQuery), account_id_of(request)
    after = decode_cursor(_CURSOR, query.cursor) or ""

    def read(session: Session) -> list[ApiClient]:
        accounts.find_account(session, account_id)
        return accounts.list_clients(session, account_id, limit=query.limit + 1, after=after)

    found = await act(request, parts, read)
    shown, following = page_of(_CURSOR, found, query.limit, lambda client: client.client_id)
    view = ClientList(data=[_view(client) for client in shown], next_cursor=following)
    return to_json(view.model_dump(mode="json"))


async def rotate(request: Request, parts: Parts) -> Response:
    """The client's new secret."""
    wanted, client_id = await bodies.read_model(request, SecretRequest), request.path_params["client_id"]
    made = await act(
        request, parts, lambda session: accounts.rotate_client(session, client_id, grace_s=wanted.grace_seconds)
    )
    view = NewSecretView(client_id=client_id, client_secret=made.client_secret, old_until=made.old_until)
    return to_json(view.model_dump(mode="json"))


async def switch(request: Request, parts: Parts, *, enable: bool) -> Response:
    """The client, disabled or enabled."""
    client_id = request.path_params["client_id"]
    client = await act(request, parts, lambda session: accounts.disable_client(session, client_id, enable=enable))
    return to_json(_view(client).model_dump(mode="json"))


def _view(client: ApiClient) -> ClientView:
    return ClientView(
        client_id=client.client_id,
        account_id=client.account_id,
        name=client.name,
        scopes=[scope for scope in SCOPES if scope in client.scopes],
        created_at=client.created_at,
        disabled_at=client.disabled_at,
        old_secret_until=client.secret_old_until,
    )


RESOURCES = (
    Resource(
        f"{ACCOUNTS}/{{account_id}}/clients",
        {
            "POST": operation(
                create,
                "A further client of an account; its secret is shown only here",
                {201: Answer("The client", NewAccountView)},
                body=ClientRequest,
                example={"name": "nightly", "scopes": ["vision:read", "vision:write"]},
                errors=(409,),
            ),
            "GET": operation(
                show_all,
                "An account's clients, oldest first",
                {200: Answer("A page of clients", ClientList)},
                query=PageQuery,
            ),
        },
    ),
    Resource(
        f"{PATH}/{{client_id}}/rotate",
        {
            "POST": operation(
                rotate,
                "A new secret for a client; the old one works on for a while",
                {200: Answer("The new secret, shown only here", NewSecretView)},
                body=SecretRequest,
                example={"grace_seconds": 3600},
                errors=(409,),
            )
        },
    ),
    Resource(
        f"{PATH}/{{client_id}}/disable",
        {
            "POST": operation(
                partial(switch, enable=False),
                "Refuse a client's secret and every token it has got",
                {200: Answer("The client", ClientView)},
            )
        },
    ),
    Resource(
        f"{PATH}/{{client_id}}/enable",
        {
            "POST": operation(
                partial(switch, enable=True),
                "Let a disabled client in again",
                {200: Answer("The client", ClientView)},
                errors=(409,),
            )
        },
    ),
)
