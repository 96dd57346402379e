"""JSON with stored results in it: their text goes in as it is, neither parsed nor written anew."""

import json
import re
import secrets
from collections.abc import Callable, Iterator

from arachne.bodies import StoredJson


def dump(value: object, default: Callable[[object], object] | None = None) -> str:
    """The JSON of a value, compact."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default)


def splice(value: object) -> bytes:
    """The JSON of a value whose `StoredJson` parts stand in it as they were stored."""
    found: list[StoredJson] = []
    mark = secrets.token_hex(16)  # nobody can have put it into a text beforehand

    def replace(part: object) -> str:
        if not isinstance(part, StoredJson):
            raise TypeError(f"{type(part).__name__} has no JSON form")
        found.append(part)
        return f"{mark}:{len(found) - 1}"

    return b"".join(_fill(dump(value, replace), mark, found))


def _fill(frame: str, mark: str, found: list[StoredJson]) -> Iterator[bytes]:
    bodies: dict[int, bytes] = {}
    for index, piece in enumerate(re.split(rf'"{mark}:(\d+)"', frame)):
        if index % 2 == 0:
            yield piece.encode("utf-8", "replace")
            continue
        part = found[int(piece)]
        if id(part) not in bodies:  # a single image's result stands in its job twice
            bodies[id(part)] = part.read()
        yield bodies[id(part)]
