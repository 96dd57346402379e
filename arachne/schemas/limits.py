"""Rates such as `20/minute`, in the notation of the `limits` library."""

import re
from typing import NamedTuple

_RATE = re.compile(
    r"(?P<amount>[1-9]\d{0,8})/(?:(?P<multiples>[1-9]\d{0,4}) ?)?(?P<unit>second|minute|hour|day)s?", re.ASCII
)
_UNIT_S = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}


class RateWindow(NamedTuple):
    """At most `amount` hits in any `window_s` seconds."""

    amount: int
    window_s: int


def parse_rate(text: str) -> RateWindow:
    """`20/minute` as (20, 60).

    Raises:
        ValueError: not of the form `AMOUNT/[MULTIPLES ]UNIT`.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no rate; write e.g. 20/minute or 100/10 seconds")
    return RateWindow(int(match["amount"]), int(match["multiples"] or 1) * _UNIT_S[match["unit"]])
