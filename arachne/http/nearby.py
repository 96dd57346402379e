"""Bodies of results from this machine's own cache file, so that a repeat is answered without reading them from afar."""

from collections.abc import Iterable, Mapping

import anyio.to_thread

from arachne.bodies import StoredJson
from arachne.cache import CacheKey
from arachne.http.parts import Parts
from arachne.metrics import CACHE_HITS


async def read_nearby(parts: Parts, key: CacheKey | None) -> dict[str, StoredJson]:
    """The result under `key` by its id, if this machine has it. Whether it still counts, PostgreSQL decides."""
    if key is None:
        return {}
    found = await anyio.to_thread.run_sync(parts.cache.get, key)
    if found is None:
        return {}
    CACHE_HITS.labels("file").inc()
    return {found.result_id: StoredJson(found.result_json, is_compressed=False)}


def count_hits(parts: Parts, keys: Iterable[CacheKey | None], result_ids: Mapping[bytes, str]) -> None:
    """Nothing; those of the keys that were answered are known to be asked for."""
    for key in keys:
        if key is not None and key.digest in result_ids:
            parts.cache.count_hit(key)


async def keep_nearby(parts: Parts, key: CacheKey | None, result_id: str | None, result: object) -> None:
    """Nothing; this machine answers with the result next time."""
    if key is not None and result_id is not None and isinstance(result, StoredJson):
        await anyio.to_thread.run_sync(lambda: parts.cache.put(key, result_id, result.read()))
