"""Reads that many requests want at the same moment, made in few transactions."""

import asyncio
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

from arachne.database import AsyncDatabase, Transaction
from arachne.errors import ArachneError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
LANES = 4  # transactions at once; while they run, newcomers gather for the next
AT_ONCE = 64  # keys read in one of them


class Gathered(Generic[K, V]):
    """Reads by key: those asked for while others are made wait together, and a key wanted by many is read once.

    Nobody is told what was read before they asked. However many ask, no more than `LANES` connections are used, and
    nobody is refused for want of one.
    """

    def __init__(self, database: AsyncDatabase, read: Callable[[Transaction, K], V]) -> None:
        self._database = database
        self._read = read
        self._waiting: dict[K, asyncio.Future[V | Exception]] = {}
        self._lanes: set[asyncio.Task[None]] = set()

    async def get(self, key: K) -> V:
        """What `read` returns or raises for `key`, from now.

        Raises:
            Unavailable: the database can't be reached.
        """
        future = self._waiting.get(key)
        if future is None:
            future = self._waiting[key] = asyncio.get_running_loop().create_future()
        if len(self._lanes) < LANES:
            lane = asyncio.create_task(self._work())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)
        found = await asyncio.shield(future)  # whoever leaves takes it from nobody else
        if isinstance(found, Exception):
            raise found
        return found

    async def _work(self) -> None:
        while self._waiting:
            taken = {key: self._waiting.pop(key) for key in list(self._waiting)[:AT_ONCE]}
            try:
                found = await self._database.run(self._read_all, list(taken))
            except Exception as error:  # whatever it is, those who wait for it are told
                found = dict.fromkeys(taken, error)
            for key, future in taken.items():
                future.set_result(found[key])

    def _read_all(self, transaction: Transaction, keys: Collection[K]) -> dict[K, V | Exception]:
        found: dict[K, V | Exception] = {}
        for key in keys:
            try:
                found[key] = self._read(transaction, key)
            except ArachneError as error:  # this key's own; the transaction is as it was
                found[key] = error
        return found
