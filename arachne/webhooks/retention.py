"""Endpoints that nothing leads to any more."""

from sqlalchemy import text
from sqlmodel import Session

_UNUSED = """
(deleted_at IS NOT NULL
 OR hidden AND NOT EXISTS (SELECT 1 FROM job WHERE job.webhook_endpoint_id = e.endpoint_id AND job.deleted_at IS NULL))
AND NOT EXISTS (SELECT 1 FROM webhook_delivery d WHERE d.endpoint_id = e.endpoint_id)"""
_LOCK = text(f"""
SELECT endpoint_id FROM webhook_endpoint e WHERE {_UNUSED} ORDER BY endpoint_id LIMIT :limit FOR UPDATE SKIP LOCKED
""")  # noqa: S608
_DROP = text(f"DELETE FROM webhook_endpoint e WHERE endpoint_id = ANY(:endpoint_ids) AND {_UNUSED}")  # noqa: S608


def drop_unused_endpoints(session: Session, limit: int) -> int:
    """Number of endpoints removed, deleted ones and jobs' own, without deliveries and without a job that is shown.

    A retry of a finished job tells the same endpoint. They are looked at again once they are locked: a submission may
    have taken one up meanwhile.
    """
    endpoint_ids = list(session.connection().execute(_LOCK, {"limit": limit}).scalars())
    if not endpoint_ids:
        return 0
    return session.connection().execute(_DROP, {"endpoint_ids": endpoint_ids}).rowcount
