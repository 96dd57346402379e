"""Name resolution that refuses a name leading to any address that may not be called."""

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakKeyDictionary

from aiohttp.abc import AbstractResolver, ResolveResult

from arachne.net.policy import EgressPolicy

Lookup = Callable[[str, int], list[str]]
MAX_LOOKUPS = 512  # twice the deliveries in flight: a hanging lookup outlives the request that wanted it
_free: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def look_up(host: str, port: int) -> list[str]:
    """The addresses of `host` as the system resolves it, each once, in its order.

    Raises:
        socket.gaierror: the name does not resolve.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class GuardedResolver(AbstractResolver):
    """Resolves through `lookup` and lets an answer through only if every address in it may be called.

    Each lookup has a daemon thread of its own: in a shared pool, names that hang would hold up those that answer. They
    are bounded all the same, by MAX_LOOKUPS a loop: further ones wait.
    """

    def __init__(self, policy: EgressPolicy, lookup: Lookup = look_up) -> None:
        self._policy = policy
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of `host`, all of them allowed.

        Raises:
            EgressBlocked: one of them may not be called.
            OSError: the name does not resolve.
        """
        addresses = await _in_thread(self._lookup, host, port)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "the name has no addresses")
        for address in addresses:
            self._policy.require(host, address, port)
        return [_answer(host, address, port) for address in addresses if family in {0, _family(address)}]

    async def close(self) -> None:
        """Nothing to close: running lookups end by themselves."""


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _answer(host: str, address: str, port: int) -> ResolveResult:
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=address, port=port, family=_family(address), proto=0, flags=flags)


async def _in_thread(lookup: Lookup, host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    free = _free.setdefault(loop, asyncio.Semaphore(MAX_LOOKUPS))
    await free.acquire()
    future: asyncio.Future[list[str]] = loop.create_future()

    def settle(addresses: list[str] | None, error: Exception | None) -> None:
        free.release()  # only now is the thread at its end, however long ago its caller gave up
        if future.done():  # cancelled meanwhile
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(addresses or [])

    thread = threading.Thread(target=_run, args=(lookup, host, port, loop, settle), name=f"resolve-{host}", daemon=True)
    try:
        thread.start()
    except BaseException:
        free.release()
        raise
    return await future


def _run(
    lookup: Lookup,
    host: str,
    port: int,
    loop: asyncio.AbstractEventLoop,
    settle: Callable[[list[str] | None, Exception | None], None],
) -> None:
    addresses: list[str] | None = None
    failure: Exception | None = None
    try:
        addresses = lookup(host, port)
    except UnicodeError:
        failure = socket.gaierror(socket.EAI_NONAME, "the name can't be asked for")
    except Exception as error:  # whatever it is, the caller waits for it
        failure = error
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(settle, addresses, failure)
