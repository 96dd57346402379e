"""Tokens and keys, for administrators: a token is revoked, a new key signs; and what was done so far."""

from starlette.requests import Request
from starlette.responses import Response

from arachne.audit import Wanted, list_acts, view_act
from arachne.cursors import decode_cursor
from arachne.errors import InvalidOptions, InvalidToken
from arachne.http import bodies
from arachne.http.administration import PATH, act, operation, page_of
from arachne.http.answers import to_json
from arachne.http.operations import Answer, Resource
from arachne.http.parts import Parts
from arachne.schemas.admin import (
    ActList,
    AuditQuery,
    KeyRotationRequest,
    KeyView,
    RevocationRequest,
    RevokedView,
)
from arachne.signing_keys import rotate_keys
from arachne.standing import revoke_token
from arachne.tokens import read_token

_CURSOR = "acts"


async def revoke(request: Request, parts: Parts) -> Response:
    """The token that is refused from now on, in every process."""
    wanted = await bodies.read_model(request, RevocationRequest)
    issuer, jti = _name_token(wanted, parts.settings.base_url)
    await act(request, parts, lambda session: revoke_token(session, issuer, jti))
    return to_json(RevokedView(jti=jti, issuer=issuer).model_dump())


def _name_token(wanted: RevocationRequest, ours: str) -> tuple[str, str]:
    """Issuer and id of a token, which need not be valid.

    Raises:
        InvalidOptions: it can't be read.
    """
    if wanted.jti is not None:
        return wanted.issuer or ours, wanted.jti
    try:
        read = read_token(wanted.token or "")
    except InvalidToken as error:
        raise InvalidOptions(
            "This is no token. Give it whole, or its id.", errors=[{"loc": ["token"], "msg": error.message}]
        ) from None
    return wanted.issuer or read.issuer or ours, read.jti or ""


async def rotate(request: Request, parts: Parts) -> Response:
    """The id of the key that signs from now on."""
    wanted = await bodies.read_model(request, KeyRotationRequest)
    kid = await act(request, parts, lambda session: rotate_keys(session, parts.box, withdraw=wanted.withdraw))
    return to_json(KeyView(kid=kid).model_dump())


async def show_audit(request: Request, parts: Parts) -> Response:
    """What was done, newest first."""
    query = bodies.read_query(request.query_params, AuditQuery)
    wanted = Wanted(account_id=query.account_id, action=query.action, since=query.since)
    before = decode_cursor(_CURSOR, query.cursor)
    found = await act(
        request, parts, lambda session: list(list_acts(session, wanted, limit=query.limit + 1, before=before))
    )
    shown, following = page_of(_CURSOR, found, query.limit, lambda one: one.audit_id)
    return to_json(ActList(data=[view_act(one) for one in shown], next_cursor=following).model_dump(mode="json"))


RESOURCES = (
    Resource(
        f"{PATH}/tokens/revoke",
        {
            "POST": operation(
                revoke,
                "Refuse one token from now on; disabling a client refuses all of its",
                {200: Answer("The token that is refused", RevokedView)},
                body=RevocationRequest,
                example={"jti": "tok_01JA8ZC5X1WQ1ZJ4M9V8T6K3RB"},
            )
        },
    ),
    Resource(
        f"{PATH}/keys/rotate",
        {
            "POST": operation(
                rotate,
                "Sign with a new key from now on; with `withdraw` former tokens are refused within a minute",
                {200: Answer("The new key", KeyView)},
                body=KeyRotationRequest,
                example={"withdraw": False},
            )
        },
    ),
    Resource(
        f"{PATH}/audit",
        {
            "GET": operation(
                show_audit,
                "What operators and administrators did, newest first",
                {200: Answer("A page of acts", ActList)},
                query=AuditQuery,
            )
        },
    ),
)
