"""Times and numbers as clients write them: of one form each, so that a slip isn't read as something else."""

import re
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DIGITS = re.compile(r"-?\d{1,1000}", re.ASCII)


def _require_instant(value: object) -> object:
    if isinstance(value, str) and not _RFC_3339.fullmatch(value):
        raise ValueError("must be a time with its offset, such as 2026-01-31T12:00:00Z")
    if isinstance(value, int | float):
        raise ValueError(  # noqa: TRY004  # what pydantic reports
            "must be a text such as 2026-01-31T12:00:00Z"
        )
    return value


def _require_day(value: object) -> object:
    if isinstance(value, str) and not _DAY.fullmatch(value):
        raise ValueError("must be a day such as 2026-01-31")
    return value


def _require_digits(value: object) -> object:
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        raise ValueError("must be a whole number")
    return value


Instant = Annotated[AwareDatetime, BeforeValidator(_require_instant)]
"""A moment, RFC 3339."""
DAY = BeforeValidator(_require_day)
"""Where a day is wanted, no other way to write one."""
DIGITS = BeforeValidator(_require_digits)
"""Where a query parameter is a whole number, no other way to write one."""
