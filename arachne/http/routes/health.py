"""`/healthz`: the process lives. `/readyz`: what it needs is there, states only."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.schemas.health import Health, Readiness


async def show_health(_request: Request, _parts: Parts) -> Response:
    """Always `ok`: whoever can answer lives."""
    return JSONResponse(Health(status="ok").model_dump())


async def show_readiness(_: Request, parts: Parts) -> Response:
    """200 `ok` or `degraded`; 503 when nothing could be accepted."""
    found = await parts.readiness.look()
    down = found.status == "unavailable"
    return JSONResponse(found.model_dump(), 503 if down else 200, headers={"Retry-After": "5"} if down else {})


RESOURCES = (
    Resource(
        "/healthz",
        {
            "GET": Operation(
                show_health,
                "Whether the process lives",
                scope=None,
                policy=None,
                answers={200: Answer("It does", Health)},
            )
        },
    ),
    Resource(
        "/readyz",
        {
            "GET": Operation(
                show_readiness,
                "Whether the service can do its work",
                scope=None,
                policy=None,
                answers={
                    200: Answer("It can, if perhaps degraded", Readiness),
                    503: Answer("It can't", Readiness, headers=("Retry-After",)),
                },
            )
        },
    ),
)
