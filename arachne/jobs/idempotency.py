"""`Idempotency-Key`: the first request with a key makes the job, every other one gets that job.

The key is reserved and committed when the headers are in, so that a second request that comes while the first is
still being read is told so. The request renews its lease while it is read; when its process dies, the key is free
seconds later.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID, uuid4

from sqlalchemy import text

from arachne.database import Transaction
from arachne.errors import IdempotencyKeyInUse, IdempotencyKeyReused
from arachne.settings import Settings

LEASE_S = 15.0
RENEW_S = 5.0

_RESERVE = text("""
INSERT INTO idempotency_key (account_id, key, holder, lease_until, expires_at)
VALUES (:account_id, :key, :holder, now() + make_interval(secs => :lease_s), now() + make_interval(secs => :ttl_s))
ON CONFLICT (account_id, key) DO UPDATE
SET fingerprint = NULL, job_id = NULL, holder = EXCLUDED.holder,
    lease_until = EXCLUDED.lease_until, expires_at = EXCLUDED.expires_at
WHERE idempotency_key.expires_at <= now()
   OR (idempotency_key.job_id IS NULL AND idempotency_key.lease_until <= now())
RETURNING holder
""")
_FIND = text("SELECT fingerprint, job_id FROM idempotency_key WHERE account_id = :account_id AND key = :key")
_TAKEN = text("""
SELECT EXISTS (SELECT 1 FROM idempotency_key WHERE account_id = :account_id AND key = :key AND expires_at > now()
               AND (job_id IS NOT NULL OR lease_until > now()))
""")
_COMPLETE = text("""
UPDATE idempotency_key SET job_id = :job_id, fingerprint = :fingerprint
WHERE account_id = :account_id AND key = :key AND job_id IS NULL AND holder = :holder
""")
_RENEW = text("""
UPDATE idempotency_key SET lease_until = now() + make_interval(secs => :lease_s)
WHERE account_id = :account_id AND key = :key AND job_id IS NULL AND holder = :holder
""")
_RELEASE = text("""
DELETE FROM idempotency_key
WHERE account_id = :account_id AND key = :key AND job_id IS NULL AND holder = :holder
""")


@dataclass(frozen=True)
class Reservation:
    """A key held for one request; `holder` is the fence."""

    account_id: str
    key: str
    holder: UUID


@dataclass(frozen=True)
class Remembered:
    """The submission a key belongs to already."""

    job_id: str
    fingerprint: bytes

    def check(self, fingerprint: bytes) -> None:
        """Nothing, where a repeat is the same request.

        Raises:
            IdempotencyKeyReused: it is another one.
        """
        if fingerprint != self.fingerprint:
            raise IdempotencyKeyReused("This Idempotency-Key belongs to another request. Use a new key for a new one.")


def reserve(transaction: Transaction, account_id: str, key: str, settings: Settings) -> Reservation | Remembered:
    """The key, held for this request, or what it stands for already.

    Raises:
        IdempotencyKeyInUse: the first request with it is still being accepted.
    """
    held = Reservation(account_id, key, uuid4())
    values = {**vars(held), "lease_s": LEASE_S, "ttl_s": settings.idempotency_ttl_s}
    if transaction.session.scalar(_RESERVE, values) is not None:
        return held
    found = transaction.session.execute(_FIND, {"account_id": account_id, "key": key}).first()
    if found is None or found.job_id is None:
        raise _in_use()
    return Remembered(found.job_id, bytes(found.fingerprint))


def renew(transaction: Transaction, reservation: Reservation) -> None:
    """The key stays held for another lease; nothing, where it stands for a job by now or was taken over."""
    transaction.session.execute(_RENEW, {**vars(reservation), "lease_s": LEASE_S})


def is_taken(transaction: Transaction, account_id: str, key: str) -> bool:
    """Whether the key stands for a job or for a request being accepted, so that another with it makes no new job."""
    return bool(transaction.session.scalar(_TAKEN, {"account_id": account_id, "key": key}))


def complete(transaction: Transaction, reservation: Reservation, fingerprint: bytes, job_id: str) -> None:
    """The key stands for this job from now on.

    Raises:
        IdempotencyKeyInUse: the lease ended meanwhile and another request took the key over.
    """
    values = {**vars(reservation), "fingerprint": fingerprint, "job_id": job_id}
    if transaction.session.connection().execute(_COMPLETE, values).rowcount != 1:
        raise _in_use()


def release(transaction: Transaction, reservation: Reservation) -> None:
    """The key is free again: refused submissions are not remembered."""
    transaction.session.execute(_RELEASE, vars(reservation))


def compute_fingerprint(route: str, images: Sequence[tuple[str, str | None]], terms: object) -> bytes:
    """What makes two requests the same: route, ordered (hash or URL, name) of the images, and canonical terms."""
    told = json.dumps([route, images, terms], sort_keys=True, separators=(",", ":"))
    return sha256(told.encode()).digest()


def _in_use() -> IdempotencyKeyInUse:
    message = "The first request with this Idempotency-Key is still being accepted. Repeat it soon."
    return IdempotencyKeyInUse(message, retry_after_s=1)
