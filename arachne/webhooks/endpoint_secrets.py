"""Signing secrets of endpoints and accounts: sealed at rest, rotated with a time in which both sign."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlmodel import Session, col, update

from arachne.errors import Conflict, InvalidOptions, NotFound
from arachne.schemas.job import rfc3339
from arachne.schemas.tables import Account
from arachne.schemas.webhook import SecretView
from arachne.secretbox import SecretBox
from arachne.signatures.signing import new_secret
from arachne.webhooks.endpoints import find_endpoint
from arachne.webhooks.sealing import account_purpose, endpoint_purpose, seal

MAX_GRACE_S = 30 * 86_400
MAX_OLD = 4  # each puts another signature into the header


def rotate_endpoint_secret(
    session: Session, box: SecretBox, account_id: str, endpoint_id: str, *, grace_s: int = 86_400
) -> SecretView:
    """A new secret; the one before it signs beside it for `grace_s` seconds, as do those before that in their grace.

    Without a grace none of them does any more.

    Raises:
        NotFound: no such endpoint of this account.
        InvalidOptions: the grace is negative or too long.
        Conflict: as many old secrets as may sign do so still.
    """
    until = _grace_end(grace_s)
    endpoint = find_endpoint(session, account_id, endpoint_id, for_change=True)
    secret = new_secret()
    kept = _retire(endpoint.secrets_old, endpoint.secrets_old_until, endpoint.secret, until)
    endpoint.secrets_old, endpoint.secrets_old_until = kept
    endpoint.secret = seal(box, secret, endpoint_purpose(endpoint_id))
    session.add(endpoint)
    return SecretView(secret=secret, old_secret_until=max(kept[1], default=None))


def get_default_secret(session: Session, box: SecretBox, account_id: str) -> SecretView:
    """The secret that signs events to jobs' own `webhook` URLs; made when first asked for.

    Raises:
        NotFound: no such account.
    """
    ensure_default_secret(session, box, account_id)
    account = session.get(Account, account_id, populate_existing=True)
    assert account is not None
    assert account.webhook_secret is not None
    now = datetime.now(UTC)
    live = max((until for until in account.webhook_secrets_old_until if until > now), default=None)
    secret = box.decrypt(account.webhook_secret, account_purpose(account_id)).decode()
    return SecretView(secret=secret, old_secret_until=live)


def ensure_default_secret(session: Session, box: SecretBox, account_id: str) -> None:
    """Nothing; afterwards the account has a default secret, whoever raced to make it.

    Raises:
        NotFound: no such account.
    """
    sealed = seal(box, new_secret(), account_purpose(account_id))
    unset = (col(Account.account_id) == account_id) & col(Account.webhook_secret).is_(None)
    session.exec(
        update(Account).where(unset).values(webhook_secret=sealed).execution_options(synchronize_session=False)
    )
    if session.get(Account, account_id) is None:
        raise NotFound("There is no such account.")


def rotate_default_secret(session: Session, box: SecretBox, account_id: str, *, grace_s: int = 86_400) -> SecretView:
    """A new default secret; those before it sign beside it as with an endpoint's.

    Raises:
        NotFound: no such account.
        InvalidOptions: the grace is negative or too long.
        Conflict: as many old secrets as may sign do so still.
    """
    until = _grace_end(grace_s)
    account = session.get(Account, account_id, with_for_update={"key_share": True}, populate_existing=True)
    if account is None:
        raise NotFound("There is no such account.")
    secret = new_secret()
    kept = _retire(account.webhook_secrets_old, account.webhook_secrets_old_until, account.webhook_secret, until)
    account.webhook_secrets_old, account.webhook_secrets_old_until = kept
    account.webhook_secret = seal(box, secret, account_purpose(account_id))
    session.add(account)
    return SecretView(secret=secret, old_secret_until=max(kept[1], default=None))


def _retire(
    old: Sequence[bytes], old_until: Sequence[datetime], current: bytes | None, until: datetime | None
) -> tuple[list[bytes], list[datetime]]:
    """The secrets that go on signing, with their times: a rotation repeated by mistake ends nobody's grace early."""
    if until is None:
        return [], []
    now = datetime.now(UTC)
    kept = [(secret, its_end) for secret, its_end in zip(old, old_until, strict=True) if its_end > now]
    if current is not None:
        _require_room(kept)
        kept.append((current, until))
    return [secret for secret, _ in kept], [its_end for _, its_end in kept]


def _require_room(kept: Sequence[tuple[bytes, datetime]]) -> None:
    if len(kept) >= MAX_OLD:
        ends = min(its_end for _, its_end in kept)
        raise Conflict(
            f"{MAX_OLD} old secrets still sign, the first of them until {rfc3339(ends)}. Rotate again after that, or "
            "now with grace_seconds 0, which ends them all at once."
        )


def _grace_end(grace_s: int) -> datetime | None:
    if not 0 <= grace_s <= MAX_GRACE_S:
        raise InvalidOptions(f"grace_seconds must be 0 to {MAX_GRACE_S}.")
    return datetime.now(UTC) + timedelta(seconds=grace_s) if grace_s else None
