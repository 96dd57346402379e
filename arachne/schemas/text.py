"""Text that clients send and that is stored, signed and sent on."""

from typing import Annotated

from pydantic import AfterValidator


def is_storable(text: str) -> bool:
    """Whether a text can be stored and sent on: no NUL and no half of a surrogate pair."""
    try:
        return "\0" not in text and (text.isascii() or bool(text.encode()))
    except UnicodeEncodeError:
        return False


def _storable(text: str) -> str:
    if not is_storable(text):
        raise ValueError("has a NUL character or half a surrogate pair")
    return text


Text = Annotated[str, AfterValidator(_storable)]
