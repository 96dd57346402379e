"""Only Host headers that are ours are answered. Absolute URLs never come from them anyway.

Health checks ask this very process, by whatever address they reach it, so they are answered whatever the name.
"""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from arachne.errors import MalformedRequest

HEALTH_CHECKS = frozenset({"/healthz", "/readyz"})


class HostsMiddleware:
    """Refuses requests for other hosts; `*` allows all, `*.example.com` all below it."""

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self.app = app
        self.allowed = tuple(pattern.lower() for pattern in allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            MalformedRequest: the Host header is not among those allowed.
        """
        if scope["type"] == "http" and not self._is_allowed(scope):
            raise MalformedRequest(
                "This host is not served here. Use the service's own name, see ARACHNE_TRUSTED_HOSTS."
            )
        await self.app(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        if "*" in self.allowed or scope["path"] in HEALTH_CHECKS:
            return True
        given = Headers(scope=scope).get("host", "").lower()
        host = given.rsplit("]", 1)[0] + "]" if given.startswith("[") else given.split(":", 1)[0]
        return any(host == one or (one.startswith("*.") and host.endswith(one[1:])) for one in self.allowed)
