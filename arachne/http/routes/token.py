"""`POST /api/auth/token`: OAuth 2.0 client credentials. Source: RFC 6749 §2.3.1, §4.4, §5."""

import base64
import binascii
from collections import Counter
from ipaddress import IPv6Address, IPv6Network, ip_address
from urllib.parse import parse_qsl, unquote_plus

import anyio.to_thread
from authlib.oauth2.rfc6749.errors import (
    InvalidClientError,
    InvalidRequestError,
    InvalidScopeError,
    OAuth2Error,
)
from authlib.oauth2.rfc6749.util import scope_to_list
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from arachne import accounts
from arachne.database import Transaction
from arachne.errors import RateLimited, Unavailable
from arachne.http import bodies, limiter
from arachne.http.exchange import exchange_of
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.http.throttle import note, refusal
from arachne.schemas.tables import ApiClient
from arachne.schemas.text import is_storable
from arachne.schemas.token import TokenAnswer, TokenFault
from arachne.signing_keys import current_key
from arachne.tokens import IssuedToken, issue_token

FORM = "application/x-www-form-urlencoded"
MAX_BYTES = 16 * 1024
_MAX_FIELDS = 20
_MAX_SECRET = 1024
# Verifying a secret takes 20 MB and some ten milliseconds of processor: a flood must not take all of either.
_hashing = anyio.CapacityLimiter(4)
MAX_WAITING = 64


async def give_token(request: Request, parts: Parts) -> Response:
    """The token, or why there is none in RFC 6749's form."""
    try:
        await _throttle(request, parts, "token_address", _source(request))
        issued = await _give(request, parts, await _read_form(request))
    except (RateLimited, Unavailable):  # problems as everywhere, which no OAuth client may take for a token
        exchange_of(request.scope).extra["error"] = "temporarily_unavailable"
        raise
    except OAuth2Error as error:
        headers = dict(error.get_headers())
        headers.pop("Content-Type", None)
        return JSONResponse(dict(error.get_body()), error.status_code, headers)
    answer = TokenAnswer(access_token=issued.token, expires_in=issued.expires_in_s, scope=" ".join(issued.scopes))
    return JSONResponse(answer.model_dump(), headers={"Pragma": "no-cache"})


async def _give(request: Request, parts: Parts, form: dict[str, str]) -> IssuedToken:
    client_id, secret = _credentials(request, form)
    if "grant_type" not in form:
        raise InvalidRequestError("The parameter grant_type is missing.")
    if form["grant_type"] != "client_credentials":
        raise OAuth2Error("Only client_credentials is supported.", error="unsupported_grant_type")
    await _throttle(request, parts, "token_client", client_id)
    client = await parts.database.run(lambda tx: accounts.find_client(tx.session, client_id))
    if not await _is_genuine(client, secret) or client is None:
        raise _wrong_client()
    asked = scope_to_list(form.get("scope")) or list(client.scopes)
    if not set(asked) <= set(client.scopes):
        raise InvalidScopeError("The client is not granted a scope it asks for.")
    return await parts.database.run(_issue, parts, client, asked)


async def _is_genuine(client: ApiClient | None, secret: str) -> bool:
    """Whether this is the client's secret, found out in a thread.

    Raises:
        Unavailable: too many wait for that already.
    """
    if _hashing.statistics().tasks_waiting >= MAX_WAITING:
        raise Unavailable("Too many ask for tokens just now; try again in a moment.", retry_after_s=2)
    return await anyio.to_thread.run_sync(accounts.secret_matches, client, secret, limiter=_hashing)


def _issue(transaction: Transaction, parts: Parts, client: ApiClient, scopes: list[str]) -> IssuedToken:
    return issue_token(
        current_key(transaction.session, parts.box),
        parts.settings,
        account_id=client.account_id,
        subject=client.client_id,
        client_id=client.client_id,
        scopes=scopes,
        ttl_s=parts.settings.token_ttl_s,
    )


async def _read_form(request: Request) -> dict[str, str]:
    if bodies.media_type(request.headers) != FORM:
        raise InvalidRequestError(f"Send Content-Type: {FORM}.")
    try:
        body = (await request.body()).decode("ascii")
        pairs = parse_qsl(body, keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError:
        raise InvalidRequestError("The form can't be read.") from None
    if any(count > 1 for count in Counter(name for name, _ in pairs).values()):
        raise InvalidRequestError("A parameter is given twice.")
    return {name: value for name, value in pairs if value}


def _credentials(request: Request, form: dict[str, str]) -> tuple[str, str]:
    """Client id and secret, from HTTP Basic or from the form but not from both."""
    given = request.headers.get("authorization")
    in_form = "client_secret" in form
    if given is not None and in_form:
        raise InvalidRequestError("Send the credentials once: in the Authorization header or in the form.")
    if given is not None:
        client_id, secret = _basic(given)
    elif in_form and "client_id" in form:
        client_id, secret = form["client_id"], form["client_secret"]
    else:
        raise InvalidClientError("Send client_id and client_secret.", status_code=401)
    if len(client_id) > _MAX_SECRET or len(secret) > _MAX_SECRET or not is_storable(client_id):
        raise _wrong_client()
    return client_id, secret


def _basic(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise _wrong_client()
    try:
        client_id, colon, secret = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise _wrong_client() from None
    if not colon:
        raise _wrong_client()
    return unquote_plus(client_id), unquote_plus(secret)


def _wrong_client() -> InvalidClientError:
    return InvalidClientError("The client is unknown, disabled, or its secret is wrong.", status_code=401)


def _source(request: Request) -> str:
    """The address asked from; of IPv6 the network of 64 bits, since one host may have all of its addresses."""
    host = request.client.host if request.client else "unknown"
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(IPv6Network((int(address) >> 64 << 64, 64)))
    return host


async def _throttle(request: Request, parts: Parts, name: str, identity: str) -> None:
    verdict = await parts.limiter.hit(limiter.policies(parts.settings)[name], identity)
    exchange = exchange_of(request.scope)
    note(exchange, verdict)
    if not verdict.passed:
        raise refusal(exchange)


RESOURCES = (
    Resource(
        "/api/auth/token",
        {
            "POST": Operation(
                give_token,
                "An access token for a client's id and secret",
                scope=None,
                policy=None,
                answers={
                    200: Answer("The token", TokenAnswer),
                    400: Answer("The request is not as RFC 6749 wants it", TokenFault),
                    401: Answer("The client is unknown or its secret wrong", TokenFault, headers=("WWW-Authenticate",)),
                },
                form={
                    "media_type": FORM,
                    "properties": {
                        "grant_type": {"type": "string", "const": "client_credentials"},
                        "client_id": {"type": "string"},
                        "client_secret": {"type": "string"},
                        "scope": {"type": "string"},
                    },
                    "required": ["grant_type"],
                },
                errors=(413, 503),
                counted=True,
                example={"grant_type": "client_credentials", "client_id": "cli_…", "client_secret": "ars_…"},
                max_bytes=lambda _settings, _media_type: MAX_BYTES,
            )
        },
    ),
)
