"""Headers that keep answers to what they are for, and which other origins' pages may read them."""

from collections.abc import Mapping

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from arachne.http.described_headers import REQUEST_HEADERS, RESPONSE_HEADERS
from arachne.settings import Settings

HSTS_S = 365 * 86_400
PREFLIGHT_S = 600
# Answers are data, not pages: nothing in them runs, loads, frames or is framed. Pages of ours say what they need.
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_SENT = ("Authorization", "Content-Type", "X-Request-Id", *REQUEST_HEADERS)


def common_headers(settings: Settings) -> Mapping[str, str]:
    """What every answer carries unless it says otherwise."""
    if settings.base_url.startswith("https://"):
        return HEADERS | {"Strict-Transport-Security": f"max-age={HSTS_S}"}
    return HEADERS


def allow_origins(app: ASGIApp, settings: Settings) -> ASGIApp:
    """The app, callable from pages of CORS_ORIGINS. Never with cookies: tokens are sent on purpose or not at all."""
    if not settings.cors_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=settings.cors_origins,
        allow_methods=("GET", "HEAD", "POST", "PATCH", "DELETE"),
        allow_headers=_SENT,
        allow_credentials=False,
        expose_headers=tuple(RESPONSE_HEADERS),
        max_age=PREFLIGHT_S,
    )
