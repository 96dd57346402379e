"""`GET /api/usage`: what the account used, from the ledger."""

from starlette.requests import Request
from starlette.responses import Response

from arachne.http import bodies
from arachne.http.answers import to_json
from arachne.http.exchange import caller_of
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.schemas.queries import UsageQuery
from arachne.schemas.usage import UsageReport
from arachne.usage import report_usage


async def show_usage(request: Request, parts: Parts) -> Response:
    """Sums by day or model."""
    query = bodies.read_query(request.query_params, UsageQuery)
    report = await parts.database.run(
        report_usage, caller_of(request).account_id, start=query.start, end=query.end, group=query.group
    )
    return to_json(report.model_dump(mode="json", by_alias=True))


RESOURCES = (
    Resource(
        "/api/usage",
        {
            "GET": Operation(
                show_usage,
                "What the account used",
                scope="usage:read",
                policy="other",
                answers={200: Answer("Sums of the ledger", UsageReport)},
                query=UsageQuery,
                errors=(422, 503),
            )
        },
    ),
)
