"""`/openapi.json` and `/docs`: the API explains itself, without anything from elsewhere."""

import json
from collections.abc import Sequence

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from arachne.http import docs_page, openapi
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.settings import Settings


async def show_openapi(request: Request, parts: Parts) -> Response:
    """The OpenAPI document."""
    response = Response((await _made(request, parts))[0], media_type="application/json")
    response.headers["Cache-Control"] = "public, max-age=300"
    return response


async def show_docs(request: Request, parts: Parts) -> Response:
    """The description as a page that needs no script."""
    return HTMLResponse((await _made(request, parts))[1], headers={"Content-Security-Policy": docs_page.POLICY})


async def _made(request: Request, parts: Parts) -> tuple[bytes, bytes]:
    """Document and page, made once, in a thread: it takes some 50 ms, and they are open to all."""
    state = request.app.state
    if not hasattr(state, "described"):
        state.described = await anyio.to_thread.run_sync(_make, state.resources, parts.settings)
    found: tuple[bytes, bytes] = state.described
    return found


def _make(resources: Sequence[Resource], settings: Settings) -> tuple[bytes, bytes]:
    document = openapi.describe(resources, settings)
    return json.dumps(document, ensure_ascii=False).encode(), docs_page.render(document).encode()


RESOURCES = (
    Resource(
        "/openapi.json",
        {
            "GET": Operation(
                show_openapi,
                "This description",
                scope=None,
                policy=None,
                answers={200: Answer("OpenAPI 3.1", media_type="application/json")},
            )
        },
    ),
    Resource(
        "/docs",
        {
            "GET": Operation(
                show_docs,
                "This description, to be read",
                scope=None,
                policy=None,
                answers={200: Answer("A page", media_type="text/html")},
            )
        },
    ),
)
