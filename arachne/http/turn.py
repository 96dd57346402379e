"""Turns at what only a few may do at once, such as holding images in memory or waiting for the store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from arachne.errors import Unavailable

RETRY_S = 5


@asynccontextmanager
async def turn(gate: asyncio.Semaphore, wait_s: float, told: str) -> AsyncIterator[None]:
    """A turn at the gate, which is held meanwhile.

    Raises:
        Unavailable: those before us take longer than `wait_s`; the message is what is `told`.
    """
    try:
        async with asyncio.timeout(wait_s):
            await gate.acquire()
    except TimeoutError as error:
        raise Unavailable(told, retry_after_s=RETRY_S) from error
    try:
        yield
    finally:
        gate.release()
