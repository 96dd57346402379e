"""Phase five of a delivery, a pure decision: what an outcome means for the delivery, and when to try again."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from arachne.webhooks.claim import Claim
from arachne.webhooks.sending import Outcome

JITTER = 0.2
_OURS_LEAST_S, _OURS_MOST_S = 5.0, 3600.0
_OURS_GIVE_UP_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The delivery's next state. `charged`: the attempt tells of the endpoint's health.

    `on_schedule`: it was one of the retry schedule. `resumes`: the delay holds only where that has no time kept.
    """

    state: Literal["pending", "succeeded", "failed"]
    delay_s: float | None = None
    reason: str | None = None
    charged: bool = True
    on_schedule: bool = True
    resumes: bool = False
    gone: bool = False


def decide(
    claim: Claim,
    outcome: Outcome,
    schedule_s: Sequence[float],
    *,
    uniform: Callable[[float, float], float] = random.uniform,
) -> Decision:
    """What follows from an outcome: done, again after a delay, or given up."""
    if outcome.failure is None:
        return Decision("succeeded", on_schedule=not claim.is_redelivery)
    if claim.is_test:
        return Decision("failed", reason="a test is sent once", charged=False, on_schedule=False)
    if outcome.failure == "ours":
        return _decide_ours(claim)
    return _decide_charged(claim, outcome, schedule_s, uniform)


def _decide_charged(
    claim: Claim, outcome: Outcome, schedule_s: Sequence[float], uniform: Callable[[float, float], float]
) -> Decision:
    on_schedule = not claim.is_redelivery
    if outcome.failure == "blocked":
        return Decision("failed", reason="the address may not be called", on_schedule=on_schedule)
    if outcome.status_code == 410:  # disabling cancels what is pending; a job's own endpoint is never disabled
        state: Literal["pending", "failed"] = "failed" if claim.hidden else "pending"
        return Decision(state, delay_s=0, reason="the receiver answered 410 Gone", gone=True, on_schedule=on_schedule)
    slot = claim.charged if on_schedule else max(claim.charged - 1, 0)  # a redelivery leaves the schedule where it is
    if slot >= len(schedule_s):
        return Decision("failed", reason="every retry failed", on_schedule=on_schedule)
    delay_s = retry_delay(schedule_s[slot], outcome.retry_after, outcome.at, uniform)
    return Decision("pending", delay_s=delay_s, on_schedule=on_schedule, resumes=not on_schedule)


def _decide_ours(claim: Claim) -> Decision:
    """Our own faults are tried again at growing distances and charged to nobody."""
    if claim.age_s > _OURS_GIVE_UP_S:
        return Decision("failed", reason="it could not be sent from here", charged=False, on_schedule=False)
    delay_s = min(max(claim.age_s / 4, _OURS_LEAST_S), _OURS_MOST_S)
    return Decision("pending", delay_s=delay_s, charged=False, on_schedule=False)


def retry_delay(
    slot_s: float, retry_after: str | None, now: datetime, uniform: Callable[[float, float], float]
) -> float:
    """The slot with ± 20 % jitter, or what the receiver asks for, within one and two slots."""
    if retry_after is None:
        return slot_s * uniform(1 - JITTER, 1 + JITTER)
    return min(max(parse_retry_after(retry_after, now), slot_s), 2 * slot_s)


def parse_retry_after(value: str, now: datetime) -> float:
    """The seconds a `Retry-After` asks for, possibly infinite; 0 for what can't be read."""
    try:
        seconds = float(value)
    except ValueError:
        return _seconds_until(value, now)
    return 0.0 if math.isnan(seconds) else max(seconds, 0.0)


def _seconds_until(value: str, now: datetime) -> float:
    try:
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max((moment - now).total_seconds(), 0.0)
    except (ValueError, OverflowError, TypeError, IndexError):
        return 0.0
