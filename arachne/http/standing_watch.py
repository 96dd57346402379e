"""Tokens of streams under way: one that is revoked meanwhile ends its streams, here and in every other process."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from arachne.database import AsyncDatabase
from arachne.errors import ArachneError
from arachne.standing import Credential, find_fallen

log = logging.getLogger(__name__)
TICK_S = 2.0
MAX_AT_ONCE = 5000


class StandingWatch:
    """Looks once a tick, by one query, at the credentials of everything that outlives its authentication."""

    def __init__(self, database: AsyncDatabase, *, tick_s: float = TICK_S) -> None:
        self._database = database
        self._tick_s = tick_s
        self._watched: dict[Credential, set[Callable[[], None]]] = {}
        self._wanted = asyncio.Event()

    @contextmanager
    def watch(self, credential: Credential, fall: Callable[[], None]) -> Iterator[None]:
        """Call `fall` within a tick or so after the credential stopped being good."""
        calls = self._watched.setdefault(credential, set())
        calls.add(fall)
        self._wanted.set()
        try:
            yield
        finally:
            calls.discard(fall)
            if not calls and self._watched.get(credential) is calls:
                del self._watched[credential]

    async def run(self) -> None:
        """Look for as long as anything is watched, until cancelled."""
        while True:
            await self._wanted.wait()
            await asyncio.sleep(self._tick_s)
            if not self._watched:
                self._wanted.clear()
                continue
            await self._look()

    async def _look(self) -> None:
        watched = list(self._watched)
        for start in range(0, len(watched), MAX_AT_ONCE):
            part = watched[start : start + MAX_AT_ONCE]
            try:
                fallen = await self._database.run(lambda tx, part=part: find_fallen(tx.session, part))  # type: ignore[misc]
            except (ArachneError, SQLAlchemyError) as error:  # the next look makes up for it; nothing is told meanwhile
                log.warning("tokens of open streams could not be looked at: %s", error)
                return
            for credential in fallen:
                for fall in list(self._watched.get(credential, ())):
                    fall()
