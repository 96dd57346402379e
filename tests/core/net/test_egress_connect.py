"""What the session connects to, whatever the URL check and the resolver said before."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.test_utils import TestServer

from arachne.errors import EgressBlocked
from arachne.net.client import guarded_session, open_exchange, read_bounded
from arachne.net.policy import EgressPolicy
from arachne.net.resolver import GuardedResolver
from arachne.net.urls import check_url

OPEN = {"allow_http": True}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class CountingListener:
    """A listener on loopback that counts connections."""

    port: int
    accepted: int = 0


@pytest.fixture
async def listener() -> AsyncIterator[CountingListener]:
    """A loopback listener; the test asserts that nothing reached it."""
    found = CountingListener(0)

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.accepted += 1
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found


@asynccontextmanager
async def receiver(handler: Handler) -> AsyncIterator[tuple[TestServer, EgressPolicy]]:
    """A real server on loopback and a policy that allows just it."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(application) as server:
        yield server, EgressPolicy.build([f"127.0.0.1:{server.port}"], **OPEN)


async def say_hello(_request: web.Request) -> web.Response:
    """An ordinary answer."""
    return web.Response(text="hello")


@pytest.mark.parametrize("host", ["127.0.0.1", "0x7f000001", "0"])
async def test_the_socket_is_the_last_gate(listener: CountingListener, host: str) -> None:
    """Without the URL check and the resolver, the socket factory alone refuses the final address."""
    policy = EgressPolicy.build(ports=[listener.port], **OPEN)
    async with guarded_session(policy, 5) as guarded:
        factory = guarded.connector._socket_factory  # type: ignore[union-attr]
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=factory)) as session:
            with pytest.raises((aiohttp.ClientError, ValueError)):
                await session.get(f"http://{host}:{listener.port}/")
    assert listener.accepted == 0


class LyingResolver(AbstractResolver):
    """Answers what it is told, unchecked."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses as told."""
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self.addresses
        ]

    async def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("answer", [["127.0.0.1"], ["127.0.0.1", "::1"], ["127.0.0.1", "127.0.0.2", "127.0.0.3"]])
async def test_a_resolver_that_lies_is_refused_at_the_socket(listener: CountingListener, answer: list[str]) -> None:
    """An answer that got past the resolver is refused when the socket is opened, among several addresses too."""
    policy = EgressPolicy.build(ports=[listener.port], **OPEN)
    url = check_url(f"http://liar.example.com:{listener.port}/", policy)
    async with guarded_session(policy, 5) as session:
        session.connector._resolver = LyingResolver(answer)  # type: ignore[union-attr]
        with pytest.raises(EgressBlocked):
            async with open_exchange(session, "POST", url):
                pass
    assert listener.accepted == 0


async def test_redirects_are_answers() -> None:
    """A redirect, to metadata or anywhere, is handed back and not followed."""
    hits: list[str] = []

    async def redirect(request: web.Request) -> web.Response:
        hits.append(request.path)
        raise web.HTTPTemporaryRedirect("http://169.254.169.254/latest/meta-data/")

    async with receiver(redirect) as (server, policy), guarded_session(policy, 5) as session:
        async with open_exchange(
            session, "POST", check_url(str(server.make_url("/in")), policy), body=b"{}"
        ) as exchange:
            assert exchange.response.status == 307
        with pytest.raises(EgressBlocked):
            await session.post(server.make_url("/in"), data=b"{}")
    assert hits == ["/in", "/in"]


async def test_proxies_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, listener: CountingListener
) -> None:
    """Requests go straight to the address that was checked."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{listener.port}")

    async with (
        receiver(say_hello) as (server, policy),
        guarded_session(policy, 5) as session,
        open_exchange(session, "GET", check_url(str(server.make_url("/")), policy)) as exchange,
    ):
        assert await exchange.response.text() == "hello"
    assert listener.accepted == 0


async def test_bodies_are_bounded_and_never_decompressed() -> None:
    """A small body that would inflate stays as sent, and reading stops at the limit."""
    sent = b"\x1f\x8b" + b"x" * 100_000

    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "identity"
        return web.Response(body=sent, headers={"Content-Encoding": "gzip"})

    async with receiver(answer) as (server, policy), guarded_session(policy, 5) as session:
        url = check_url(str(server.make_url("/")), policy)
        async with open_exchange(session, "GET", url) as exchange:
            assert await read_bounded(exchange.response, 2000) == (sent[:2000], True)
            assert exchange.from_private
        async with open_exchange(session, "GET", url) as exchange:
            assert await read_bounded(exchange.response, 200_000) == (sent, False)


async def test_the_time_limit_covers_the_body() -> None:
    """A receiver that drips its body forever is left after the limit."""

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b".")
            await asyncio.sleep(0.02)

    async with receiver(drip) as (server, policy), guarded_session(policy, 0.3) as session:
        with pytest.raises(TimeoutError):
            async with open_exchange(session, "GET", check_url(str(server.make_url("/")), policy)) as exchange:
                await read_bounded(exchange.response, 10_000_000)


async def test_an_allowed_name_reaches_its_private_address_only_by_that_name() -> None:
    """`rx.internal` on the allow-list opens the address for this name and for no other."""
    async with TestServer(web.Application()) as server:
        policy = EgressPolicy.build(["rx.internal"], ports=[server.port or 0], **OPEN)
        async with guarded_session(policy, 5, lookup=lambda *_: ["127.0.0.1"]) as session:
            async with open_exchange(
                session, "GET", check_url(f"http://rx.internal:{server.port}/", policy)
            ) as exchange:
                assert exchange.response.status == 404
                assert exchange.from_private
            for url in (f"http://other.example.com:{server.port}/", f"http://127.0.0.1:{server.port}/"):
                with pytest.raises(EgressBlocked):
                    await session.get(url)


async def test_hanging_names_hold_up_nobody() -> None:
    """A hundred names whose look-up hangs leave other look-ups as fast as before."""
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def lookup(host: str, _port: int) -> list[str]:
        if host.startswith("hang"):
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result(10)
        return ["127.0.0.1"]

    async with receiver(say_hello) as (server, _):
        policy = EgressPolicy.build(["127.0.0.0/8"], **OPEN)
        async with guarded_session(policy, 10, lookup=lookup, max_connections=200) as session:
            hanging = [
                asyncio.create_task(session.get(f"http://hang{n}.example.com:{server.port}/")) for n in range(100)
            ]
            await asyncio.sleep(0)
            async with asyncio.timeout(5), session.get(f"http://fast.example.com:{server.port}/") as response:
                assert response.status == 200
            assert not any(task.done() for task in hanging)
            release.set()
            for task in hanging:
                (await task).close()


async def test_lookups_are_bounded_by_those_still_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup whose caller gave up keeps its place until its thread ends; then a waiting one has its turn."""
    monkeypatch.setattr("arachne.net.resolver.MAX_LOOKUPS", 2)
    release, running, loop = asyncio.Event(), [], asyncio.get_running_loop()

    def lookup(host: str, _port: int) -> list[str]:
        running.append(host)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(10)
        return ["127.0.0.1"]

    resolver = GuardedResolver(EgressPolicy.build(["127.0.0.0/8"], **OPEN), lookup)
    tasks = [asyncio.create_task(resolver.resolve(f"h{n}.example.com", 80)) for n in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    tasks[0].cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert sum(thread.name.startswith("resolve-h") for thread in threading.enumerate()) == 2
    release.set()
    [found] = await tasks[2]
    assert found["host"] == "127.0.0.1"
    assert sorted(running) == ["h0.example.com", "h1.example.com", "h2.example.com"]
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]


async def test_a_lookup_that_fails_oddly_is_no_hang() -> None:
    """Whatever a lookup raises reaches its caller."""

    def lookup(_host: str, _port: int) -> list[str]:
        raise ValueError("nobody thought of this")

    async with asyncio.timeout(5):
        with pytest.raises(ValueError, match="nobody"):
            await GuardedResolver(EgressPolicy.build(), lookup).resolve("h.example.com", 80)
