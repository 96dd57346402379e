"""What the routes of administrators share: their scope, and that what they do is on record as theirs."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from pydantic import BaseModel
from sqlmodel import Session
from starlette.requests import Request

from arachne.audit import Actor, act_as
from arachne.cursors import encode_cursor
from arachne.database import Transaction
from arachne.errors import Conflict
from arachne.http.exchange import caller_of, exchange_of
from arachne.http.operations import Answer, Endpoint, Operation
from arachne.http.parts import Parts

T = TypeVar("T")
PATH = "/api/admin"


def actor_of(request: Request) -> Actor:
    """Who asks, as it stands on record."""
    caller = caller_of(request)
    return Actor(
        "admin",
        account_id=caller.account_id,
        subject=caller.subject,
        client_id=caller.client_id,
        request_id=exchange_of(request.scope).request_id,
    )


async def act(request: Request, parts: Parts, work: Callable[[Session], T]) -> T:
    """What `work` gives in a transaction of its own."""
    actor = actor_of(request)

    def done(transaction: Transaction) -> T:
        act_as(transaction.session, actor)
        return work(transaction.session)

    return await parts.database.run(done)


def refuse_own_account(request: Request, account_id: str) -> None:
    """Nothing, unless the account is the one the caller acts from.

    Raises:
        Conflict: it is.
    """
    if caller_of(request).account_id == account_id:
        raise Conflict("This is the account you act from. Ask another administrator, or use the command line.")


def page_of(kind: str, rows: list[T], limit: int, key: Callable[[T], str]) -> tuple[list[T], str | None]:
    """The rows of a page, of which one more was asked for than are shown, and the cursor of the next page."""
    shown = rows[:limit]
    return shown, encode_cursor(kind, key(shown[-1])) if len(rows) > limit else None


def operation(
    endpoint: Endpoint,
    summary: str,
    answers: Mapping[int, Answer],
    *,
    body: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
    example: Mapping[str, object] | None = None,
    errors: tuple[int, ...] = (),
) -> Operation:
    """An operation for tokens with the scope `admin` alone."""
    return Operation(
        endpoint, summary, scope="admin", policy="other", answers=answers, body=body, query=query, example=example,
        errors=errors,
    )  # fmt: skip
