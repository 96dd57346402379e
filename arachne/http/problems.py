"""Errors become `application/problem+json` here and nowhere else."""

import json
import logging
import math
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arachne.errors import ArachneError, InvalidToken, SetupError
from arachne.http.exchange import Exchange, exchange_of

log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
DEFAULT_RETRY_S = 5
_CODES = {400: "malformed_request", 404: "not_found", 405: "method_not_allowed", 413: "request_too_large"}


class ProblemsMiddleware:
    """Answers every exception with a problem; what we didn't foresee is logged under the request's id."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        exchange = exchange_of(scope)
        try:
            await self.app(scope, receive, watch)
        except ClientDisconnect:
            log.info("request %s: the client left", exchange.request_id)
        except Exception as error:
            answer = to_response(error, exchange)
            if started:
                raise  # half an answer is out: the server has to cut the connection
            await answer(scope, receive, send)


def to_response(error: Exception, exchange: Exchange) -> Response:
    """The problem that answers `error`."""
    if isinstance(error, ArachneError) and not isinstance(error, SetupError):
        return _ours(error, exchange)
    if isinstance(error, HTTPException):
        code = _CODES.get(error.status_code, "malformed_request")
        title = HTTPStatus(error.status_code).phrase
        response = render(exchange, error.status_code, code, title, error.detail)
        response.headers.update(error.headers or {})
        return response
    log.error("request %s failed", exchange.request_id, exc_info=error)
    detail = "Something went wrong on our side. Name this request_id when you report it."
    return render(exchange, 500, "internal", "Internal error", detail)


def render(exchange: Exchange, status: int, code: str, title: str, detail: str, **members: object) -> Response:
    """A problem as a response."""
    body = {
        "type": f"urn:arachne:problem:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "request_id": exchange.request_id,
        **members,
    }
    return Response(json.dumps(body), status, media_type=MEDIA_TYPE)  # ASCII: half surrogates in a detail are escaped


def _ours(error: ArachneError, exchange: Exchange) -> Response:
    members = dict(exchange.extra)
    if error.errors:
        members["errors"] = list(error.errors)
    response = render(exchange, error.http_status, error.code, error.title, error.message, **members)
    if error.http_status in {429, 503} or error.retry_after_s is not None:
        wait_s = DEFAULT_RETRY_S if error.retry_after_s is None else error.retry_after_s
        response.headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
    if isinstance(error, InvalidToken):
        response.headers["WWW-Authenticate"] = 'Bearer error="invalid_token"'
    if error.http_status >= 500:
        log.warning("request %s: %s: %s", exchange.request_id, error.code, str(error.__cause__ or "") or error.message)
    return response
