"""Clients that leave: what is only done for them ends when they do."""

import asyncio
from collections.abc import Coroutine

from starlette.types import Receive


async def departed(receive: Receive) -> None:
    """Return once the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def stay(receive: Receive, work: Coroutine[object, object, None]) -> bool:
    """Whether `work` came to its end; it is cancelled when the client leaves."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(departed(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finished = working.done()
        if finished:
            working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
    return finished
