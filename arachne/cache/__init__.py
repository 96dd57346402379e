"""The vision cache: a file on each machine in front of the results in PostgreSQL."""

from arachne.bodies import compress, decompress
from arachne.cache.local import LocalResult, VisionCache, open_cache
from arachne.cache.shared import CachedResult, hold_result, insert_result, load_body, lookup
from arachne.versions import CacheKey, scope_of

__all__ = [
    "CacheKey",
    "CachedResult",
    "LocalResult",
    "VisionCache",
    "compress",
    "decompress",
    "hold_result",
    "insert_result",
    "load_body",
    "lookup",
    "open_cache",
    "scope_of",
]
