"""What a transaction wrote that others wait to hear of; its database tells it once it has committed."""

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlmodel import Session

_KEY = "arachne.news"


@dataclass(slots=True)
class News:
    """Jobs of which an event was written, whether deliveries came due with them, and what to count or trace then."""

    job_ids: set[str] = field(default_factory=set)
    deliveries: bool = False
    afterwards: list[Callable[[], object]] = field(default_factory=list)


def news_of(session: Session) -> News:
    """The news of the session's transaction, to be added to."""
    found: News = session.info.setdefault(_KEY, News())
    return found
