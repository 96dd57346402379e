"""What the workers are, as they publish it for the API: the versions that cached results depend on, and languages.

Whichever worker claims an image has to be able to read it, so the API offers the languages that all living ones have.
"""

import json
from collections.abc import Mapping

from sqlalchemy import text

from arachne.database import Transaction
from arachne.versions import Published

__all__ = ["Published", "model_versions", "publish", "publish_models", "published"]

_PUBLISH = text("""
INSERT INTO publication (name, value) VALUES (:name, CAST(:value AS jsonb))
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, published_at = now()
WHERE publication.value IS DISTINCT FROM EXCLUDED.value
""")
# Whoever knows one model's version must not take away what is known of another.
_PUBLISH_MODELS = text("""
INSERT INTO publication (name, value) VALUES ('model_version', jsonb_build_object('value', CAST(:versions AS jsonb)))
ON CONFLICT (name) DO UPDATE
SET value = jsonb_set(publication.value, '{value}', publication.value -> 'value' || CAST(:versions AS jsonb)),
    published_at = now()
WHERE NOT publication.value -> 'value' @> CAST(:versions AS jsonb)
""")
_PUBLISHED = text(
    "SELECT name, value FROM publication WHERE name IN ('pipeline_version', 'languages', 'model_version')"
)
_MODELS = text("SELECT value -> 'value' FROM publication WHERE name = 'model_version'")
_LANGUAGES = text("SELECT languages FROM worker WHERE languages IS NOT NULL ORDER BY worker_id")


def publish(transaction: Transaction, facts: Published) -> None:
    """The API knows these facts from now on, and of models that aren't among them what it knew before."""
    values = {
        "languages": {"value": list(facts.languages)},
        "pipeline_version": {"value": facts.pipeline_version},
    }
    for name, value in sorted(values.items()):
        transaction.session.execute(_PUBLISH, {"name": name, "value": json.dumps(value)})
    if facts.model_versions:
        publish_models(transaction, facts.model_versions)


def publish_models(transaction: Transaction, versions: Mapping[str, str]) -> None:
    """The API keys the results of these models by these versions from now on."""
    transaction.session.execute(_PUBLISH_MODELS, {"versions": json.dumps(dict(versions))})


def model_versions(transaction: Transaction) -> dict[str, str]:
    """The version of each model that was published last, also while its server is down."""
    return dict(transaction.session.scalar(_MODELS) or {})


def published(transaction: Transaction) -> Published | None:
    """What workers published last, None before any did. It outlives them; of living ones the common languages count."""
    rows = transaction.session.execute(_PUBLISHED)
    values = {row.name: row.value["value"] for row in rows}
    if "pipeline_version" not in values:
        return None
    languages = _common(transaction) or tuple(values.get("languages", ()))
    return Published(values["pipeline_version"], languages, values.get("model_version", {}))


def _common(transaction: Transaction) -> tuple[str, ...]:
    """The languages every living worker reads, in the first one's order; none where none lives or says."""
    first, *others = [*transaction.session.scalars(_LANGUAGES)] or [[]]
    return tuple(code for code in first if all(code in other for other in others))
