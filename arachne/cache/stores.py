"""Where a cache's entries are, for commands that work on all of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from arachne.cache.local import VisionCache, open_cache
from arachne.cache.originals import Originals, open_originals
from arachne.database import Database
from arachne.settings import Settings


@dataclass(frozen=True)
class Stores:
    """PostgreSQL, this machine's file, and the originals kept beside it."""

    database: Database
    cache: VisionCache
    originals: Originals
    settings: Settings


@contextmanager
def open_stores(settings: Settings) -> Iterator[Stores]:
    """The stores these settings name; DATABASE_URL is set."""
    assert settings.database_url
    database, cache = Database(settings.database_url, pool_size=1), open_cache(settings)
    try:
        yield Stores(database, cache, open_originals(settings), settings)
    finally:
        cache.close()
        database.close()
