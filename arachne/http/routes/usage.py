"""`/api/usage`: what the account used, and its monthly statement, from the ledger."""

from datetime import UTC, date, datetime

from starlette.requests import Request
from starlette.responses import Response

from arachne.http import bodies
from arachne.http.answers import to_json
from arachne.http.exchange import caller_of
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.schemas.queries import StatementQuery, UsageQuery
from arachne.schemas.usage import Statement, UsageReport
from arachne.statement import make_statement
from arachne.usage import report_usage


async def show_usage(request: Request, parts: Parts) -> Response:
    """Sums by day or model."""
    query = bodies.read_query(request.query_params, UsageQuery)
    report = await parts.database.run(
        report_usage, caller_of(request).account_id, start=query.start, end=query.end, group=query.group
    )
    return to_json(report.model_dump(mode="json", by_alias=True))


async def show_statement(request: Request, parts: Parts) -> Response:
    """A month's lines and what is due."""
    query = bodies.read_query(request.query_params, StatementQuery)
    month = datetime.now(UTC).date() if query.month is None else date.fromisoformat(f"{query.month}-01")
    statement = await parts.database.run(make_statement, caller_of(request).account_id, month)
    return to_json(statement.model_dump(mode="json"))


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
                errors=(409,),
            )
        },
    ),
    Resource(
        "/api/usage/statement",
        {
            "GET": Operation(
                show_statement,
                "What the account owes for a month",
                scope="usage:read",
                policy="other",
                answers={200: Answer("The month's ledger by kind and price, and its sum", Statement)},
                query=StatementQuery,
                errors=(409,),
            )
        },
    ),
)
