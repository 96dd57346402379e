"""Who did what to accounts, clients, plans, tokens and keys: the operators' log, which only ever grows.

Who acts belongs to a session, so that no function on the way can forget or change it. Secrets never come here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session, col, select

from arachne.ids import new_id
from arachne.schemas.admin import ActorKind, ActorView, ActView
from arachne.schemas.tables import AuditLog

ERASURE_BEGUN, ERASURE_DONE = "account.erase", "account.erased"
_KEY = "arachne.actor"


@dataclass(frozen=True)
class Actor:
    """Who acts: an `operator` with the database at a command line, an `admin` by a token with that scope.

    The `service` goes on by itself with what one of them began.
    """

    kind: ActorKind
    os_user: str | None = None
    command: str | None = None
    account_id: str | None = None
    subject: str | None = None
    client_id: str | None = None
    request_id: str | None = None


OPERATOR, SERVICE = Actor("operator"), Actor("service")


@dataclass(frozen=True)
class Wanted:
    """Which acts: of one account, of one kind, from a moment on."""

    account_id: str | None = None
    action: str | None = None
    since: datetime | None = None


def act_as(session: Session, actor: Actor) -> None:
    """Nothing; what is done in this session is on record as this actor's."""
    session.info[_KEY] = actor


def acting_in(session: Session) -> Actor:
    """Who acts in this session."""
    found = session.info.get(_KEY, OPERATOR)
    assert isinstance(found, Actor)
    return found


def record(
    session: Session, action: str, *, account_id: str | None = None, target: str | None = None, **detail: object
) -> None:
    """Nothing; the act is on record if the transaction commits. `target` is the id of what it was done to."""
    actor = acting_in(session)
    session.add(
        AuditLog(
            audit_id=new_id("aud"),
            actor=actor.kind,
            os_user=actor.os_user,
            command=actor.command,
            actor_account_id=actor.account_id,
            subject=actor.subject,
            client_id=actor.client_id,
            request_id=actor.request_id,
            action=action,
            account_id=account_id,
            target=target or account_id,
            detail=detail,
        )
    )


def list_acts(session: Session, wanted: Wanted, *, limit: int, before: str | None = None) -> Sequence[AuditLog]:
    """Acts, newest first, from before the id `before`."""
    query = select(AuditLog).order_by(col(AuditLog.audit_id).desc()).limit(limit)
    if before is not None:
        query = query.where(col(AuditLog.audit_id) < before)
    if wanted.account_id is not None:
        query = query.where(AuditLog.account_id == wanted.account_id)
    if wanted.action is not None:
        query = query.where(AuditLog.action == wanted.action)
    if wanted.since is not None:
        query = query.where(col(AuditLog.at) >= wanted.since)
    return session.exec(query).all()


def is_on_record(session: Session, account_id: str, action: str) -> bool:
    """Whether this was ever done to the account."""
    query = select(AuditLog.audit_id).where(AuditLog.account_id == account_id, AuditLog.action == action)
    return session.exec(query).first() is not None


def view_act(one: AuditLog) -> ActView:
    """The act as it is shown."""
    actor = ActorView.model_validate(
        {
            "kind": one.actor,
            "os_user": one.os_user,
            "command": one.command,
            "account_id": one.actor_account_id,
            "subject": one.subject,
            "client_id": one.client_id,
        }
    )
    return ActView(
        audit_id=one.audit_id,
        at=one.at,
        actor=actor,
        action=one.action,
        account_id=one.account_id,
        target=one.target,
        request_id=one.request_id,
        detail=one.detail,
    )
