"""Why an image could not be fetched: told to its owner by class, and whether another try may do better."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp

from arachne.errors import EgressBlocked, FetchFailed, InvalidUrl
from arachne.net.failures import classify
from arachne.retry_after import parse_retry_after
from arachne.schemas.webhook import Failure

RETRY_DELAYS_S = (1.0, 5.0)  # before the second and the third try
MAX_RETRY_AFTER_S = 60.0
_JITTER = 0.2
_PASSING_STATUS = {408, 425, 429, 500, 502, 503, 504}
_PASSING: frozenset[Failure] = frozenset({"dns", "refused", "timeout", "ours"})

_TOLD: dict[Failure, str] = {
    "dns": "the URL's host name can't be resolved. Check it.",
    "refused": "nothing answers at the URL, or the connection broke.",
    "tls": "the URL's server has no certificate that can be trusted for its name.",
    "timeout": "the URL's server is too slow.",
    "http": "the URL's server gave no proper HTTP answer.",
    "blocked": "the URL leads to an address that may not be called.",
    "ours": "the service could not make the request.",
}


class AnswerRejectedError(Exception):
    """The URL's server answered, with no image. `name` says what in a word or two, `hint` what to do."""

    def __init__(self, name: str, hint: str, *, status: int = 0, retry_after: str | None = None) -> None:
        super().__init__(name)
        self.name = name
        self.hint = hint
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Fault:
    """What to tell of a failed try, and after how many seconds to try again; None: never."""

    error: FetchFailed
    retry_s: float | None


def judge(error: Exception, attempts: int) -> Fault:
    """What becomes of an image whose try failed so; `attempts` counts the tries before it."""
    name, told, passing = _describe(error)
    again = passing and attempts < len(RETRY_DELAYS_S)
    counted = f" It was tried {attempts + 1} times." if attempts else ""
    fault = FetchFailed(f"The image could not be fetched ({name}): {told}{counted}")
    return Fault(fault, _delay_s(error, attempts) if again else None)


def _describe(error: Exception) -> tuple[str, str, bool]:
    """The class of the failure, a sentence on it that tells nothing of the URL's query, and whether it may pass."""
    if isinstance(error, AnswerRejectedError):
        return error.name, error.hint, error.status in _PASSING_STATUS
    if isinstance(error, aiohttp.ClientPayloadError):
        return "http", "the URL's server broke off in the middle of its answer.", True
    failure = classify(error)
    told = error.message if isinstance(error, EgressBlocked | InvalidUrl) else _TOLD[failure]
    return failure, told, failure in _PASSING


def _delay_s(error: Exception, attempts: int) -> float:
    delay_s = RETRY_DELAYS_S[attempts] * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311  # spreads tries
    wanted = error.retry_after if isinstance(error, AnswerRejectedError) else None
    if wanted is None:
        return delay_s
    return max(delay_s, min(parse_retry_after(wanted, datetime.now(UTC)), MAX_RETRY_AFTER_S))
