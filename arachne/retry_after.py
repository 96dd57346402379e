"""How long a server that doesn't take a request now wants to be left alone."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


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
