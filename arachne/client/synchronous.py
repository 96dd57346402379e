"""The client for programs without asyncio: `AsyncClient` on a loop in a thread of its own."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from types import TracebackType
from typing import Self, Unpack

import httpx2

from arachne.client.asynchronous import AsyncClient
from arachne.client.connection import Params
from arachne.client.portal import Portal
from arachne.client.results import Extracted, ProgressListener, Submission
from arachne.client.settings import ClientSettings
from arachne.client.sources import Source
from arachne.client.synchronous_webhooks import Webhooks
from arachne.client.terms import Terms
from arachne.schemas.job import JobStatus, JobSummary, JobView
from arachne.schemas.listing import EventList, ModelView
from arachne.schemas.queries import Format
from arachne.schemas.submission import RetryKind
from arachne.schemas.usage import Grouping, UsageReport


class Client:
    """A client of the service, for as long as it is entered with `with`; what `AsyncClient` does, its methods say.

    Any thread may call; `on_progress` is called on the client's own.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        client_id: str | None = None,
        client_secret: str | None = None,
        token: str | None = None,
        settings: ClientSettings | None = None,
        max_wait_s: float = 600,
        uploads: int = 4,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._client = AsyncClient(
            url,
            client_id=client_id,
            client_secret=client_secret,
            token=token,
            settings=settings,
            max_wait_s=max_wait_s,
            uploads=uploads,
            transport=transport,
        )
        self._portal = Portal()
        self.webhooks = Webhooks(self._client.webhooks, self._portal)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and end the thread."""
        self._portal.close(self._client.close)

    def check(self) -> None:
        """Nothing, where the service is there and lets this client have a token; tried once."""
        self._portal.run(self._client.check)

    def extract(
        self, sources: Iterable[Source], *, on_progress: ProgressListener | None = None, **terms: Unpack[Terms]
    ) -> list[Extracted]:
        """Every image with its result, in the order given; one image's failure is its `error` and never raised."""
        return self._portal.run(lambda: self._client.extract(sources, on_progress=on_progress, **terms))

    def iter_results(
        self, sources: Iterable[Source], *, on_progress: ProgressListener | None = None, **terms: Unpack[Terms]
    ) -> Iterator[Extracted]:
        """Each image with its result as soon as it is there; `index` tells which it is."""
        return self._portal.iterate(self._client.iter_results(sources, on_progress=on_progress, **terms))

    def submit(self, sources: Iterable[Source], **terms: Unpack[Terms]) -> list[Submission]:
        """The jobs the images became; nobody waits for them."""
        return self._portal.run(lambda: self._client.submit(sources, **terms))

    def iter_submitted(self, sources: Iterable[Source], **terms: Unpack[Terms]) -> Iterator[Submission | Extracted]:
        """Each job as soon as it is accepted, and each image that can't be sent; nobody waits for results."""
        return self._portal.iterate(self._client.iter_submitted(sources, **terms))

    def wait(self, job_id: str, timeout_s: float | None = None) -> JobView:
        """The job, finished."""
        return self._portal.run(lambda: self._client.wait(job_id, timeout_s))

    def job(self, job_id: str) -> JobView:
        """The job with its first hundred images, as it stands."""
        return self._portal.run(lambda: self._client.job(job_id))

    def jobs(self, *, status: JobStatus | None = None, created_after: datetime | None = None) -> Iterator[JobSummary]:
        """The account's jobs, newest first."""
        return self._portal.iterate(self._client.jobs(status=status, created_after=created_after))

    def follow(self, job_id: str) -> Iterator[Extracted]:
        """Each image of a job, once, as soon as it is done, to the job's end."""
        return self._portal.iterate(self._client.follow(job_id))

    def results(self, job_id: str) -> Iterator[Extracted]:
        """Each image of a job as it stands, with its result where it has one."""
        return self._portal.iterate(self._client.results(job_id))

    def document(self, job_id: str, index: int = 0, format: Format = "json", page: int | None = None) -> bytes:  # noqa: A002
        """One image's result as a document."""
        return self._portal.run(lambda: self._client.document(job_id, index, format, page))

    def original(self, job_id: str, index: int = 0) -> bytes:
        """One image's bytes as they were sent."""
        return self._portal.run(lambda: self._client.original(job_id, index))

    def cancel(self, job_id: str) -> JobView:
        """The job, all that was not finished cancelled."""
        return self._portal.run(lambda: self._client.cancel(job_id))

    def delete(self, job_id: str) -> None:
        """Nothing: the job and all that came of it are erased."""
        self._portal.run(lambda: self._client.delete(job_id))

    def retry(self, job_id: str, include: Sequence[RetryKind] = ("failed", "cancelled")) -> JobView:
        """A new job of what went wrong."""
        return self._portal.run(lambda: self._client.retry(job_id, include))

    def events(self, after: str | None = None, limit: int = 50) -> EventList:
        """The account's next events after a cursor, and the cursor that comes after them."""
        return self._portal.run(lambda: self._client.events(after, limit))

    def usage(self, start: date | None = None, end: date | None = None, group: Grouping = "day") -> UsageReport:
        """What the account used from `start` to before `end`."""
        return self._portal.run(lambda: self._client.usage(start, end, group))

    def models(self) -> Iterator[ModelView]:
        """The models a request may name."""
        return self._portal.iterate(self._client.models())

    def call(self, method: str, path: str, *, json: object = None, params: Params | None = None) -> dict[str, object]:
        """The answer's object, empty where there is none: for what has no method here."""
        return self._portal.run(lambda: self._client.call(method, path, json=json, params=params))

    def every(self, path: str, params: Params | None = None) -> Iterator[dict[str, object]]:
        """Every member of a list, page after page: for what has no method here."""
        return self._portal.iterate(self._client.every(path, params))
