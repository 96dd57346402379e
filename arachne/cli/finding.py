"""What a check of `arachne doctor` found."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; `mend` says what to do unless all is well."""

    name: str
    state: State
    found: str
    mend: str = ""


def first_line(error: BaseException) -> str:
    """What the error says, in a line."""
    return (str(error).splitlines() or [type(error).__name__])[0]
