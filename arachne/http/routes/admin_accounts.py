"""Accounts, for administrators: made, listed, shown, given a plan, disabled, enabled, erased."""

from collections.abc import Callable
from functools import partial

from sqlmodel import Session
from starlette.requests import Request
from starlette.responses import Response

from arachne import accounts
from arachne.audit import ERASURE_BEGUN, ERASURE_DONE, is_on_record
from arachne.cursors import decode_cursor
from arachne.database import Transaction
from arachne.errors import NotFound
from arachne.http import bodies
from arachne.http.administration import PATH as ROOT
from arachne.http.administration import act, actor_of, operation, page_of, refuse_own_account
from arachne.http.answers import to_json
from arachne.http.operations import Answer, Resource
from arachne.http.parts import Parts
from arachne.ids import is_id
from arachne.jobs.account_erasure import close_account
from arachne.plans import assign_plan
from arachne.schemas.admin import AccountChange, AccountList, AccountRequest, AccountView, ErasingView, NewAccountView
from arachne.schemas.queries import PageQuery
from arachne.schemas.tables import Account

PATH = f"{ROOT}/accounts"
_CURSOR = "accounts"


async def create(request: Request, parts: Parts) -> Response:
    """The new account, with its first client and its secret."""
    wanted = await bodies.read_model(request, AccountRequest)
    made = await act(
        request, parts, lambda session: accounts.create_account(session, wanted.name, plan_id=wanted.plan_id)
    )
    view = NewAccountView(account_id=made.account_id, client_id=made.client_id, client_secret=made.client_secret)
    response = to_json(view.model_dump(mode="json"), 201)
    response.headers["Location"] = f"{parts.settings.base_url}{PATH}/{made.account_id}"
    return response


async def show_all(request: Request, parts: Parts) -> Response:
    """The accounts, oldest first."""
    query = bodies.read_query(request.query_params, PageQuery)
    after = decode_cursor(_CURSOR, query.cursor) or ""

    def read(session: Session) -> tuple[list[AccountView], str | None]:
        found = accounts.list_accounts(session, limit=query.limit + 1, after=after)
        shown, following = page_of(_CURSOR, found, query.limit, lambda account: account.account_id)
        return [_view(session, account) for account in shown], following

    data, following = await act(request, parts, read)
    return to_json(AccountList(data=data, next_cursor=following).model_dump(mode="json"))


async def show_one(request: Request, parts: Parts) -> Response:
    """The account."""
    account_id = account_id_of(request)
    return await _answer(request, parts, lambda session: accounts.find_account(session, account_id))


async def change(request: Request, parts: Parts) -> Response:
    """The account, with another plan."""
    wanted, account_id = await bodies.read_model(request, AccountChange), account_id_of(request)
    return await _answer(request, parts, lambda session: assign_plan(session, account_id, wanted.plan_id))


async def switch(request: Request, parts: Parts, *, enable: bool) -> Response:
    """The account, disabled or enabled."""
    account_id = account_id_of(request)
    if not enable:
        refuse_own_account(request, account_id)
    return await _answer(request, parts, lambda session: accounts.disable_account(session, account_id, enable=enable))


async def erase(request: Request, parts: Parts) -> Response:
    """The account, closed; all that it has goes within minutes, whatever becomes of this process."""
    account_id = account_id_of(request)
    refuse_own_account(request, account_id)
    actor = actor_of(request)

    def close(transaction: Transaction) -> None:
        if is_on_record(transaction.session, account_id, ERASURE_DONE):
            raise NotFound("There is no such account.")
        close_account(transaction, account_id, actor)

    await parts.database.run(close)
    return to_json(ErasingView(account_id=account_id, erasing=True).model_dump(), 202)


def account_id_of(request: Request) -> str:
    """The id in the path.

    Raises:
        NotFound: it can't be one; a name is none.
    """
    account_id: str = request.path_params["account_id"]
    if not is_id(account_id, "acc"):
        raise NotFound("There is no such account.")
    return account_id


async def _answer(request: Request, parts: Parts, work: Callable[[Session], Account]) -> Response:
    view = await act(request, parts, lambda session: _view(session, work(session)))
    return to_json(view.model_dump(mode="json"))


def _view(session: Session, account: Account) -> AccountView:
    session.flush()
    return AccountView(
        account_id=account.account_id,
        name=account.name,
        plan_id=account.plan_id,
        issuer=account.issuer,
        claim=account.claim,
        created_at=account.created_at,
        disabled_at=account.disabled_at,
        erasing=account.disabled_at is not None and is_on_record(session, account.account_id, ERASURE_BEGUN),
    )


RESOURCES = (
    Resource(
        PATH,
        {
            "POST": operation(
                create,
                "A new account with one client; the client's secret is shown only here",
                {201: Answer("The account", NewAccountView, headers=("Location",))},
                body=AccountRequest,
                example={"name": "Example Company", "plan_id": "default"},
                errors=(409,),
            ),
            "GET": operation(
                show_all, "Accounts, oldest first", {200: Answer("A page of accounts", AccountList)}, query=PageQuery
            ),
        },
    ),
    Resource(
        f"{PATH}/{{account_id}}",
        {
            "GET": operation(show_one, "One account", {200: Answer("The account", AccountView)}),
            "PATCH": operation(
                change,
                "Give an account another plan",
                {200: Answer("The account", AccountView)},
                body=AccountChange,
                example={"plan_id": "default"},
                errors=(409,),
            ),
            "DELETE": operation(
                erase,
                "Erase an account: its tokens stop at once, and all it has goes within minutes",
                {202: Answer("It is closed, and being erased", ErasingView)},
                errors=(409,),
            ),
        },
    ),
    Resource(
        f"{PATH}/{{account_id}}/disable",
        {
            "POST": operation(
                partial(switch, enable=False),
                "Refuse all tokens of an account; its data stays",
                {200: Answer("The account", AccountView)},
                errors=(409,),
            )
        },
    ),
    Resource(
        f"{PATH}/{{account_id}}/enable",
        {
            "POST": operation(
                partial(switch, enable=True),
                "Let a disabled account in again",
                {200: Answer("The account", AccountView)},
                errors=(409,),
            )
        },
    ),
)
