"""Plans and who has which. What is in the ledger keeps the prices it was written with."""

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from arachne.accounts import find_account
from arachne.audit import record
from arachne.errors import Conflict, NotFound
from arachne.schemas.plan import NewPlan, PlanTerms
from arachne.schemas.tables import Account, Plan

# Submissions hold the account's row for a key share, so none is half-way in while this is asked.
_LOCK = text("SELECT 1 FROM account WHERE account_id = :account_id FOR UPDATE")
_OWES_IN = text("""
SELECT EXISTS (SELECT 1 FROM job WHERE account_id = :account_id)
    OR EXISTS (SELECT 1 FROM usage_entry WHERE account_id = :account_id)
""")


def create_plan(session: Session, new: NewPlan) -> Plan:
    """The plan, new.

    Raises:
        Conflict: there is a plan of this name.
    """
    plan = Plan(**new.model_dump())
    try:
        with session.begin_nested():
            session.add(plan)
    except IntegrityError:
        raise Conflict(f"There is a plan {new.plan_id!r} already. Change it, or take another name.") from None
    record(session, "plan.create", target=plan.plan_id, terms=new.model_dump(mode="json", exclude={"plan_id"}))
    return plan


def change_plan(session: Session, plan_id: str, terms: PlanTerms) -> Plan:
    """The plan, with those of the terms that are set; they hold for what comes from now on.

    Raises:
        NotFound: there is no such plan.
    """
    plan = find_plan(session, plan_id, lock=True)
    changes = terms.model_dump(exclude_unset=True)
    for name, value in changes.items():
        setattr(plan, name, value)
    session.add(plan)
    record(session, "plan.change", target=plan_id, terms=terms.model_dump(mode="json", exclude_unset=True))
    return plan


def list_plans(session: Session, *, limit: int | None = None, after: str = "") -> list[Plan]:
    """Plans, by name, from after the one named `after`."""
    query = select(Plan).where(col(Plan.plan_id) > after)
    return list(session.exec(query.order_by(col(Plan.plan_id)).limit(limit)))


def find_plan(session: Session, plan_id: str, *, lock: bool = False) -> Plan:
    """The plan of that name.

    Raises:
        NotFound: there is none.
    """
    plan = session.get(Plan, plan_id, with_for_update=lock)
    if plan is None:
        raise NotFound(f"There is no plan {plan_id!r}. `arachne plan list` shows all.")
    return plan


def assign_plan(session: Session, account: str, plan_id: str) -> Account:
    """The account of that name or id, with this plan for whatever is finished from now on.

    Raises:
        NotFound: there is no such account or plan.
        Conflict: the account has begun to owe in another currency.
    """
    found = find_account(session, account)
    session.execute(_LOCK, {"account_id": found.account_id})
    session.refresh(found)
    former, plan = find_plan(session, found.plan_id), find_plan(session, plan_id)
    if former.currency != plan.currency and session.scalar(_OWES_IN, {"account_id": found.account_id}):
        raise Conflict(
            f"{found.name} is charged in {former.currency}, and {plan_id!r} is in {plan.currency}. "
            "An account's bills are in one currency: take a plan in it, or make a new account."
        )
    found.plan_id = plan.plan_id
    session.add(found)
    record(session, "account.plan", account_id=found.account_id, **{"from": former.plan_id, "to": plan.plan_id})
    return found
