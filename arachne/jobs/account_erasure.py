"""Erasing an account: its tokens stop working first, then all it has goes in batches, and the account itself last.

Each batch is a short transaction that finds its rows by the account's id, so that a run that was killed is simply run
again. What stays under that id, which by then says nothing of anybody: the ledger's amounts, without who sent the
images, and the operators' log.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import TextClause, text

from arachne.accounts import find_account
from arachne.audit import ERASURE_BEGUN, ERASURE_DONE, OPERATOR, SERVICE, Actor, act_as, is_on_record, record
from arachne.database import Database, Transaction
from arachne.errors import NotFound, Unavailable
from arachne.jobs.erasure import drop_unused_results, erase_job, request_erasure
from arachne.settings import Settings
from arachne.storage import Storage

BATCH = 1000
_ROUNDS = 10  # a submission that was let in before the account was closed may make a job meanwhile
_CLOSE = text("""
UPDATE account SET disabled_at = coalesce(disabled_at, now()), webhook_secret = NULL, webhook_secrets_old = '{}',
                   webhook_secrets_old_until = '{}' WHERE account_id = :account_id
""")
_DROP_CLIENTS = text("DELETE FROM api_client WHERE account_id = :account_id")
_JOBS = text("SELECT job_id FROM job WHERE account_id = :account_id ORDER BY job_id LIMIT :batch")
_DROP_JOB = text("DELETE FROM job WHERE job_id = :job_id AND NOT erasing")
_RESULTS = text("""
SELECT result_id FROM image_result WHERE account_id = :account_id ORDER BY result_id LIMIT :batch FOR UPDATE
""")
# Where accounts share the cache, others may have results of this one: they are theirs from now on.
_HAND_OVER = text("""
UPDATE image_result r SET account_id = image.account_id FROM image
WHERE r.result_id = ANY(:result_ids) AND image.result_id = r.result_id AND image.account_id <> :account_id
""")
_MESSAGES = text("SELECT message_id FROM webhook_message WHERE account_id = :account_id LIMIT :batch")
_DROP_DELIVERIES = text("DELETE FROM webhook_delivery WHERE message_id = ANY(:message_ids)")
_DROP_MESSAGES = text("DELETE FROM webhook_message WHERE message_id = ANY(:message_ids)")
_DROP_ATTEMPTS = text("DELETE FROM webhook_attempt WHERE message_id = ANY(:message_ids)")
_DROP_ENDPOINTS = text("""
DELETE FROM webhook_endpoint e WHERE account_id = :account_id
   AND NOT EXISTS (SELECT 1 FROM webhook_delivery d WHERE d.endpoint_id = e.endpoint_id)
""")
_LOCK_ACCOUNT = text("SELECT 1 FROM account WHERE account_id = :account_id FOR UPDATE")
_LEFT = text("""
SELECT EXISTS (SELECT 1 FROM job WHERE account_id = :account_id)
    OR EXISTS (SELECT 1 FROM webhook_endpoint WHERE account_id = :account_id)
    OR EXISTS (SELECT 1 FROM api_client WHERE account_id = :account_id)
""")
_DROP_ACCOUNT = text("DELETE FROM account WHERE account_id = :account_id")
_LOGS = (
    text("""
DELETE FROM webhook_attempt WHERE (at, attempt_id) IN (
    SELECT at, attempt_id FROM webhook_attempt WHERE account_id = :account_id LIMIT :batch)
"""),
    text("""
DELETE FROM api_usage_log WHERE (at, request_id) IN (
    SELECT at, request_id FROM api_usage_log WHERE account_id = :account_id LIMIT :batch)
"""),
    text("""
DELETE FROM idempotency_key WHERE (account_id, key) IN (
    SELECT account_id, key FROM idempotency_key WHERE account_id = :account_id LIMIT :batch)
"""),
    text("""
UPDATE usage_entry SET subject = '' WHERE entry_id = ANY(ARRAY(
    SELECT entry_id FROM usage_entry WHERE account_id = :account_id AND subject <> '' LIMIT :batch))
"""),
)
# A command erases by itself; what it left is gone on with once it has surely ended.
_TO_ERASE = text("""
SELECT account_id FROM audit_log begun
WHERE action = :begun AND (actor = 'admin' OR at < now() - interval '1 hour')
  AND NOT EXISTS (SELECT 1 FROM audit_log ended WHERE ended.account_id = begun.account_id AND action = :done)
ORDER BY audit_id
""")


@dataclass(frozen=True)
class ErasedAccount:
    """The account that is gone, and how many of its jobs, results and events went in this run."""

    account_id: str
    jobs: int
    results: int
    events: int


def erase_account(
    database: Database,
    storage: Storage,
    settings: Settings,
    name: str,
    *,
    actor: Actor = OPERATOR,
) -> ErasedAccount:
    """The account of that name or id, of which nothing is left but sums. Whoever has the same pictures keeps them.

    Raises:
        NotFound: there is no such account.
        Unavailable: something can't be erased just now; run again, it goes on from there.
    """
    account_id = database.run(close_account, name, actor)
    jobs = results = events = 0
    for _ in range(_ROUNDS):
        jobs += _erase_jobs(database, storage, settings, account_id)
        results += _repeat(database, _drop_results, account_id)
        events += _repeat(database, _drop_events, account_id)
        if database.run(_drop_account, account_id):
            break
    else:
        raise Unavailable("The account goes on getting jobs. Run this again in a minute.", retry_after_s=60)
    for statement in _LOGS:  # after the account itself: nobody writes them for an account that is not there
        _repeat(database, _drop_rows, account_id, statement)
    erased = ErasedAccount(account_id, jobs, results, events)
    database.run(_note_end, erased, actor)
    return erased


def close_account(transaction: Transaction, name: str, actor: Actor) -> str:
    """The id of the account of that name or id, closed: no token of its works any more, and it is to be erased.

    Raises:
        NotFound: there is no such account.
    """
    session = transaction.session
    act_as(session, actor)
    account_id = _find(transaction, name)
    session.execute(_CLOSE, {"account_id": account_id})
    session.execute(_DROP_CLIENTS, {"account_id": account_id})
    if not is_on_record(session, account_id, ERASURE_BEGUN):
        record(session, ERASURE_BEGUN, account_id=account_id)
    return account_id


def continue_account_erasures(database: Database, storage: Storage, settings: Settings) -> int:
    """Number of accounts found that were still to be erased; what can't be erased now is left to the next time."""
    acts = {"begun": ERASURE_BEGUN, "done": ERASURE_DONE}
    account_ids = database.run(lambda transaction: list(transaction.session.scalars(_TO_ERASE, acts)))
    for account_id in account_ids:
        with suppress(Unavailable, NotFound):
            erase_account(database, storage, settings, account_id, actor=SERVICE)
    return len(account_ids)


def _note_end(transaction: Transaction, erased: ErasedAccount, actor: Actor) -> None:
    if is_on_record(transaction.session, erased.account_id, ERASURE_DONE):
        return
    act_as(transaction.session, actor)
    record(
        transaction.session,
        ERASURE_DONE,
        account_id=erased.account_id,
        jobs=erased.jobs,
        results=erased.results,
        events=erased.events,
    )


def _find(transaction: Transaction, name: str) -> str:
    """The account's id; also where a run that was killed had dropped all but what is dropped last."""
    try:
        return find_account(transaction.session, name).account_id
    except NotFound:
        if not is_on_record(transaction.session, name, ERASURE_BEGUN):
            raise
        return name


def _erase_jobs(database: Database, storage: Storage, settings: Settings, account_id: str) -> int:
    erased = 0
    while job_ids := database.run(_find_jobs, account_id):
        for job_id in job_ids:
            database.run(request_erasure, account_id, job_id)
            erase_job(database, storage, settings, job_id)
            database.run(_execute, _DROP_JOB, job_id=job_id)
        erased += len(job_ids)
    return erased


def _find_jobs(transaction: Transaction, account_id: str) -> list[str]:
    return list(transaction.session.scalars(_JOBS, {"account_id": account_id, "batch": BATCH}))


def _drop_results(transaction: Transaction, account_id: str) -> int:
    """Number of results that are the account's no more; those of a job made meanwhile go with that job."""
    result_ids = list(transaction.session.scalars(_RESULTS, {"account_id": account_id, "batch": BATCH}))
    if not result_ids:
        return 0
    dropped = drop_unused_results(transaction, result_ids)
    return len(dropped) + _execute(transaction, _HAND_OVER, result_ids=result_ids, account_id=account_id)


def _drop_events(transaction: Transaction, account_id: str) -> int:
    """Attempts go last: by then those that were being recorded are on record, and no more will be."""
    message_ids = list(transaction.session.scalars(_MESSAGES, {"account_id": account_id, "batch": BATCH}))
    for statement in (_DROP_DELIVERIES, _DROP_MESSAGES, _DROP_ATTEMPTS) if message_ids else ():
        _execute(transaction, statement, message_ids=message_ids)
    return len(message_ids)


def _drop_account(transaction: Transaction, account_id: str) -> bool:
    """Whether the account is gone; not while a job or an endpoint was made that it has to keep."""
    _execute(transaction, _DROP_ENDPOINTS, account_id=account_id)
    transaction.session.execute(_LOCK_ACCOUNT, {"account_id": account_id})
    if transaction.session.scalar(_LEFT, {"account_id": account_id}):
        return False
    _execute(transaction, _DROP_ACCOUNT, account_id=account_id)
    return True


def _drop_rows(transaction: Transaction, account_id: str, statement: TextClause) -> int:
    return _execute(transaction, statement, account_id=account_id, batch=BATCH)


def _repeat(database: Database, step: Callable[..., int], *values: object) -> int:
    done = 0
    while number := database.run(step, *values):
        done += number
    return done


def _execute(transaction: Transaction, statement: TextClause, /, **values: str | int | Sequence[str]) -> int:
    return transaction.session.connection().execute(statement, values).rowcount
