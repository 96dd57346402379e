"""`/console`: a page to try and watch the service with, made of static files that come with the package.

The files are open to all, since they hold nothing; what they show is asked of the API with the caller's token.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts

FOLDER = Path(__file__).parent.parent / "console"
PATH = "/console"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing but our own files runs, and those can't turn text into markup or script, whatever an image says.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"
)


@dataclass(frozen=True)
class _File:
    """One file as it is served. It is asked for anew each time, since the next version's has the same name."""

    body: bytes
    media_type: str
    etag: str

    async def show(self, request: Request, _: Parts) -> Response:
        """The file, or that the client has it already."""
        headers = {"ETag": self.etag, "Cache-Control": "no-cache", "Content-Security-Policy": POLICY}
        if _has(request.headers.get("if-none-match", ""), self.etag):
            return Response(status_code=304, headers=headers)
        return Response(self.body, headers=headers | {"Content-Type": self.media_type})


def _has(given: str, etag: str) -> bool:
    """Whether a client names this ETag. Source: RFC 9110 §13.1.2, weak comparison."""
    names = {one.strip().removeprefix("W/") for one in given.split(",")}
    return etag in names or names == {"*"}


def _read(path: Path) -> _File:
    body = path.read_bytes()
    return _File(body, _TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _serve(path: str, file: _File, summary: str) -> Resource:
    media_type = file.media_type.partition(";")[0]
    return Resource(
        path,
        {
            "GET": Operation(
                file.show,
                summary,
                scope=None,
                policy=None,
                answers={
                    200: Answer("The file", media_type=media_type, headers=("ETag",)),
                    304: Answer("The client has it already", headers=("ETag",)),
                },
                headers=("If-None-Match",),
            )
        },
    )


async def _lead(_: Request, __: Parts) -> Response:
    """The console's address, for browsers that were given the service's alone."""
    return Response(status_code=307, headers={"Location": PATH})


_FILES = {path.name: _read(path) for path in sorted(FOLDER.iterdir())}
RESOURCES = (_serve(PATH, _FILES["index.html"], "The console, a page to send screenshots and see what was read"),)
FILES = (
    Resource(
        "/",
        {
            "GET": Operation(
                _lead,
                "Leads to the console",
                scope=None,
                policy=None,
                answers={307: Answer("The console is there", headers=("Location",))},
            )
        },
    ),
    _serve(f"{PATH}/", _FILES["index.html"], "The console, under its other name"),
    *(_serve(f"{PATH}/{name}", file, "A file of the console") for name, file in _FILES.items() if name != "index.html"),
)
"""What leads to the page and what it loads: no part of the API, so not described with it."""
