"""The vision cache: a file on each machine in front of the results in PostgreSQL."""

from arachne.bodies import compress, decompress
from arachne.cache.local import LocalResult, VisionCache, open_cache
from arachne.cache.readings import base_of, finished_reading, load_reading
from arachne.cache.shared import (
    CachedReading,
    CachedResult,
    hold_result,
    insert_result,
    load_body,
    lookup,
    lookup_readings,
)
from arachne.versions import CacheKey, scope_of

__all__ = [
    "CacheKey",
    "CachedReading",
    "CachedResult",
    "LocalResult",
    "VisionCache",
    "base_of",
    "compress",
    "decompress",
    "finished_reading",
    "hold_result",
    "insert_result",
    "load_body",
    "load_reading",
    "lookup",
    "lookup_readings",
    "open_cache",
    "scope_of",
]
