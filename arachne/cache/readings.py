"""Readings used again: stages 1 to 7 of a stored result, as the base of another description or as a result themselves.

A new model or prompt misses the cache's full key. The reading it builds on depends on neither, so it is found by a key
of its own (`CacheKey.reading`) in any complete enough result of the image, and only stage 8 runs.
"""

import logging
import zlib
from typing import Literal

from arachne.bodies import Reading, compress
from arachne.cache.local import VisionCache
from arachne.cache.shared import CachedReading, load_body
from arachne.database import Database
from arachne.metrics import CACHE_HITS
from arachne.schemas.result import Result, StageReport
from arachne.versions import NO_MODEL, CacheKey

log = logging.getLogger(__name__)
DESCRIBE = "describe"
Lacking = Literal["deferred", "not_configured", "not_requested"]
"""Why a reading has no description: asked for next, no model here, or nobody wants one."""


def base_of(result: Result, lacking: Lacking, model_version: str = NO_MODEL) -> Result:
    """The reading in a stored result, without its description: stages 1 to 7 report `cached`, stage 8 is skipped.

    `model_version` is what the new result is to carry.
    """
    stages = [_reused(stage, lacking) for stage in result.stages]
    pages = None if result.pages is None else [base_of(page, lacking, model_version) for page in result.pages]
    update = {"vlm": None, "stages": stages, "degraded": False, "model_version": model_version, "pages": pages}
    return result.model_copy(update=update)


def finished_reading(result: Result, lacking: Literal["not_configured", "not_requested"]) -> Reading:
    """The reading in a stored result as the image's own result, where no model is to be asked: nothing is computed."""
    base = base_of(result, lacking)
    pages = len(base.pages) if base.pages else 1
    return Reading(compress(base.model_dump_json().encode()), NO_MODEL, pages=pages, is_read=True, cached=True)


def load_reading(database: Database, cache: VisionCache, key: CacheKey, found: CachedReading) -> Result | None:
    """The stored result that has the reading of `key`, `found` when the image was claimed; None if erased meanwhile.

    It comes from this machine's file where that has this very result, else from PostgreSQL and then into the file.
    One that is damaged or of another form is None too: the image is read anew.

    Raises:
        Unavailable: the database can't be reached.
    """
    reading_key = key.reading
    assert reading_key is not None
    nearby = cache.get(reading_key)
    try:
        if nearby is not None and nearby.result_id == found.result_id:
            found_nearby = Result.model_validate_json(nearby.result_json)
            CACHE_HITS.labels("file").inc()
            return found_nearby
        body = database.run(load_body, found.result_id)
        read = None if body is None else Result.model_validate_json(body)
    except (ValueError, zlib.error) as error:  # pydantic's own is a ValueError, and quotes the result
        log.warning("result %s can't be built on and is read anew (%s)", found.result_id, type(error).__name__)
        return None
    if body is not None:
        cache.put(reading_key, found.result_id, body)
    return read


def _reused(stage: StageReport, lacking: Lacking) -> StageReport:
    if stage.name == DESCRIBE:
        return StageReport(name=DESCRIBE, status="skipped", ms=0.0, cached=False, reason=lacking)
    return stage.model_copy(update={"cached": True, "ms": 0.0})
