"""Many events to many receivers, some of which hang or fail, with the IO worker killed on the way."""

import json

import pytest
from standardwebhooks import Webhook

from arachne.secretbox import open_secret_box
from arachne.settings import Settings
from tests.standins.happenings import Target, Written, add_targets, expected, finish_job, load_written
from tests.standins.hooks import FAILING, HANGING, HEALTHY, Hooks

pytestmark = pytest.mark.chaos
IO = "io.run(Settings.load())"
EVENTS_EACH = 10
PATHS = [f"{HEALTHY}/{n}" for n in range(40)] + [f"{kind}/{n}" for kind in (HANGING, FAILING) for n in range(5)]
EVENTS = EVENTS_EACH * len(PATHS)
SUCCEEDED = "SELECT count(*) FROM webhook_delivery WHERE state = 'succeeded'"
SUCCEEDED_HANGING = (
    "SELECT count(*) FROM webhook_delivery JOIN webhook_endpoint USING (endpoint_id) "
    f"WHERE state = 'succeeded' AND url LIKE '%/{HANGING}/%'"
)


def variables(hooks: Hooks) -> dict[str, str]:
    """Settings that allow the receivers, and try again at once and for long."""
    return {
        "ARACHNE_WEBHOOK_EGRESS_ALLOW": json.dumps([f"127.0.0.1:{hooks.port}"]),
        "ARACHNE_EGRESS_ALLOW_HTTP": "true",
        "ARACHNE_WEBHOOK_TIMEOUT_S": "1",
        "ARACHNE_WEBHOOK_RETRY_SECONDS": json.dumps([0.1] * 500),
    }


def kill_and_end_leases(service, process) -> None:
    """Kill -9, and what the dead one held is free, as it would be after its lease."""
    process.kill()
    process.wait()
    service.scalar(
        "UPDATE webhook_delivery SET lease_until = now(), next_attempt_at = now() "
        "WHERE state = 'pending' AND claim_id IS NOT NULL"
    )


def write_events(service, hooks: Hooks) -> list[Target]:
    """The receivers' endpoints, each with its events due."""
    port = hooks.port
    allowed = Settings(
        webhook_egress_allow=[f"127.0.0.1:{port}"], egress_allow_http=True, public_url="https://a.example"
    )
    box = open_secret_box(service.settings)
    targets = add_targets(service.database, box, allowed, [hooks.url(path) for path in PATHS])
    for _ in range(EVENTS_EACH):
        for target in targets:
            finish_job(service.database, allowed, target.account_id)
    return targets


def test_all_arrive_with_one_id_and_one_body_whoever_hangs_fails_or_dies(service, part_process, eventually) -> None:
    """500 events to 50 receivers, 5 hanging, 5 failing half the time, the worker killed twice on the way.

    The healthy ones get everything while the others still hang. All get everything in the end, each event under one
    id, with the very bytes of the record, and every request verifies with the public library.
    """
    with Hooks() as hooks:
        targets = write_events(service, hooks)
        written = load_written(service.database, targets)
        healthy = expected(written, targets, HEALTHY)
        for enough in (EVENTS // 10, EVENTS // 5):
            with part_process(IO, **variables(hooks)) as victim:
                eventually(lambda enough=enough: len(hooks.received(HEALTHY)) >= enough)
                kill_and_end_leases(service, victim)
        assert not hooks.received(HEALTHY) >= healthy, "all was sent before the worker was killed for the second time"
        with part_process(IO, **variables(hooks)):
            eventually(lambda: hooks.received(HEALTHY) >= healthy)
            assert service.scalar(SUCCEEDED_HANGING) == 0
            hooks.release()
            eventually(lambda: service.scalar(SUCCEEDED) == len(written))
    assert len(written) == EVENTS
    assert_identical(hooks, written, targets)


def assert_identical(hooks: Hooks, written: list[Written], targets: list[Target]) -> None:
    """What arrived is what was written, all of it and nothing else, and genuine each time."""
    bodies = {one.message_id: one.body for one in written}
    assert {one.message_id for one in hooks.arrivals} == bodies.keys()
    assert [one for one in hooks.arrivals if one.body != bodies[one.message_id]] == []
    for kind in (HEALTHY, HANGING, FAILING):
        assert hooks.received(kind) == expected(written, targets, kind)
    secrets = {"/" + one.url.split("/", 3)[3]: one.secret for one in targets}
    for one in hooks.arrivals:
        assert Webhook(secrets[one.path]).verify(one.body, dict(one.headers))["type"] == "job.completed"
