"""What a request prefers and what it knows already: `Prefer: wait`, `?wait`, `If-None-Match`."""

import re

from starlette.datastructures import Headers

from arachne.http.waiting import MAX_WAIT_S

_WAIT = re.compile(r"wait(?:\s*=\s*\"?(?P<seconds>\d{1,100})\"?)?", re.ASCII | re.IGNORECASE)


def read_wait(headers: Headers) -> int | None:
    """Seconds the answer may be held, at most a minute; None where it isn't asked. Source: RFC 7240 §4.3."""
    for header in headers.getlist("prefer"):
        for preference in header.split(","):
            match = _WAIT.fullmatch(preference.split(";", 1)[0].strip())
            if match is not None:
                return min(int(match["seconds"] or MAX_WAIT_S), MAX_WAIT_S)
    return None


def matches_etag(headers: Headers, etag: str) -> bool:
    """Whether If-None-Match names this entity tag, compared weakly. Source: RFC 9110 §13.1.2."""
    known = [one.strip().removeprefix("W/") for header in headers.getlist("if-none-match") for one in header.split(",")]
    return "*" in known or etag.removeprefix("W/") in known
