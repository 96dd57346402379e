"""Where extracted documents go: to stdout, one after the other, or elsewhere."""

import json
import sys
from typing import Protocol

from arachne.cli.extract_inputs import Input
from arachne.errors import ArachneError, ImageError
from arachne.schemas.queries import Format

_FORM_FEED = b"\f"


class Sink(Protocol):
    """Takes what became of each input, by its number in the order given, as it is known."""

    def take(self, number: int, one: Input, document: bytes) -> None:
        """A document."""

    def miss(self, number: int, one: Input, error: ArachneError) -> None:
        """No document."""

    def has(self, number: int) -> bool:
        """Whether its document is there already, so that nothing need be done for it."""


class Printer:
    """Prints in the order given: what is done early waits for those before it."""

    def __init__(self, wanted: Format, *, alone: bool) -> None:
        self._format = wanted
        self._alone = alone
        self._waiting: dict[int, bytes] = {}
        self._next = 0
        self._printed = False

    def has(self, number: int) -> bool:
        """Never: what was printed before is to be printed again."""
        return False

    def take(self, number: int, one: Input, document: bytes) -> None:
        """Print it when its turn has come."""
        if self._format == "json" and not self._alone:
            document = _line({"file": one.name, **json.loads(document)})
        elif self._format in {"json", "md", "txt"} and not document.endswith(b"\n"):
            document += b"\n"
        self._put(number, document)

    def miss(self, number: int, one: Input, error: ArachneError) -> None:
        """Keep its place: in JSON lines by its error, among texts by an empty one."""
        told = {"code": error.code, "message": error.message, "stage": _stage_of(error)}
        lines = self._format == "json" and not self._alone
        self._put(number, _line({"file": one.name, "error": told}) if lines else b"")

    def _put(self, number: int, data: bytes) -> None:
        self._waiting[number] = data
        while self._next in self._waiting:
            if self._printed and self._format in {"md", "txt"}:
                sys.stdout.buffer.write(_FORM_FEED)
            sys.stdout.buffer.write(self._waiting.pop(self._next))
            self._next += 1
            self._printed = True
        sys.stdout.buffer.flush()


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def _stage_of(error: ArachneError) -> str | None:
    return error.stage if isinstance(error, ImageError) else None
