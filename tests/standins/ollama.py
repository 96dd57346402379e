"""A stand-in for Ollama that is true on the wire, misbehaves on request, and counts what it is asked.

In a test: `async with ollama_standin(answer_s=0.1) as server`. As a process of its own, for benches and whole services:
`with OllamaProcess(answer_s=0.1) as server` (tests/standins/process.py), or `python -m tests.standins`, which prints
its URL. `GET /control` tells the counts, `POST /control` changes the behaviour.

Source: Ollama's docs/api.md; tests hold its answers against the types of Ollama's own client.
"""

import asyncio
import base64
import binascii
import random
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from aiohttp import web

from tests.standins.answers import say
from tests.standins.behaviour import Behaviour, Fault, digest_of
from tests.standins.gpu import Gpu, QueueFullError
from tests.standins.listing import listed, running, shown
from tests.standins.telling import Telling

_CRASHED = "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error"
_ERRORS: dict[str, tuple[int, str]] = {
    "error_500": (500, "an unknown error was encountered while running the model"),
    "no_memory": (500, "model requires more system memory (21.5 GiB) than is available (7.9 GiB)"),
    "busy": (503, "server busy, please try again.  maximum pending requests exceeded"),
}
_KEPT = 1000


@dataclass
class Seen:
    """What was asked; the questions are the last thousand."""

    requests: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    images: Counter[str] = field(default_factory=Counter)
    listings: int = 0
    authorizations: set[str] = field(default_factory=set)
    questions: list[dict[str, Any]] = field(default_factory=list)


class Refused(Exception):  # noqa: N818  # an answer like any other
    """A status and what Ollama says with it."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status, self.error = status, error


class OllamaStandin:
    """The server; `behaviour` may be changed at any time."""

    def __init__(self, behaviour: Behaviour, port: int = 0) -> None:
        self.behaviour = behaviour
        self.gpu = Gpu(behaviour)
        self.seen = Seen()
        self._random = random.Random(behaviour.seed)
        self._port = port
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Where it listens, also while it is down."""
        return f"http://127.0.0.1:{self._port}"

    def change(self, **changes: object) -> None:
        """Behave so from now on."""
        self.behaviour = self.gpu.behaviour = self.behaviour.changed(changes)

    async def start(self) -> None:
        """Listen, at the same port as before."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/", _root)
        app.router.add_get("/api/version", self._version)
        app.router.add_get("/api/tags", self._tags)
        app.router.add_get("/api/ps", self._ps)
        app.router.add_post("/api/show", self._show)
        app.router.add_post("/api/chat", self._chat)
        app.router.add_get("/control", self._counts)
        app.router.add_post("/control", self._control)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Refuse connections and break off those there are; models are forgotten."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
            self.gpu.loaded.clear()

    def counts(self) -> dict[str, Any]:
        """Everything counted so far."""
        told = {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self.seen).items()}
        return told | {"authorizations": len(self.seen.authorizations), "gpu": asdict(self.gpu.work)}

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": "0.12.6"})

    async def _tags(self, _: web.Request) -> web.Response:
        self.seen.listings += 1
        if self.behaviour.listings_fail:
            return web.json_response({"error": "open manifests: too many open files"}, status=500)
        return web.json_response({"models": [listed(*model) for model in self.behaviour.models.items()]})

    async def _ps(self, _: web.Request) -> web.Response:
        self.gpu.forget_idle()
        models = self.behaviour.models
        return web.json_response(
            {"models": [running(one, models.get(one.model, digest_of(one.model))) for one in self.gpu.loaded]}
        )

    async def _show(self, request: web.Request) -> web.Response:
        try:
            name = self._known(await _body(request))
        except Refused as refused:
            return web.json_response({"error": refused.error}, status=refused.status)
        return web.json_response(shown(name))

    async def _counts(self, _: web.Request) -> web.Response:
        return web.json_response(self.counts() | {"behaviour": self.behaviour.model_dump()})

    async def _control(self, request: web.Request) -> web.Response:
        self.change(**await request.json())
        return await self._counts(request)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await _body(request)
            model = self._known(body)
            images = _images(body)
            self.seen.authorizations.add(request.headers.get("Authorization", ""))
            self._note(model, body, images)
            fault = self._fault()
            return await self._answer(request, body, model, images, fault)
        except Refused as refused:
            self.seen.failed[str(refused.status)] += 1
            return web.json_response({"error": refused.error}, status=refused.status)
        except QueueFullError as error:
            self.seen.failed["503"] += 1
            return web.json_response({"error": str(error)}, status=503)

    async def _answer(
        self, request: web.Request, body: Mapping[str, Any], model: str, images: list[bytes], fault: Fault | None
    ) -> web.StreamResponse:
        if fault in _ERRORS:
            raise Refused(*_ERRORS[fault])
        options = body.get("options") or {}
        async with self.gpu.turn(model, int(options.get("num_ctx", 4096)), _seconds(body.get("keep_alive"))) as turn:
            if fault == "hang":
                await asyncio.Event().wait()
            if images and min(_size(images[0])) < 28:
                raise Refused(500, _CRASHED)  # as qwen2.5vl does
            if fault == "digest_change":
                self.behaviour.models[model] = digest_of(self.behaviour.models[model])
            if not body.get("messages"):
                content, reason = "", "unload" if _seconds(body.get("keep_alive")) == 0 else "load"
            else:
                content, reason = say(body.get("format"), _size(images[0]) if images else (0, 0), fault)
                content = self.behaviour.content or content
            telling = Telling(request, body, self.behaviour, model=model, load_s=turn.load_s)
            response = await telling.tell(content, reason, fault)
            self.seen.answered[model] += 1
            return response

    def _known(self, body: Mapping[str, Any]) -> str:
        name = body.get("model") or body.get("name")
        if not name:
            raise Refused(400, "model is required")
        for known in (name, f"{name}:latest"):
            if known in self.behaviour.models:
                return str(known)
        raise Refused(404, f"model '{name}' not found")

    def _note(self, model: str, body: Mapping[str, Any], images: list[bytes]) -> None:
        digests = [sha256(image).hexdigest() for image in images]
        self.seen.requests[model] += 1
        self.seen.images.update(digests)
        told = [message.get("content", "") for message in body.get("messages") or []]
        kept = {name: body.get(name) for name in ("options", "keep_alive", "format", "think", "stream")}
        self.seen.questions.append({"model": model, "messages": told, "images": digests} | kept)
        del self.seen.questions[:-_KEPT]

    def _fault(self) -> Fault | None:
        behaviour = self.behaviour
        if behaviour.faults:
            return behaviour.faults.pop(0)
        if behaviour.failing_share:
            return (behaviour.fault or "error_500") if self._random.random() < behaviour.failing_share else None
        return behaviour.fault


async def until(condition: Callable[[], bool]) -> None:
    """Returns once the condition holds, which a server of this event loop sees to; a minute is far too long."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # what it counts is plain numbers
            await asyncio.sleep(0.001)


@asynccontextmanager
async def ollama_standin(**behaviour: object) -> AsyncIterator[OllamaStandin]:
    """A running stand-in of this event loop."""
    server = OllamaStandin(Behaviour.model_validate(behaviour))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def _root(_: web.Request) -> web.Response:
    return web.Response(text="Ollama is running")


async def _body(request: web.Request) -> Mapping[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise Refused(400, str(error)) from None
    if not isinstance(body, dict):
        raise Refused(400, "json: cannot unmarshal into Go value of type api.ChatRequest")
    return body


def _images(body: Mapping[str, Any]) -> list[bytes]:
    try:
        return [
            base64.b64decode(image, validate=True)
            for message in body.get("messages") or []
            for image in message.get("images") or []
        ]
    except (binascii.Error, TypeError):
        raise Refused(400, "illegal base64 data at input byte 4") from None


def _size(image: bytes) -> tuple[int, int]:
    """Width and height of a PNG."""
    if not image.startswith(b"\x89PNG\r\n\x1a\n"):
        raise Refused(500, "Failed to create new sequence: failed to process inputs: image: unknown format")
    width, height = struct.unpack(">II", image[16:24])
    return width, height


def _seconds(keep_alive: object) -> float:
    """Seconds a model stays; five minutes unless the request says otherwise. Go's durations are read as far as "5m"."""
    if isinstance(keep_alive, str):
        unit = {"s": 1, "m": 60, "h": 3600}.get(keep_alive[-1:], 0)
        return float(keep_alive[:-1]) * unit if unit else float(keep_alive)
    seconds = float(keep_alive) if isinstance(keep_alive, int | float) else 300.0
    return seconds if seconds >= 0 else 1e9
