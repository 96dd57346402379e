"""What the fetch engine works with."""

from collections.abc import Callable
from dataclasses import dataclass

from arachne.database import AsyncDatabase
from arachne.settings import Settings
from arachne.storage import Storage


@dataclass(frozen=True)
class Means:
    """`queued` is called when an image waits to be read."""

    database: AsyncDatabase
    storage: Storage
    settings: Settings
    worker_id: Callable[[], str]
    queued: Callable[[], object] = lambda: None
