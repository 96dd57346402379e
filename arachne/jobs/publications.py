"""What the workers are, as they publish it for the API: the versions that cached results depend on, and languages."""

import json

from sqlalchemy import text

from arachne.database import Transaction
from arachne.versions import Published

__all__ = ["Published", "publish", "published"]

_PUBLISH = text("""
INSERT INTO publication (name, value) VALUES (:name, CAST(:value AS jsonb))
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, published_at = now()
WHERE publication.value IS DISTINCT FROM EXCLUDED.value
""")
_PUBLISHED = text(
    "SELECT name, value FROM publication WHERE name IN ('pipeline_version', 'languages', 'model_version')"
)


def publish(transaction: Transaction, facts: Published) -> None:
    """The API knows these facts from now on."""
    values = {
        "pipeline_version": {"value": facts.pipeline_version},
        "languages": {"value": list(facts.languages)},
        "model_version": {"value": dict(facts.model_versions)},
    }
    for name, value in sorted(values.items()):
        transaction.session.execute(_PUBLISH, {"name": name, "value": json.dumps(value)})


def published(transaction: Transaction) -> Published | None:
    """What workers published last, None before any did. It outlives them."""
    rows = transaction.session.execute(_PUBLISHED)
    values = {row.name: row.value["value"] for row in rows}
    if "pipeline_version" not in values:
        return None
    return Published(values["pipeline_version"], tuple(values.get("languages", ())), values.get("model_version", {}))
