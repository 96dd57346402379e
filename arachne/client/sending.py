"""Chunks of a run become jobs, once each however often they have to be sent."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from arachne.client.chunks import Chunk, hash_items
from arachne.client.connection import Call, Connection
from arachne.client.refusals import read_image_fault, read_model
from arachne.client.results import Extracted, Submission, make_failed
from arachne.errors import ArachneError, InvalidOptions, RequestTooLarge, SourceChanged, TooManyImages
from arachne.schemas.job import ImageFault, JobView

PATH = "/api/extract/images"
_MAX_CHANGES = 3  # of a file while it is sent


@dataclass(frozen=True)
class Sender:
    """Sends a run's chunks, some at a time. `key` names the run, `terms` say how its images are to be read."""

    connection: Connection
    terms: Mapping[str, object]
    key: str
    places: asyncio.Semaphore

    async def send(self, chunk: Chunk) -> AsyncGenerator[Submission | Extracted, None]:
        """The jobs the chunk became, mostly one, and its images that came into none.

        Raises:
            ArachneError: the service doesn't take it; says why.
        """
        waiting, changes = [chunk], Counter[int]()
        while waiting:
            one = waiting.pop(0)
            try:
                async with self.places:  # free for the next before anybody takes care of what comes of this one
                    outcome = await self._offer(one)
            except SourceChanged as error:
                changes[error.index] += 1
                outcome = {error.index: error} if changes[error.index] == _MAX_CHANGES else {}
            if isinstance(outcome, Submission):
                yield outcome
            elif isinstance(outcome, tuple):
                waiting[:0] = outcome
            else:
                for item in one.items:
                    if item.index in outcome:
                        yield make_failed(item, outcome[item.index])
                if left := tuple(item for item in one.items if item.index not in outcome):
                    waiting.insert(0, Chunk(one.number, left))

    async def _offer(self, chunk: Chunk) -> Submission | tuple[Chunk, Chunk] | dict[int, ArachneError]:
        """The job it became, its halves where it is too large, or why images of it can't be taken, by their place."""
        digests, faults = await asyncio.to_thread(hash_items, chunk.items)
        if faults:
            return faults
        try:
            return await self._post(chunk, digests)
        except (RequestTooLarge, TooManyImages) as error:
            return chunk.split() if len(chunk.items) > 1 else {chunk.items[0].index: error}
        except InvalidOptions as error:
            if refused := _faults_of(chunk, error):
                return refused
            raise

    async def _post(self, chunk: Chunk, digests: list[str]) -> Submission:
        key = chunk.make_key(self.key, self.terms, digests)
        call = Call(
            "POST",
            PATH,
            headers={"Idempotency-Key": key},
            make_body=lambda opened: chunk.make_body(self.terms, opened),
            repeatable=True,
        )
        response = await self.connection.send(call)
        indexes = tuple(item.index for item in chunk.items)
        return Submission(read_model(JobView, response), indexes, response.headers.get("Idempotent-Replayed") == "true")


def _faults_of(chunk: Chunk, refusal: InvalidOptions) -> dict[int, ArachneError]:
    """Why each image is refused, by its place in the call, where the service takes none of them; else nothing."""
    found: dict[int, ArachneError] = {}
    for error in refusal.errors:
        code, colon, message = error["msg"].partition(": ")
        match error["loc"]:
            case ["images", int(place)] if colon and place < len(chunk.items):
                fault = ImageFault(code=code, message=message, stage=None)
                found[chunk.items[place].index] = read_image_fault(fault)
            case _:
                return {}
    return found if len(found) == len(chunk.items) else {}
