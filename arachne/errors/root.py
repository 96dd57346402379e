"""The root of all errors: a stable code, a status, and a message that says what to do."""

from collections.abc import Sequence
from typing import ClassVar, TypedDict


class FieldError(TypedDict):
    """One fault of a request: where it is and what is wrong with it."""

    loc: list[str | int]
    msg: str


class ArachneError(Exception):
    """An error with a stable code, a status for HTTP and a message that says what to do."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after_s: float | None = None, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        self.errors = tuple(errors)
