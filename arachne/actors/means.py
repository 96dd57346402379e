"""What a dispatcher works with."""

from collections.abc import Callable
from dataclasses import dataclass

from arachne.actors.finisher import Finisher
from arachne.database import Database
from arachne.jobs.claim import Claimed, KeyOf
from arachne.pipeline import ReadRequest
from arachne.settings import Settings
from arachne.storage import Storage


@dataclass(frozen=True)
class Means:
    """What a dispatcher works with."""

    database: Database
    storage: Storage
    settings: Settings
    key_of: KeyOf
    request_of: Callable[[Claimed], ReadRequest]
    model_of: Callable[[Claimed], str | None]
    finisher: Finisher
