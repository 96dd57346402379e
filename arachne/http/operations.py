"""Routes as data: one `Resource` a path, one `Operation` a method, which says who may call it and how often.

OpenAPI and the tests are made from these, so that no route can be forgotten.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from arachne.errors import ArachneError, MethodNotAllowed, NotFound
from arachne.http import bodies
from arachne.http.authentication import require_scope
from arachne.http.exchange import exchange_of
from arachne.http.parts import Parts, parts_of
from arachne.http.throttle import throttle_request
from arachne.schemas.token import Scope as TokenScope
from arachne.settings import Settings

Method = Literal["GET", "POST", "PATCH", "DELETE"]
PolicyName = Literal["vision", "reads", "other"]
_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
Endpoint = Callable[[Request, Parts], Awaitable[Response]]


@dataclass(frozen=True)
class Answer:
    """One documented answer: what it means, its model, or its media type where it is no JSON.

    `also` are the media types besides JSON of an answer that comes in several forms, `headers` those of this answer.
    """

    meaning: str
    model: type[BaseModel] | None = None
    media_type: str | None = None
    also: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operation:
    """One method of a path. Without `scope` it is open to all; without `policy` it isn't limited here.

    What follows from scope, policy, path, query and body needs no mention: `errors` are further statuses, `raises`
    further codes. `example` is a body, or a form, that may be sent as it stands. `counted`: the endpoint limits itself.
    `too_large` says what to do where a body is.
    """

    endpoint: Endpoint
    summary: str
    scope: TokenScope | None
    policy: PolicyName | None
    answers: Mapping[int, Answer]
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    form: Mapping[str, object] | None = None
    errors: tuple[int, ...] = ()
    raises: tuple[type[ArachneError], ...] = ()
    headers: tuple[str, ...] = ()
    example: Mapping[str, object] | None = None
    counted: bool = False
    too_large: str = ""
    max_bytes: Callable[[Settings, str], int] = field(default=lambda _settings, _media_type: bodies.MAX_SMALL_BYTES)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; refusals come in the order 401, 403, 429, 413, then the endpoint's own."""
        request = Request(scope, receive)
        parts, exchange = parts_of(request), exchange_of(scope)
        if self.scope is not None:
            caller = await parts.authenticator.authenticate(request.headers, exchange)
            require_scope(caller, self.scope, exchange)
            if self.policy is not None:
                await throttle_request(request, parts, caller, self.policy)
        limit = self.max_bytes(parts.settings, bodies.media_type(request.headers))
        bodies.check_length(request.headers, limit, hint=self.too_large)
        response = await self.endpoint(Request(scope, bodies.bound(receive, limit, hint=self.too_large)), parts)
        await response(scope, receive, send)


class Resource:
    """A path's operations, as an ASGI app."""

    def __init__(self, path: str, operations: Mapping[Method, Operation]) -> None:
        self.path = path
        self.operations: dict[str, Operation] = {str(method): one for method, one in operations.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            NotFound: the path names what can't be an id.
            MethodNotAllowed: the path has no such method.
        """
        exchange = exchange_of(scope)
        exchange.route = self.path
        if not all(_IDENTIFIER.fullmatch(value) for value in scope.get("path_params", {}).values()):
            raise NotFound("There is no such object.")
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        operation = self.operations.get(method)
        if operation is None:
            exchange.headers["Allow"] = ", ".join(self.allowed)
            raise MethodNotAllowed(f"{self.path} answers {', '.join(self.allowed)}.")
        await operation.serve(scope, receive, send)

    @property
    def allowed(self) -> list[str]:
        """The methods this path has."""
        return sorted({*self.operations, *(["HEAD"] if "GET" in self.operations else [])})

    @property
    def route(self) -> Route:
        """The resource as a Starlette route."""
        return Route(self.path, self)
