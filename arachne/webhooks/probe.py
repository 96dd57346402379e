"""The `webhook.test` event, written and claimed in one transaction because it is sent at once."""

from datetime import UTC, datetime
from uuid import uuid4

from sqlalchemy import text
from sqlmodel import Session

from arachne.secretbox import SecretBox
from arachne.webhooks.body import freeze
from arachne.webhooks.claim import Claim, load_claims
from arachne.webhooks.endpoints import find_endpoint
from arachne.webhooks.outbox import write_deliveries, write_message

_HOLD = text("""
UPDATE webhook_delivery SET cause = 'test', claim_id = :claim_id, lease_until = now() + make_interval(secs => :lease_s),
                            next_attempt_at = now() + make_interval(secs => :lease_s)
WHERE message_id = :message_id
""")


def claim_test(session: Session, box: SecretBox, account_id: str, endpoint_id: str, *, lease_s: float) -> Claim:
    """A test event for one endpoint, held by the caller who is to send it.

    Raises:
        NotFound: this account has no such endpoint.
    """
    find_endpoint(session, account_id, endpoint_id)
    body = freeze("webhook.test", {"endpoint_id": endpoint_id, "reason": "A test was asked for."}, datetime.now(UTC))
    message_id = write_message(session, account_id, "webhook.test", body)
    assert message_id is not None
    write_deliveries(session, message_id, account_id, [endpoint_id])
    claim_id = uuid4()
    session.connection().execute(_HOLD, {"claim_id": claim_id, "lease_s": lease_s, "message_id": message_id})
    return load_claims(session, box, claim_id)[0]
