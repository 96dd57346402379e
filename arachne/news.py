"""What a transaction wrote that others wait to hear of; whoever owns the database tells it once it has committed."""

from dataclasses import dataclass, field

from sqlmodel import Session

_KEY = "arachne.news"


@dataclass(slots=True)
class News:
    """Jobs of which an event was written, and whether deliveries came due with them."""

    job_ids: set[str] = field(default_factory=set)
    deliveries: bool = False


def news_of(session: Session) -> News:
    """The news of the session's transaction, to be added to."""
    found: News = session.info.setdefault(_KEY, News())
    return found
