"""Accounts erased: all they have is gone, whoever cuts it short, and nobody else misses anything."""

from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from arachne.audit import OPERATOR, Actor
from arachne.errors import Gone, NotFound
from arachne.jobs import account_erasure
from arachne.jobs.account_erasure import erase_account
from tests.core.jobs.erasing import digest_of, everything, finish


def fill(queue: Any, account: str) -> None:
    """Rows of every kind for the account, besides a job's."""
    account_id = queue.account(account)
    for statement in (
        (
            "INSERT INTO api_client (client_id, account_id, name, scopes, secret_hash) "
            "VALUES ('cli_' || :it, :it, 'x', '{}', 'x')"
        ),
        (
            "INSERT INTO idempotency_key (account_id, key, holder, lease_until, expires_at) "
            "VALUES (:it, 'k', gen_random_uuid(), now(), now() + interval '1 day')"
        ),
        (
            "INSERT INTO api_usage_log (at, request_id, account_id, subject, method, route, status, ms, bytes_in, "
            "bytes_out) VALUES (now(), 'req_' || :it, :it, 'tester', 'GET', '/', 200, 1, 0, 0)"
        ),
        (
            "INSERT INTO webhook_endpoint (endpoint_id, account_id, url, events, enabled, hidden, max_in_flight) "
            "VALUES ('whe_' || :it, :it, 'https://example.com/' || :it, '{}', true, false, 1)"
        ),
        (
            "INSERT INTO webhook_message (message_id, account_id, type, body) "
            "VALUES ('msg_' || :it, :it, 'webhook.test', '{}')"
        ),
        (
            "INSERT INTO webhook_delivery (message_id, endpoint_id, account_id, state, attempts) "
            "VALUES ('msg_' || :it, 'whe_' || :it, :it, 'succeeded', 1)"
        ),
        (
            "INSERT INTO webhook_attempt (at, attempt_id, message_id, endpoint_id, account_id, number, cause, "
            "ms, response) SELECT now(), 'att_' || n || :it, CASE n WHEN 1 THEN 'msg_' || :it ELSE 'msg_gone' END, "
            "'whe_' || :it, :it, 1, 'event', 1, 'thanks' FROM generate_series(1, 2) n"
        ),
        "INSERT INTO served (account_id, tag) VALUES (:it, 1) ON CONFLICT DO NOTHING",
    ):
        queue.column(statement, it=account_id)


async def test_an_account_is_erased_and_others_keep_what_they_have(queue, storage, store) -> None:
    """Open jobs too. The id stands by sums and by what operators did, nowhere else; the neighbour misses nothing."""
    await store("mine", "ours")
    finish(queue, "mine", "ours")
    queue.submit("still waiting")
    finish(queue, "ours", account="neighbour")
    for account in ("somebody", "neighbour"):
        fill(queue, account)
    account_id, neighbour = queue.account(), queue.account("neighbour")
    before = everything(queue).count(neighbour)
    erased = erase_account(queue.database, storage, queue.settings, "somebody")
    assert (erased.account_id, erased.jobs, erased.results) == (account_id, 2, 0)
    left = everything(queue)
    assert left.count(neighbour) == before
    assert digest_of("mine") not in left
    assert storage.read(digest_of("ours")) == b"ours"
    with pytest.raises(Gone):
        storage.read(digest_of("mine"))
    assert queue.column("SELECT account_id, subject FROM usage_entry WHERE subject = ''") == [account_id] * 2
    assert queue.column("SELECT action FROM audit_log ORDER BY at") == ["account.erase", "account.erased"]
    assert left.count(account_id) == 2 + 2 * 2  # in two entries of the ledger, twice in two of the record
    again = erase_account(queue.database, storage, queue.settings, account_id)
    assert (again.jobs, again.events) == (0, 0)
    with pytest.raises(NotFound):
        erase_account(queue.database, storage, queue.settings, "somebody")


def test_an_erasure_of_an_account_is_run_again_after_a_kill(queue, storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it was cut, the account is closed already, and the next run finds what is left."""
    for content in ("a", "b", "c"):
        finish(queue, content)
    fill(queue, "somebody")
    steps = ["_erase_jobs", "_drop_results", "_drop_events", "_drop_account", "_drop_rows"]
    for name in steps:
        with monkeypatch.context() as patched:

            def cut(*_: object) -> int:
                raise KeyboardInterrupt

            patched.setattr(account_erasure, name, cut)
            with pytest.raises(KeyboardInterrupt):
                erase_account(queue.database, storage, queue.settings, queue.account())
        assert queue.column("SELECT count(*) FROM api_client") == [0]
        assert queue.column("SELECT count(*) FROM account WHERE disabled_at IS NULL") == [0]
    assert queue.column("SELECT count(*) FROM account") == [0]
    erase_account(queue.database, storage, queue.settings, queue.account())
    assert queue.column("SELECT count(*) FROM api_usage_log") == [0]
    assert queue.column("SELECT count(*) FROM webhook_attempt") == [0]
    assert queue.column("SELECT action FROM audit_log ORDER BY at") == ["account.erase", "account.erased"]


def test_what_a_command_left_is_gone_on_with_once_it_has_surely_ended(queue, storage) -> None:
    """Not while it may still run; what an administrator asked for is begun at once."""
    finish(queue, "a")
    go_on = partial(account_erasure.continue_account_erasures, queue.database, storage, queue.settings)
    queue.database.run(account_erasure.close_account, queue.account(), OPERATOR)
    assert go_on() == 0
    other = queue.account("neighbour")
    queue.database.run(account_erasure.close_account, other, Actor("admin"))
    assert go_on() == 1
    assert queue.column("SELECT account_id FROM account") == [queue.account()]
    with queue.database.transaction() as transaction:
        transaction.session.execute(text("SET LOCAL session_replication_role = replica"))  # the record is append-only
        transaction.session.execute(text("UPDATE audit_log SET at = at - interval '2 hours'"))
    assert (go_on(), go_on()) == (1, 0)
    assert queue.column("SELECT account_id FROM account") == []


def test_a_job_that_was_let_in_meanwhile_is_erased_too(queue, storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepted before the account was closed and read after its jobs were looked for, its result ends with it."""
    finish(queue, "early")
    erase_jobs, late = account_erasure._erase_jobs, []

    def let_one_in(*given: Any) -> int:
        erased = erase_jobs(*given)
        late.extend([] if late else [finish(queue, "late")])
        return erased

    monkeypatch.setattr(account_erasure, "_erase_jobs", let_one_in)
    erased = erase_account(queue.database, storage, queue.settings, "somebody")
    assert erased.jobs == len(late) + 1 == 2
    for table in ("account", "job", "image", "image_result"):
        assert queue.column(f"SELECT count(*) FROM {table}") == [0]


def test_shared_results_pass_to_those_who_have_them(queue, storage) -> None:
    """Where accounts share the cache, one that is erased takes along only what nobody else has."""
    job_id = finish(queue, "shared", "alone")
    other = queue.submit("shared", account="neighbour")
    result_id = queue.images(job_id)[0].result_id
    queue.column("UPDATE image SET state = 'completed', result_id = :result WHERE job_id = :it", it=other,
                 result=result_id)  # fmt: skip
    erase_account(queue.database, storage, queue.settings, "somebody")
    rows = queue.column("SELECT account_id FROM image_result")
    assert rows == [queue.account("neighbour")]
    assert queue.images(other)[0].result_id == result_id
