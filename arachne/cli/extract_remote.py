"""Images read by a service: sent in parcels, and each result taken as soon as it is there."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import cast

from arachne.cli.extract_inputs import Input
from arachne.cli.extract_journal import Identity, Journal, Parcel
from arachne.cli.extract_output import Sink
from arachne.cli.extract_parcels import Shipment, pack, resume
from arachne.cli.extract_progress import Display
from arachne.cli.output import shown
from arachne.client import AsyncClient, ClientSettings, Extracted, Source, Submission, Terms, Upload
from arachne.client.run import unwrap
from arachne.errors import AccountQueueFull, ArachneError, Gone, NotFound, QueueFull, QuotaExceeded, RateLimited
from arachne.schemas.queries import Format
from arachne.schemas.submission import SubmissionTerms

_PARCELS_AT_ONCE, _SENT_AT_ONCE, _DOCUMENTS_AT_ONCE = 8, 2, 4
_FULL_S, _LONGEST_S = 5.0, 3600.0  # until a service that takes no more is asked again


@dataclass(frozen=True)
class Order:
    """What is to be read, how, and where it goes. Without `wait` it is only sent."""

    images: Sequence[Input]
    terms: SubmissionTerms
    format: Format
    sink: Sink
    journal: Journal
    wait: bool = True


class RemoteRun:
    """One order on its way: how many of its images are read, under way and failed, and the jobs they became."""

    def __init__(self, order: Order, shown: Display) -> None:
        self._order = order
        self._shown = shown
        self._identities = [one.identify() for one in order.images]
        self._left: set[int] = set()
        self._again: list[int] = []
        self._parcels = asyncio.Semaphore(_PARCELS_AT_ONCE)
        self._uploads = asyncio.Semaphore(_SENT_AT_ONCE)
        self._documents = asyncio.Semaphore(_DOCUMENTS_AT_ONCE)
        self._terms = cast("Terms", order.terms.options.model_dump(exclude_defaults=True))
        self._terms["metadata"] = order.terms.metadata
        self._sent: set[int] = set()
        self._waits = False
        self.failed = 0
        self.jobs: dict[str, None] = {}

    @property
    def read(self) -> int:
        """Images whose documents are there."""
        return self.total - len(self._left) - self.failed

    @property
    def under_way(self) -> int:
        """Images that the service has and that are not here yet."""
        return len(self._sent & self._left)

    @property
    def total(self) -> int:
        """Images of the order."""
        return len(self._order.images)

    async def work(self, settings: ClientSettings) -> None:
        """Nothing, once every image has become a document or failed.

        Raises:
            ArachneError: the service can't be reached, or takes none of it.
        """
        numbers = self._look()
        if not self._left:
            return
        async with AsyncClient(settings=settings) as client:
            with suppress(RateLimited):  # which passes, while a wrong address or secret is told at once
                await client.check()
            shipments = resume(self._order.journal, numbers, self._left)
            known = {number for one in shipments for number in one.wanted.values()}
            await self._carry(client, [*shipments, *self._pack(self._left - known)])
            while self._again:
                again, self._again = self._again, []
                await self._carry(client, self._pack(again))

    def _look(self) -> dict[Identity, int]:
        """The number of each image there is; what is left to do is noted."""
        numbers: dict[Identity, int] = {}
        for number, (one, identity) in enumerate(zip(self._order.images, self._identities, strict=True)):
            if identity is None:
                self._left.add(number)
                self._miss(number, one.error or NotFound("There is no such file any more."))
                continue
            numbers[identity] = number
            if self._order.sink.has(number):
                self._shown.advance("sent")
                self._shown.advance("read")
            else:
                self._left.add(number)
        return numbers

    def _pack(self, numbers: Iterable[int]) -> list[Shipment]:
        return pack(self._order.journal, self._order.images, self._identities, sorted(numbers))

    async def _carry(self, client: AsyncClient, shipments: Iterable[Shipment]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for one in shipments:
                    await self._parcels.acquire()
                    task = group.create_task(self._serve(client, one))
                    task.add_done_callback(lambda _: self._parcels.release())
        except BaseExceptionGroup as failures:
            raise unwrap(failures) from None

    async def _serve(self, client: AsyncClient, shipment: Shipment) -> None:
        parcel, wanted = shipment.parcel, shipment.wanted
        if any(place not in parcel.places for place in wanted):
            async with self._uploads:
                await self._send(client, shipment)
        else:
            self._note_sent(wanted.values())
        self.jobs |= dict.fromkeys(parcel.jobs)
        if not self._order.wait:
            return
        async with asyncio.TaskGroup() as group:
            for job_id, places in parcel.jobs.items():
                chosen = {index: place for index, place in places.items() if place in wanted}
                group.create_task(self._follow(client, shipment, job_id, chosen))

    async def _send(self, client: AsyncClient, shipment: Shipment) -> None:
        numbers = {identity: number for number, identity in enumerate(self._identities)}
        sources = [self._source(numbers[image]) for image in shipment.parcel.images]
        terms: Terms = {**self._terms, "key": shipment.parcel.key}
        while True:
            try:
                outcomes = client.iter_submitted(sources, **terms)
                async with aclosing(outcomes):
                    async for outcome in outcomes:
                        self._note(shipment, outcome)
            except (AccountQueueFull, QueueFull, RateLimited) as full:
                if not self._sent:
                    raise
                await self._stand_by(full)
            except QuotaExceeded as refused:  # what was accepted before is read all the same
                if not self._sent:
                    raise
                for place in shipment.wanted.keys() - shipment.parcel.places.keys():
                    self._fail(shipment, place, refused)
                return
            else:
                return

    async def _stand_by(self, full: ArachneError) -> None:
        """Nothing, once it is time to ask again; whoever sits there is told once why it takes so long."""
        if not self._waits:
            self._waits = True
            self._shown.say(shown(f"arachne: The service takes no more for now, and is asked again: {full.message}"))
        await asyncio.sleep(min(full.retry_after_s or _FULL_S, _LONGEST_S))

    def _source(self, number: int) -> Source:
        one = self._order.images[number]
        if one.is_url:
            return one.name
        return Upload("stdin", data=one.data) if one.data is not None else Upload(one.path.name, path=one.path)

    def _note(self, shipment: Shipment, outcome: Submission | Extracted) -> None:
        parcel, journal = shipment.parcel, self._order.journal
        if isinstance(outcome, Submission):
            places = {place: (outcome.job_id, index) for index, place in enumerate(outcome.indexes)}
            journal.accept(parcel, places)
            self._note_sent([shipment.wanted[place] for place in places if place in shipment.wanted])
        else:
            self._fail(shipment, outcome.index, outcome.error or NotFound("It was not read."))

    def _note_sent(self, numbers: Collection[int]) -> None:
        self._sent.update(numbers)
        self._shown.advance("sent", len(numbers))

    async def _follow(self, client: AsyncClient, shipment: Shipment, job_id: str, places: dict[int, int]) -> None:
        """Take the images of a job, those at `places` of the parcel, by their index in the job."""
        try:
            async with asyncio.TaskGroup() as group, aclosing(client.follow(job_id)) as images:
                async for one in images:
                    if (place := places.get(cast("int", one.image_index))) is not None:
                        group.create_task(self._take(client, shipment, place, one))
        except BaseExceptionGroup as failures:
            error = unwrap(failures)
            if not isinstance(error, NotFound | Gone):
                raise error from None
            self._lose(shipment, places, error)

    async def _take(self, client: AsyncClient, shipment: Shipment, place: int, one: Extracted) -> None:
        number = shipment.wanted[place]
        if one.error is not None:
            self._fail(shipment, place, one.error)
            return
        try:
            document = await self._document(client, one)
        except (NotFound, Gone) as error:
            self._fail(shipment, place, error)
            return
        self._order.sink.take(number, self._order.images[number], document)
        self._left.discard(number)
        self._shown.advance("read")

    async def _document(self, client: AsyncClient, one: Extracted) -> bytes:
        assert one.result is not None
        match self._order.format:
            case "json":
                return one.result.model_dump_json().encode()
            case "md" | "txt" as wanted:
                return ((one.result.markdown if wanted == "md" else one.result.text) or "").encode("utf-8", "replace")
            case wanted:
                assert one.job_id is not None
                async with self._documents:
                    return await client.document(one.job_id, one.image_index or 0, wanted)

    def _lose(self, shipment: Shipment, places: dict[int, int], error: ArachneError) -> None:
        """The job is gone: what an earlier run sent is sent anew, what this one sent has failed."""
        lost = [place for place in places.values() if shipment.wanted[place] in self._left]
        if shipment.parcel.is_new:
            for place in lost:
                self._fail(shipment, place, error)
        else:
            self._forsake(shipment.parcel, [shipment.wanted[place] for place in lost])

    def _forsake(self, parcel: Parcel, numbers: list[int]) -> None:
        self._order.journal.drop(parcel)
        self._again += numbers

    def _fail(self, shipment: Shipment, place: int, error: ArachneError) -> None:
        self._order.journal.fail(shipment.parcel, place)
        if place in shipment.wanted:
            self._miss(shipment.wanted[place], error)

    def _miss(self, number: int, error: ArachneError) -> None:
        if number not in self._left:
            return
        one = self._order.images[number]
        self._left.discard(number)
        self.failed += 1
        self._shown.complain(one, error)
        self._order.sink.miss(number, one, error)
        self._shown.advance("read")
