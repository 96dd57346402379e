"""The client for asyncio programs."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from datetime import date, datetime
from types import TracebackType
from typing import Self, Unpack

import httpx2

from arachne.client.connection import Call, Connection, Params
from arachne.client.exchange import Exchange
from arachne.client.gathering import gather, pages
from arachne.client.paths import JOBS, job_path
from arachne.client.refusals import read_object
from arachne.client.results import Extracted, ProgressListener, Submission, make_extracted
from arachne.client.run import Run, unwrap
from arachne.client.settings import ClientSettings
from arachne.client.sources import Source, find_items
from arachne.client.terms import Terms
from arachne.client.watching import Watcher
from arachne.client.webhook_endpoints import AsyncWebhooks
from arachne.errors import UnexpectedAnswer, Unfinished
from arachne.schemas.job import JobStatus, JobSummary, JobView
from arachne.schemas.listing import EventList, ModelView
from arachne.schemas.queries import Format
from arachne.schemas.submission import RetryKind
from arachne.schemas.usage import Grouping, UsageReport


class AsyncClient:
    """A client of the service, for as long as it is entered with `async with`.

    What isn't given is taken from the environment: ARACHNE_URL, ARACHNE_TOKEN, ARACHNE_CLIENT_ID and
    ARACHNE_CLIENT_SECRET. A request is tried again for `max_wait_s` where that may help; `uploads` are sent at once.
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
        if uploads < 1 or not max_wait_s >= 0:
            raise ValueError("A client has at least one of `uploads`, and a `max_wait_s` from 0 on.")
        settings = (settings or ClientSettings.load()).with_given(url, client_id, client_secret, token)
        self._connection = Connection(settings, max_wait_s=max_wait_s, transport=transport)
        self._exchange = Exchange(self._connection)
        self._watcher = Watcher(self._connection)
        self._uploads = uploads
        self.webhooks = AsyncWebhooks(self._exchange)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()

    async def check(self) -> None:
        """Nothing, where the service is there and lets this client have a token; tried once.

        Raises:
            ArachneError: it is not so; says why.
        """
        answer = await self._connection.send(Call("GET", "/healthz", insist=False))
        if read_object(answer).get("status") != "ok":
            raise UnexpectedAnswer(f"{answer.url} doesn't answer as the service does. Check ARACHNE_URL.")

    async def extract(
        self, sources: Iterable[Source], *, on_progress: ProgressListener | None = None, **terms: Unpack[Terms]
    ) -> list[Extracted]:
        """Every image with its result, in the order given; one image's failure is its `error` and never raised.

        Raises:
            ArachneError: the call as a whole can't be done.
        """
        async with aclosing(self.iter_results(sources, on_progress=on_progress, **terms)) as results:
            found = [one async for one in results]
        return sorted(found, key=lambda one: one.index)

    async def iter_results(
        self, sources: Iterable[Source], *, on_progress: ProgressListener | None = None, **terms: Unpack[Terms]
    ) -> AsyncGenerator[Extracted, None]:
        """Each image with its result as soon as it is there; `index` tells which it is.

        Raises:
            ArachneError: as `extract`.
        """
        run = await self._run(sources, terms, on_progress)
        async with aclosing(run.results()) as results:
            async for one in results:
                yield one

    async def submit(self, sources: Iterable[Source], **terms: Unpack[Terms]) -> list[Submission]:
        """The jobs the images became; nobody waits for them.

        Raises:
            ArachneError: an image or the call can't be sent.
        """
        run = await self._run(sources, terms, None)
        try:
            return await run.submit()
        except BaseExceptionGroup as group:
            raise unwrap(group) from None

    async def iter_submitted(
        self, sources: Iterable[Source], **terms: Unpack[Terms]
    ) -> AsyncGenerator[Submission | Extracted, None]:
        """Each job as soon as it is accepted, and each image that can't be sent; nobody waits for results.

        Raises:
            ArachneError: the service refuses; what was accepted before goes on.
        """
        run = await self._run(sources, terms, None)
        async with aclosing(run.submitted()) as outcomes:
            async for one in outcomes:
                yield one

    async def wait(self, job_id: str, timeout_s: float | None = None) -> JobView:
        """The job, finished.

        Raises:
            Unfinished: it isn't within the time given.
            ArachneError: as ever.
        """
        try:
            async with asyncio.timeout(timeout_s) as limit:
                async with aclosing(self._watcher.follow(await self.job(job_id))) as sights:
                    async for _ in sights:
                        pass
        except TimeoutError:
            if not limit.expired():
                raise
            raise Unfinished(f"The job {job_id} isn't finished after {timeout_s} s. It goes on; wait again.") from None
        return await self.job(job_id)

    async def job(self, job_id: str) -> JobView:
        """The job with its first hundred images, as it stands."""
        return await self._exchange.fetch(JobView, "GET", job_path(job_id))

    def jobs(
        self, *, status: JobStatus | None = None, created_after: datetime | None = None
    ) -> AsyncGenerator[JobSummary, None]:
        """The account's jobs, newest first."""
        params: dict[str, str | int] = {"status": status} if status else {}
        if created_after is not None:
            params["created_after"] = created_after.isoformat()
        return self._exchange.list(JobSummary, JOBS, params)

    async def follow(self, job_id: str) -> AsyncGenerator[Extracted, None]:
        """Each image of a job, once, as soon as it is done, to the job's end."""
        async with aclosing(gather(self._connection, self._watcher, await self.job(job_id))) as images:
            async for image in images:
                yield make_extracted(image.index, image.name or image.source_url or "", job_id, image)

    async def results(self, job_id: str) -> AsyncGenerator[Extracted, None]:
        """Each image of a job as it stands, with its result where it has one."""
        async for image in pages(self._connection, job_id):
            yield make_extracted(image.index, image.name or image.source_url or "", job_id, image)

    async def document(self, job_id: str, index: int = 0, format: Format = "json", page: int | None = None) -> bytes:  # noqa: A002
        """One image's result as a document."""
        params: dict[str, str | int] = {"format": format}
        if page is not None:
            params["page"] = page
        return await self._exchange.content(f"{job_path(job_id)}/images/{index}/result", params)

    async def original(self, job_id: str, index: int = 0) -> bytes:
        """One image's bytes as they were sent."""
        return await self._exchange.content(f"{job_path(job_id)}/images/{index}/original")

    async def cancel(self, job_id: str) -> JobView:
        """The job, all that was not finished cancelled."""
        return await self._exchange.fetch(JobView, "POST", f"{job_path(job_id)}/cancel")

    async def delete(self, job_id: str) -> None:
        """Nothing: the job and all that came of it are erased."""
        await self._exchange.call("DELETE", job_path(job_id))

    async def retry(self, job_id: str, include: Sequence[RetryKind] = ("failed", "cancelled")) -> JobView:
        """A new job of what went wrong."""
        return await self._exchange.fetch(JobView, "POST", f"{job_path(job_id)}/retry", json={"include": list(include)})

    async def events(self, after: str | None = None, limit: int = 50) -> EventList:
        """The account's next events after a cursor, and the cursor that comes after them."""
        params: dict[str, str | int] = {"limit": limit} | ({"cursor": after} if after else {})
        return await self._exchange.fetch(EventList, "GET", "/api/events", params=params)

    async def usage(self, start: date | None = None, end: date | None = None, group: Grouping = "day") -> UsageReport:
        """What the account used from `start` to before `end`."""
        params: dict[str, str | int] = {"group": group}
        params |= {name: day.isoformat() for name, day in (("from", start), ("to", end)) if day is not None}
        return await self._exchange.fetch(UsageReport, "GET", "/api/usage", params=params)

    def models(self) -> AsyncGenerator[ModelView, None]:
        """The models a request may name."""
        return self._exchange.list(ModelView, "/api/models")

    async def call(
        self, method: str, path: str, *, json: object = None, params: Params | None = None
    ) -> dict[str, object]:
        """The answer's object, empty where there is none: for what has no method here."""
        return await self._exchange.call(method, path, json=json, params=params)

    def every(self, path: str, params: Params | None = None) -> AsyncGenerator[dict[str, object], None]:
        """Every member of a list, page after page: for what has no method here."""
        return self._exchange.every(path, params)

    async def _run(self, sources: Iterable[Source], terms: Terms, on_progress: ProgressListener | None) -> Run:
        items = await asyncio.to_thread(find_items, sources)
        return Run(self._connection, self._watcher, items, terms, uploads=self._uploads, on_progress=on_progress)
