"""Name resolution that refuses a name leading to any address that may not be called."""

import asyncio
import socket
import threading
from collections.abc import Callable

from aiohttp.abc import AbstractResolver, ResolveResult

from arachne.net.policy import EgressPolicy

Lookup = Callable[[str, int], list[str]]


def look_up(host: str, port: int) -> list[str]:
    """The addresses of `host` as the system resolves it, each once, in its order.

    Raises:
        socket.gaierror: the name does not resolve.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class GuardedResolver(AbstractResolver):
    """Resolves through `lookup` and lets an answer through only if every address in it may be called.

    Each lookup has a daemon thread of its own: in a shared pool, names that hang would hold up those that answer.
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
    future: asyncio.Future[list[str]] = loop.create_future()

    def settle(addresses: list[str] | None, error: OSError | None) -> None:
        if future.done():  # cancelled meanwhile
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(addresses or [])

    def run() -> None:
        addresses: list[str] | None = None
        failure: OSError | None = None
        try:
            addresses = lookup(host, port)
        except UnicodeError:
            failure = socket.gaierror(socket.EAI_NONAME, "the name can't be asked for")
        except OSError as error:
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, addresses, failure)

    threading.Thread(target=run, name=f"resolve-{host}", daemon=True).start()
    return await future
