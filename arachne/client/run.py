"""One call with many images: sent in chunks, waited for and gathered side by side."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from arachne.client.chunks import Chunk, plan_chunks
from arachne.client.connection import CLOSED, Connection
from arachne.client.gathering import gather
from arachne.client.results import Extracted, Progress, ProgressListener, Submission, make_extracted, make_failed
from arachne.client.sending import Sender
from arachne.client.sources import Item
from arachne.client.terms import Terms, write_terms
from arachne.client.watching import Watcher
from arachne.errors import ClientError, Gone, NotFound

_JOBS_AT_ONCE = 16
_RESULTS_AHEAD = 100  # of whoever takes them


class Run:
    """The images of one call on their way."""

    def __init__(
        self,
        connection: Connection,
        watcher: Watcher,
        items: Sequence[Item],
        terms: Terms,
        *,
        uploads: int,
        on_progress: ProgressListener | None = None,
    ) -> None:
        self._connection = connection
        self._watcher = watcher
        self._items = items
        self._chunks = plan_chunks(items)
        key = terms.get("key") or secrets.token_hex(16)
        self._sender = Sender(connection, write_terms(terms), key, asyncio.Semaphore(uploads))
        self._jobs = asyncio.Semaphore(_JOBS_AT_ONCE)
        self._ready: asyncio.Queue[Extracted | BaseException | None] = asyncio.Queue(_RESULTS_AHEAD)
        self._on_progress = on_progress
        self._progress = Progress(len(items))

    async def submit(self) -> list[Submission]:
        """All chunks as jobs, in the order of their images.

        Raises:
            ArachneError: an image can't be sent, or the service refuses; what was sent before goes on.
        """
        for item in self._items:
            if item.error is not None:
                raise item.error
        async with asyncio.TaskGroup() as group:
            sending = [group.create_task(self._submit(chunk)) for chunk in self._chunks]
        return [job for task in sending for job in task.result()]

    async def submitted(self) -> AsyncGenerator[Submission | Extracted, None]:
        """Each job as soon as it is accepted, one request after the other, and each image that came into none.

        Raises:
            ArachneError: the service refuses; what was accepted before goes on.
        """
        for item in self._items:
            if item.error is not None:
                yield make_failed(item, item.error)
        for chunk in self._chunks:
            async with aclosing(self._sender.send(chunk)) as outcomes:
                async for outcome in outcomes:
                    yield outcome

    async def results(self) -> AsyncGenerator[Extracted, None]:
        """Each image once, as soon as it is known what became of it.

        Raises:
            ArachneError: the call can't be done.
        """
        self._tell()
        task = self._connection.start(self._work())
        try:
            while (one := await self._ready.get()) is not None:
                if isinstance(one, BaseException):
                    raise one
                self._progress = self._progress.after(one)
                self._tell()
                yield one
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _submit(self, chunk: Chunk) -> list[Submission]:
        jobs = []
        async with aclosing(self._sender.send(chunk)) as outcomes:
            async for outcome in outcomes:
                if isinstance(outcome, Extracted):
                    assert outcome.error is not None
                    raise outcome.error
                jobs.append(outcome)
                self._note_sent(outcome)
        return jobs

    async def _work(self) -> None:
        try:
            await self._ready.put(await self._serve_all())
        except asyncio.CancelledError:
            self._give_up()
            raise

    async def _serve_all(self) -> BaseException | None:
        """What ended it before its time, if something did."""
        for item in self._items:
            if item.error is not None:
                await self._ready.put(make_failed(item, item.error))
        try:
            async with asyncio.TaskGroup() as group:
                for chunk in self._chunks:
                    await self._jobs.acquire()
                    task = group.create_task(self._serve(chunk))
                    task.add_done_callback(lambda _: self._jobs.release())
        except BaseExceptionGroup as failed:
            return unwrap(failed)
        return None

    def _give_up(self) -> None:
        """Whoever still takes results is told that the client was closed."""
        while not self._ready.empty():
            self._ready.get_nowait()
        self._ready.put_nowait(ClientError(CLOSED))

    async def _serve(self, chunk: Chunk) -> None:
        async with aclosing(self._sender.send(chunk)) as outcomes:
            async for outcome in outcomes:
                if isinstance(outcome, Extracted):
                    await self._ready.put(outcome)
                else:
                    self._note_sent(outcome)
                    await self._gather(outcome)

    async def _gather(self, sent: Submission) -> None:
        left = set(range(len(sent.indexes)))
        try:
            async with aclosing(gather(self._connection, self._watcher, sent.job)) as images:
                async for image in images:
                    left.discard(image.index)
                    index = sent.indexes[image.index]
                    await self._ready.put(make_extracted(index, self._items[index].name, sent.job_id, image))
        except (Gone, NotFound) as error:  # somebody erased the job
            for place in sorted(left):
                await self._ready.put(make_failed(self._items[sent.indexes[place]], error))

    def _note_sent(self, sent: Submission) -> None:
        self._progress = self._progress.with_sent(len(sent.indexes))
        self._tell()

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._progress)


def unwrap(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended a group's tasks."""
    first = group.exceptions[0]
    return unwrap(first) if isinstance(first, BaseExceptionGroup) else first
