"""Phase five of a delivery, a pure decision: what an outcome means for the delivery, and when to try again."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from arachne.retry_after import parse_retry_after
from arachne.webhooks.claim import Claim
from arachne.webhooks.sending import Outcome

JITTER = 0.2
_OURS_LEAST_S, _OURS_MOST_S = 5.0, 3600.0
_OURS_GIVE_UP_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The delivery's next state. `charged`: the attempt counts, against the schedule and the endpoint's health.

    One that is beside the schedule counts against health alone, and what was planned before it keeps its time.
    """

    state: Literal["pending", "succeeded", "failed"]
    delay_s: float | None = None
    reason: str | None = None
    charged: bool = True
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
        return Decision("succeeded")
    if claim.is_test:
        return Decision("failed", reason="a test is sent once", charged=False)
    if outcome.failure == "ours":
        return _decide_ours(claim)
    return _decide_charged(claim, outcome, schedule_s, uniform)


def _decide_charged(
    claim: Claim, outcome: Outcome, schedule_s: Sequence[float], uniform: Callable[[float, float], float]
) -> Decision:
    if outcome.failure == "blocked":
        return Decision("failed", reason="the address may not be called")
    if outcome.status_code == 410:  # disabling cancels what is pending; a job's own endpoint is never disabled
        state: Literal["pending", "failed"] = "failed" if claim.hidden else "pending"
        return Decision(state, delay_s=0, reason="the receiver answered 410 Gone", gone=True)
    # A redelivery leaves the schedule where it is.
    slot = max(claim.charged - 1, 0) if claim.is_redelivery else claim.charged
    if slot >= len(schedule_s):
        return Decision("failed", reason="every retry failed")
    return Decision("pending", delay_s=retry_delay(schedule_s[slot], outcome.retry_after, outcome.at, uniform))


def _decide_ours(claim: Claim) -> Decision:
    """Our own faults are tried again at growing distances and charged to nobody."""
    if claim.age_s > _OURS_GIVE_UP_S:
        return Decision("failed", reason="it could not be sent from here", charged=False)
    return Decision("pending", delay_s=min(max(claim.age_s / 4, _OURS_LEAST_S), _OURS_MOST_S), charged=False)


def retry_delay(
    slot_s: float, retry_after: str | None, now: datetime, uniform: Callable[[float, float], float]
) -> float:
    """The slot with ± 20 % jitter, or what the receiver asks for, within one and two slots."""
    if retry_after is None:
        return slot_s * uniform(1 - JITTER, 1 + JITTER)
    return min(max(parse_retry_after(retry_after, now), slot_s), 2 * slot_s)
