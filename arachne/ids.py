"""Prefixed ULIDs: `job_01J…`; sortable by creation time, unguessable in their last 80 bits."""

import re
import secrets
import time
from typing import Literal

Prefix = Literal["job", "img", "res", "whe", "msg", "att", "acc", "cli", "use", "wrk", "req", "aud", "tok"]

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(r"[a-z]{3}_[0-7][0-9A-HJKMNP-TV-Z]{25}")


def new_id(prefix: Prefix) -> str:
    """A new id such as `job_01JB…`: 48 bits of milliseconds, then 80 random bits, in Crockford's base 32.

    Source: the ULID specification.
    """
    value = (time.time_ns() // 1_000_000 << 80) | secrets.randbits(80)
    return f"{prefix}_{''.join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))}"


def is_id(text: str, prefix: Prefix) -> bool:
    """Whether `text` has the form of an id of this kind (it may still name nothing)."""
    return text.startswith(f"{prefix}_") and _ULID.fullmatch(text) is not None
