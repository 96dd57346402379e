"""The Ed25519 keys access tokens are signed with: made on first need, rotated without downtime."""

from datetime import UTC, datetime, timedelta

from joserfc.jwk import OKPKey
from sqlmodel import Session, col, or_, select

from arachne.audit import record
from arachne.database import Transaction
from arachne.locks import Lock, lock
from arachne.schemas.tables import SigningKey
from arachne.secretbox import SIGNING_KEY, SecretBox
from arachne.settings import DAY_S

_VERIFIES = timedelta(seconds=DAY_S)  # how long a key that signs no more verifies: no token lives longer


def current_key(session: Session, box: SecretBox) -> OKPKey:
    """The private key to sign with; the first caller ever makes it.

    Raises:
        SetupError: the stored key was encrypted with a secret key that is not ours.
    """
    newest = _newest(session)
    if newest is None:
        lock(Transaction(session), Lock.SIGNING_KEY)  # two processes that both need the first key make one
        newest = _newest(session) or _make(session, box)
    private = box.decrypt(newest.private, SIGNING_KEY)
    return OKPKey.import_key(private, {"kid": newest.kid, "alg": "Ed25519", "use": "sig"})


def ensure_public_keys(session: Session, box: SecretBox) -> list[dict[str, str]]:
    """The JWKs to publish; there is one even before the first token."""
    found = public_keys(session)
    if not found:
        current_key(session, box)
        found = public_keys(session)
    return found


def rotate_keys(session: Session, box: SecretBox, *, withdraw: bool = False) -> str:
    """The id of a new key that signs from now on; the old ones verify until no token of theirs can be alive.

    With `withdraw` they verify nothing any more, once each process has looked again.
    """
    lock(Transaction(session), Lock.SIGNING_KEY)
    now = datetime.now(UTC)
    for row in session.exec(select(SigningKey)):
        row.retired_at = now - _VERIFIES if withdraw else row.retired_at or now
        session.add(row)
    kid = _make(session, box).kid
    record(session, "keys.rotate", target=kid, withdraw=withdraw)
    return kid


def public_keys(session: Session) -> list[dict[str, str]]:
    """The JWKs whose tokens may still be alive, newest first."""
    alive_since = datetime.now(UTC) - _VERIFIES
    retired_at = col(SigningKey.retired_at)
    query = select(SigningKey).where(or_(retired_at.is_(None), retired_at > alive_since))
    return [dict(row.public) for row in session.exec(query.order_by(col(SigningKey.created_at).desc()))]


def _newest(session: Session) -> SigningKey | None:
    query = select(SigningKey).where(col(SigningKey.retired_at).is_(None))
    return session.exec(query.order_by(col(SigningKey.created_at).desc())).first()


def _make(session: Session, box: SecretBox) -> SigningKey:
    key = OKPKey.generate_key("Ed25519")
    kid = key.thumbprint()
    public = {name: str(value) for name, value in key.as_dict(private=False).items()}
    row = SigningKey(
        kid=kid,
        private=box.encrypt(key.as_pem(private=True), SIGNING_KEY),
        public=public | {"kid": kid, "alg": "Ed25519", "use": "sig"},
    )
    session.add(row)
    session.flush()
    return row
