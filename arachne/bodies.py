"""Results as they are handed over and stored: compressed JSON. Light: stage subprocesses load this and no database."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

_LEVEL = 3  # 57 KB of result: a third of the time of the default level, a tenth larger


@dataclass(frozen=True, slots=True)
class Reading:
    """A result as a stage subprocess hands it over: compressed JSON, and what the ledger and the cache need of it.

    `is_read`: stages 1 to 7 are complete, also where the result is degraded for want of a description; `cached`:
    nothing was computed for it; `proven`: it is certain that `model_version` is what made it; `stage_s`: seconds of
    each stage that ran.
    """

    body: bytes
    model_version: str
    degraded: bool = False
    pages: int = 1
    cpu_s: float = 0.0
    gpu_s: float = 0.0
    is_read: bool = False
    cached: bool = False
    proven: bool = True
    stage_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class StoredJson:
    """A result's JSON as it was stored: answers take its text as it is, so that nobody has to parse it."""

    data: bytes
    is_compressed: bool = True

    def read(self) -> bytes:
        """The JSON; up to some megabytes, so not on an event loop."""
        return decompress(self.data) if self.is_compressed else self.data


def compress(result_json: bytes) -> bytes:
    """A result's JSON as it is stored."""
    return zlib.compress(result_json, _LEVEL)


def decompress(body: bytes) -> bytes:
    """The JSON of a stored result."""
    return zlib.decompress(body)
