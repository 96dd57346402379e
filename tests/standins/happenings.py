"""Events that happen to jobs of no images, written as the product writes them, for one account a receiver."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from arachne.database import Database
from arachne.ids import new_id
from arachne.net.policy import webhook_policy
from arachne.net.urls import check_url
from arachne.schemas.tables import Account, Job
from arachne.schemas.webhook import EndpointRequest
from arachne.secretbox import SecretBox
from arachne.settings import Settings
from arachne.webhooks.endpoints import create_endpoint
from arachne.webhooks.outbox import emit_job_event


@dataclass(frozen=True)
class Target:
    """An endpoint and the account it belongs to."""

    account_id: str
    url: str
    secret: str


@dataclass(frozen=True)
class Written:
    """An event as the record holds it."""

    message_id: str
    account_id: str
    body: bytes
    at_s: float


def add_targets(database: Database, box: SecretBox, settings: Settings, urls: Iterable[str]) -> list[Target]:
    """An account with one endpoint for each URL."""
    made = []
    for url in urls:
        account_id = new_id("acc")
        with database.transaction() as transaction:
            session = transaction.session
            session.add(Account(account_id=account_id, name=account_id))
            session.flush()
            checked = check_url(url, webhook_policy(settings))
            endpoint = create_endpoint(session, box, account_id, EndpointRequest(url=url), checked)
        made.append(Target(account_id, url, endpoint.secret))
    return made


def finish_job(database: Database, settings: Settings, account_id: str) -> None:
    """A job has ended, and its event is written in the same transaction."""
    moment = datetime.now(UTC)
    with database.transaction() as transaction:
        job = Job(
            job_id=new_id("job"), account_id=account_id, subject="bench", options={}, total=1, completed=1,
            state="completed", deadline_at=moment + timedelta(days=1), finished_at=moment,
        )  # fmt: skip
        transaction.session.add(job)
        transaction.session.flush()
        emit_job_event(transaction.session, settings, job, "job.completed")


def load_written(database: Database, targets: Iterable[Target]) -> list[Written]:
    """Every event of these accounts."""
    query = text("""
        SELECT message_id, account_id, body, extract(epoch FROM created_at)::float8 AS at_s
        FROM webhook_message WHERE account_id = ANY(:accounts)""")
    with database.transaction() as transaction:
        rows = transaction.session.connection().execute(query, {"accounts": [one.account_id for one in targets]})
        return [Written(row.message_id, row.account_id, bytes(row.body), row.at_s) for row in rows]


def expected(written: Iterable[Written], targets: Iterable[Target], kind: str = "") -> set[tuple[str, str]]:
    """Path and event of all that is to come to targets whose paths begin so."""
    paths = {one.account_id: "/" + one.url.split("/", 3)[3] for one in targets}
    return {(paths[one.account_id], one.message_id) for one in written if paths[one.account_id].startswith(f"/{kind}")}
