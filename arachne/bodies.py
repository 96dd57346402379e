"""Results as they are handed over and stored: compressed JSON. Light: stage subprocesses load this and no database."""

import zlib
from dataclasses import dataclass

_LEVEL = 3  # 57 KB of result: a third of the time of the default level, a tenth larger


@dataclass(frozen=True, slots=True)
class Reading:
    """A result as a stage subprocess hands it over: compressed JSON, and what the ledger and the cache need of it."""

    body: bytes
    model_version: str
    degraded: bool = False
    pages: int = 1
    cpu_s: float = 0.0
    gpu_s: float = 0.0


def compress(result_json: bytes) -> bytes:
    """A result's JSON as it is stored."""
    return zlib.compress(result_json, _LEVEL)


def decompress(body: bytes) -> bytes:
    """The JSON of a stored result."""
    return zlib.decompress(body)
