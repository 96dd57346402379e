"""Opaque cursors of lists: where the last page ended, in a form clients hand back unchanged."""

import base64
import binascii
import re

from arachne.errors import MalformedRequest

_KEY = re.compile(r"[A-Za-z0-9_.:-]{1,100}", re.ASCII)


def encode_cursor(kind: str, key: str | int) -> str:
    """The cursor that continues a list of `kind` after `key`."""
    return base64.urlsafe_b64encode(f"{kind} {key}".encode()).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str | None) -> str | None:
    """The key a cursor holds; None for no cursor.

    Raises:
        MalformedRequest: no cursor of this kind of list.
    """
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    found, _, key = text.partition(" ")
    if found != kind or not _KEY.fullmatch(key):
        raise MalformedRequest("This is no cursor of this list. Pass on `next_cursor` as it came, or leave it out.")
    return key
