"""Requests to the service: signed in, and repeated where that is safe and may help."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from arachne import __version__
from arachne.client.patience import Patience
from arachne.client.refusals import read_refusal
from arachne.client.settings import ClientSettings
from arachne.client.tokens import TokenSource
from arachne.errors import (
    AccountQueueFull,
    ArachneError,
    ClientError,
    IdempotencyKeyInUse,
    InvalidToken,
    RateLimited,
    SetupError,
    Unavailable,
    Unreachable,
)

CLOSED = "This client is closed. Make another."
CONNECT_S, IDLE_S = 15.0, 90.0  # a long poll is silent for up to a minute
_SAFE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
# Refusals after which nothing was written, whatever was asked for.
_NOT_NOW = (RateLimited, AccountQueueFull, IdempotencyKeyInUse)
Params = Mapping[str, str | int]


@dataclass(frozen=True)
class Call:
    """A request. `make_body` gives the body's arguments anew for each try, which closes what that puts on its stack.

    `repeatable`: doing it twice is as doing it once; without `insist` it is tried once, unless its token has expired.
    """

    method: str
    path: str
    params: Params | None = None
    json: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    make_body: Callable[[ExitStack], Mapping[str, Any]] | None = None
    idle_s: float = IDLE_S
    repeatable: bool = False
    insist: bool = True

    @property
    def may_repeat(self) -> bool:
        """Whether it may be sent again though it may have been done."""
        return self.repeatable or self.method in _SAFE


class Connection:
    """The service at its URL, for one client."""

    def __init__(
        self, settings: ClientSettings, *, max_wait_s: float, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        settings.check()
        self._max_wait_s = max_wait_s
        base_url = settings.url.rstrip("/")
        timeout = httpx2.Timeout(IDLE_S, connect=CONNECT_S, pool=None)
        with proxies_usable():
            self._http = httpx2.AsyncClient(
                base_url=base_url,
                timeout=timeout,
                trust_env=not settings.is_local,
                headers={"User-Agent": f"arachne-client/{__version__}", "Accept": "application/json"},
                transport=transport,
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            )
        endpoint = settings.token_url or f"{base_url}/api/auth/token"
        self._tokens = TokenSource(settings, endpoint, timeout=timeout, transport=transport)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, call: Call) -> httpx2.Response:
        """The answer, below 300 or 304, read whole.

        Raises:
            ArachneError: there is none; the last reason why.
        """
        async with self.open(call) as response:
            return response

    @asynccontextmanager
    async def open(self, call: Call, *, streamed: bool = False) -> AsyncIterator[httpx2.Response]:
        """The answer, its body not yet read where it is `streamed`.

        Raises:
            ArachneError: as `send`.
        """
        response = await self._insist(call, streamed=streamed)
        try:
            yield response
        finally:
            await response.aclose()

    def start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """A task that ends with these connections, should nobody end it before."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Close all connections; what goes on over them is cancelled."""
        under_way = list(self._tasks)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._tokens.close()
        await self._http.aclose()

    def _check_loop(self) -> None:
        """Nothing, where these connections are of the loop that runs: no other can use them.

        Raises:
            ClientError: they are of another.
        """
        loop = asyncio.get_running_loop()
        if (self._loop or loop) is not loop:
            raise ClientError("This client was used in another event loop. Make one in each, or use Client.")
        self._loop = loop

    async def _insist(self, call: Call, *, streamed: bool) -> httpx2.Response:
        self._check_loop()
        patience, renewed = Patience(self._max_wait_s), False
        while True:
            token = None
            if self._http.is_closed:
                raise ClientError(CLOSED)
            try:
                token = await self._tokens.get()
                return await self._try(call, token, streamed=streamed)
            except InvalidToken:
                if token is None or renewed or self._tokens.is_fixed:
                    raise
                self._tokens.refuse(token)
                renewed = True
            except ArachneError as fault:
                if not _may_help(fault, call, unsent=token is None):
                    raise
                await patience.wait(fault)

    async def _try(self, call: Call, token: str, *, streamed: bool) -> httpx2.Response:
        try:
            with ExitStack() as opened:
                request = self._build(call, token, opened)
                response = await self._http.send(request, stream=True)
            try:
                if not streamed or response.status_code >= 300:
                    await response.aread()
            except BaseException:
                await response.aclose()
                raise
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error
        if response.is_success or response.status_code == 304:
            return response
        await response.aclose()
        raise read_refusal(response)

    def _build(self, call: Call, token: str, opened: ExitStack) -> httpx2.Request:
        body = {"json": call.json} if call.json is not None else {}
        return self._http.build_request(
            call.method,
            call.path,
            params=call.params,
            headers={**call.headers, "Authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(call.idle_s, connect=CONNECT_S, pool=None),
            **(body if call.make_body is None else call.make_body(opened)),
        )

    def _unreachable(self, error: httpx2.HTTPError) -> ArachneError:
        told = str(error) or type(error).__name__
        return Unreachable(
            f"{self._http.base_url} can't be reached: {told}. Check ARACHNE_URL and that the service runs."
        )


@contextmanager
def proxies_usable() -> Iterator[None]:
    """A block in which connections are prepared, by proxies where the environment names some.

    Raises:
        SetupError: it names what is none, or none that can be used.
    """
    try:
        yield
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        raise SetupError(
            f"The proxies that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY name can't be used: {error}"
        ) from error


def _may_help(fault: ArachneError, call: Call, *, unsent: bool) -> bool:
    """Whether the same may be sent again, and may pass then."""
    if not call.insist:
        return False
    if isinstance(fault, _NOT_NOW):
        return True
    if isinstance(fault, Unreachable):
        return call.may_repeat or unsent or isinstance(fault.__cause__, _UNSENT)
    return isinstance(fault, Unavailable) and (call.may_repeat or unsent or fault.retry_after_s is not None)
