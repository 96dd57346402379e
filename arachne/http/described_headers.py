"""The headers that the description names: those a request may have and those an answer has."""

from collections.abc import Mapping

_TEXT, _COUNT = {"type": "string"}, {"type": "string", "pattern": "^[0-9]+$"}


def _example(text: str) -> Mapping[str, object]:
    return _TEXT | {"examples": [text]}


LIMITS = ("RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
_MEANINGS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "X-Request-Id": ("The request's id; an acceptable one that was sent is kept", _TEXT),
    "Location": ("The URL of what was made", {"type": "string", "format": "uri"}),
    "Retry-After": ("Seconds after which the same request may pass, or be worth repeating", _COUNT),
    "ETag": ("Weak; changes with status and progress, not with the queue", _TEXT),
    "WWW-Authenticate": ("How to authenticate. Source: RFC 6750", _TEXT),
    "Idempotent-Replayed": ("`true`: an earlier request's job answers", {"type": "string", "enum": ["true"]}),
    "Preference-Applied": ("The wait that was granted", _TEXT),
    "Content-Disposition": ("An attachment, and its name", _TEXT),
    "RateLimit-Policy": (
        "Each limit the request counts against: q hits in any w seconds",
        _example('"vision";q=20;w=60'),
    ),
    "RateLimit": ("Hits left of each, and seconds until more are", _example('"vision";r=7;t=42')),
    "X-RateLimit-Limit": ("Hits in the window of the limit that is nearest", _COUNT),
    "X-RateLimit-Remaining": ("Hits left of it", _COUNT),
    "X-RateLimit-Reset": ("Unix time in seconds at which more are", _COUNT),
}
RESPONSE_HEADERS = {name: {"description": told, "schema": schema} for name, (told, schema) in _MEANINGS.items()}


def _parameter(name: str, description: str, **schema: object) -> dict[str, object]:
    return {
        "name": name, "in": "header", "required": False, "description": description,
        "schema": {"type": "string", **schema},
    }  # fmt: skip


REQUEST_HEADERS = {
    "Idempotency-Key": _parameter(
        "Idempotency-Key", "A repeat with the same key is answered with the same job", pattern="^[!-~]{1,255}$"
    ),
    "Prefer": _parameter("Prefer", "`wait=N`: hold the answer until the job is finished, up to 60 seconds"),
    "If-None-Match": _parameter("If-None-Match", "An ETag: 304 where nothing has changed since"),
    "Last-Event-ID": _parameter("Last-Event-ID", "The last event that was received; those after it follow"),
}
