"""`/openapi.json` and `/docs`: the API explains itself, without anything from elsewhere."""

from html import escape

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from arachne.http import openapi
from arachne.http.answers import to_json
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c }
h2 { font: 600 1rem ui-monospace, monospace; margin: 2rem 0 .2rem } code { font-family: ui-monospace, monospace }
p { margin: .2rem 0 } table { border-collapse: collapse } td { padding: .1rem 1rem .1rem 0; vertical-align: top }
@media (prefers-color-scheme: dark) { body { background: #161616; color: #e8e8e8 } a { color: #9bf } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"


async def show_openapi(request: Request, parts: Parts) -> Response:
    """The OpenAPI document."""
    state = request.app.state
    if not hasattr(state, "openapi"):  # made once, in a thread: it takes 50 ms and is open to all
        state.openapi = await anyio.to_thread.run_sync(openapi.describe, state.resources, parts.settings)
    response = to_json(state.openapi)
    response.headers["Cache-Control"] = "public, max-age=300"
    return response


async def show_docs(request: Request, _: Parts) -> Response:
    """The operations as a page that needs no script."""
    rows = [
        _section(resource.path, method, operation)
        for resource in request.app.state.resources
        for method, operation in resource.operations.items()
    ]
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Arachne API</title><style>{_STYLE}</style>'
        "<h1>Arachne API</h1><p>The machine-readable description is <a href='/openapi.json'>openapi.json</a>. "
        "Get a token from <code>POST /api/auth/token</code> and send it as <code>Authorization: Bearer TOKEN</code>."
        f"</p>{''.join(rows)}</html>"
    )
    return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY, "Referrer-Policy": "no-referrer"})


def _section(path: str, method: str, operation: Operation) -> str:
    answers = "".join(
        f"<tr><td><code>{status}</code><td>{escape(answer.meaning)}" for status, answer in operation.answers.items()
    )
    refusals = ", ".join(map(str, operation.errors))
    scope = f"<p>Scope <code>{operation.scope}</code></p>" if operation.scope else "<p>Open</p>"
    more = f"<tr><td><td>Refusals: {refusals}" if refusals else ""
    return f"<h2>{method} {escape(path)}</h2><p>{escape(operation.summary)}</p>{scope}<table>{answers}{more}</table>"


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
