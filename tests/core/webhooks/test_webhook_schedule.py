"""When a delivery is tried again, decided without clock or database."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arachne.retry_after import parse_retry_after
from arachne.schemas.webhook import Failure
from arachne.settings import Settings
from arachne.webhooks.claim import Claim
from arachne.webhooks.schedule import decide
from arachne.webhooks.sending import Outcome

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEDULE = Settings().webhook_retry_seconds


def claim(charged: int = 0, *, hidden: bool = False, age_s: float = 0, is_test: bool = False) -> Claim:
    """A delivery with so many attempts of its schedule behind it."""
    return Claim(
        claim_id=uuid4(),
        message_id="msg_1",
        endpoint_id="whe_1",
        account_id="acc_1",
        event="job.completed",
        url="https://hooks.example.com/",
        hidden=hidden,
        body=b"{}",
        secrets=(),
        charged=charged,
        age_s=age_s,
        is_test=is_test,
    )


def outcome(status: int | None = 500, failure: Failure | None = "http", retry_after: str | None = None) -> Outcome:
    """What an attempt came to."""
    return Outcome(NOW, 5, status, failure, None, retry_after)


def test_the_published_schedule() -> None:
    """5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h; then it has failed."""
    delays = [decide(claim(n), outcome(), SCHEDULE, uniform=lambda _a, _b: 1.0).delay_s for n in range(10)]
    assert delays == [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400, None]
    assert decide(claim(9), outcome(), SCHEDULE).state == "failed"


@given(st.integers(0, 8))
def test_jitter_stays_within_a_fifth(attempts: int) -> None:
    """Retries of many deliveries don't fall on the same second, nor far from their slot."""
    delay_s = decide(claim(attempts), outcome(), SCHEDULE).delay_s
    assert delay_s is not None
    assert 0.8 * SCHEDULE[attempts] <= delay_s <= 1.2 * SCHEDULE[attempts]


@pytest.mark.parametrize(
    ("header", "delay_s"),
    [
        ("400", 400),
        ("1", 300),
        ("0", 300),
        ("100000", 600),
        ("inf", 600),
        ("-inf", 300),
        ("nan", 300),
        ("-1", 300),
        ("1e300", 600),
        ("9" * 400, 600),
        ("", 300),
        ("soon", 300),
        ("1_0", 300),
        ("Thu, 01 Jan 2026 12:06:40 GMT", 400),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 300),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 600),
        ("Fri, 31 Dec 99999 23:59:59 GMT", 300),
        ("Thu, 01 Jan 2026 12:06:40 +9999", 300),
    ],
)
def test_retry_after_is_honoured_within_one_and_two_slots(header: str, delay_s: float) -> None:
    """Whatever the receiver asks for, the delay stays within one and two slots."""
    assert decide(claim(1), outcome(429, "http", header), SCHEDULE).delay_s == pytest.approx(delay_s)


@given(st.text(max_size=60), st.integers(0, 8))
def test_no_retry_after_breaks_the_schedule(header: str, attempts: int) -> None:
    """Any text is a delay of one to two slots."""
    delay_s = decide(claim(attempts), outcome(503, "http", header), SCHEDULE).delay_s
    assert delay_s is not None
    assert SCHEDULE[attempts] <= delay_s <= 2 * SCHEDULE[attempts]
    assert parse_retry_after(header, NOW) >= 0


def test_ends_that_need_no_retry() -> None:
    """Success, a blocked address, 410 and tests."""
    assert decide(claim(), outcome(204, None), SCHEDULE).state == "succeeded"
    blocked = decide(claim(), outcome(None, "blocked"), SCHEDULE)
    assert (blocked.state, blocked.charged) == ("failed", True)
    assert decide(claim(), outcome(410), SCHEDULE).gone
    assert decide(claim(hidden=True), outcome(410), SCHEDULE).state == "failed"
    test = decide(claim(is_test=True), outcome(), SCHEDULE)
    assert (test.state, test.charged) == ("failed", False)


def test_our_faults_wait_longer_and_longer_and_cost_nothing() -> None:
    """Retries of our own faults grow with the event's age, take nothing from the schedule, and end some day."""
    ages_s = [0, 60, 3600, 86_400]
    decisions = [decide(claim(9, age_s=age_s), outcome(None, "ours"), SCHEDULE) for age_s in ages_s]
    assert [decision.delay_s for decision in decisions] == [5, 15, 900, 3600]
    assert not any(decision.charged for decision in decisions)
    assert decide(claim(age_s=8 * 86_400), outcome(None, "ours"), SCHEDULE).state == "failed"
