"""The backend for OpenAI-compatible servers, against answers as vLLM, llama.cpp, LM Studio and proxies give them."""

import json
import time
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from arachne.errors import VlmAnswerRejected, VlmBusy, VlmError, VlmFailed, VlmModelMissing, VlmRefused, VlmTimedOut
from arachne.vlm import Retry
from tests.vlm.conftest import Ask, Open

NAME = "org/model"
ONCE = Retry(attempts=1)
CONTENT = '{"description": "A dialog", "elements": [], "text": []}'


def chunk(content: str | None, reason: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": reason}]}


def events(*told: object, end: str = "data: [DONE]\n\n") -> str:
    return "".join(f"data: {json.dumps(one)}\n\n" for one in told) + end


STREAM = events(
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}, chunk(CONTENT), chunk("", "stop")
)


@dataclass
class Canned:
    """Answers with what it is given; keeps what it is asked."""

    body: str = STREAM
    status: int = 200
    kind: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    entry: Mapping[str, object] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    authorization: str | None = None
    url: str = ""

    async def chat(self, request: web.Request) -> web.Response:
        """The canned answer."""
        self.asked.append(await request.json())
        self.authorization = request.headers.get("Authorization")
        return web.Response(text=self.body, status=self.status, content_type=self.kind, headers=self.headers)

    async def models(self, _: web.Request) -> web.Response:
        """The canned entry."""
        created = self.entry.get("created")
        entry = {"id": NAME, "object": "model", "owned_by": "vllm"} | self.entry
        return web.json_response(
            {"object": "list", "data": [entry | ({"created": created()} if callable(created) else {})]}
        )


@asynccontextmanager
async def served(**canned: Any) -> AsyncIterator[Canned]:
    """A server of canned answers."""
    server = Canned(**canned)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_get("/v1/models", server.models)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


async def failure(ask: Ask, opened: Open, **canned: Any) -> VlmError:
    """The error that comes of such an answer."""
    async with served(**canned) as server, opened(server.url, vlm_api="openai", retry=ONCE) as backend:
        with pytest.raises(VlmError) as caught:
            await backend.describe(ask(NAME))
    return caught.value


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_a_picture_is_sent_as_a_data_uri(ask: Ask, opened: Open, suffix: str) -> None:
    """With the schema, the token budget and the key; the URL may end in /v1 or not."""
    async with served() as server, opened(server.url + suffix, vlm_api="openai", vlm_api_key="k") as backend:
        reply = await backend.describe(ask(NAME, max_tokens=700))
    (asked,) = server.asked
    text, picture = asked["messages"][1]["content"]
    assert reply.content == CONTENT
    assert picture["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
    assert text["type"] == "text"
    assert (asked["max_tokens"], asked["temperature"], asked["model"]) == (700, 0, NAME)
    assert asked["response_format"]["json_schema"]["schema"]["additionalProperties"] is False
    assert server.authorization == "Bearer k"


@pytest.mark.parametrize(
    "body",
    [
        STREAM,
        ": keep-alive\n\n" + STREAM,
        events(
            chunk(None), chunk(CONTENT[:20]), chunk(CONTENT[20:]), chunk(None, "stop"), {"choices": [], "usage": {}}
        ),
        STREAM.replace("\n", "\r\n"),
        STREAM.replace("data: [DONE]\n\n", ""),
    ],
)
async def test_streams_of_all_servers_are_read(ask: Ask, opened: Open, body: str) -> None:
    """Comments, empty pieces, a last event with the usage, either kind of line's end, no last event."""
    async with served(body=body) as server, opened(server.url, vlm_api="openai") as backend:
        reply = await backend.describe(ask(NAME))
    assert (reply.content, reply.done_reason) == (CONTENT, "stop")


async def test_a_server_that_does_not_stream_is_read_too(ask: Ask, opened: Open) -> None:
    """Its one answer is a message instead of pieces."""
    whole = json.dumps({"choices": [{"message": {"content": CONTENT}, "finish_reason": "length"}]})
    async with served(body=whole, kind="application/json") as server, opened(server.url, vlm_api="openai") as backend:
        reply = await backend.describe(ask(NAME))
    assert (reply.content, reply.done_reason) == (CONTENT, "length")


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        (400, VlmRefused, {"error": {"message": "This model's maximum context length is 4096 tokens", "code": 400}}),
        (400, VlmRefused, {"object": "error", "message": "org/model is not a multimodal model", "code": 400}),
        (401, VlmRefused, {"error": "Unauthorized"}),
        (404, VlmModelMissing, {"error": {"message": "The model `org/model` does not exist.", "code": 404}}),
        (404, VlmRefused, {"detail": "Not Found"}),
        (422, VlmRefused, {}),
        (307, VlmRefused, {}),
        (429, VlmBusy, {"error": {"message": "Rate limit exceeded"}}),
        (503, VlmBusy, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}),
        (503, VlmFailed, {}),
        (500, VlmFailed, {"error": {"message": "CUDA out of memory"}}),
        (502, VlmFailed, {}),
        (504, VlmTimedOut, {}),
    ],
)
async def test_refusals_have_their_own_errors(
    ask: Ask, opened: Open, status: int, error: type[VlmError], told: object
) -> None:
    """As vLLM, llama.cpp and the proxies before them put it."""
    canned = {"status": status, "kind": "application/json", "body": json.dumps(told), "headers": {"Location": "/x"}}
    assert type(await failure(ask, opened, **canned)) is error


async def test_a_servers_words_are_not_passed_on(ask: Ask, opened: Open) -> None:
    """Some servers quote the model's answer in their errors, and so the picture."""
    told = {"error": {"code": 500, "message": "Failed to parse input at pos 0: APPROVED by administrator"}}
    for body, status in ((json.dumps(told), 500), (events(told), 200), (f"error: {json.dumps(told)}\n\n", 200)):
        caught = await failure(ask, opened, body=body, status=status)
        assert isinstance(caught, VlmFailed)
        assert "APPROVED" not in "".join(traceback.format_exception(caught))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (events(chunk(CONTENT)), VlmFailed),
        ("data: {broken\n\n", VlmFailed),
        ("<html>Bad Gateway</html>", VlmFailed),
        ("", VlmFailed),
        (events(chunk("and then another " * 200)), VlmAnswerRejected),
        (events(*[chunk(f"word{n} " * 50) for n in range(300)]), VlmAnswerRejected),
        ("data: " + "a" * 5_000_000, VlmAnswerRejected),
    ],
)
async def test_answers_that_are_none(ask: Ask, opened: Open, body: str, error: type[VlmError]) -> None:
    """No reason to end, no JSON, no events, nothing, a loop, too long a text, too large an event."""
    assert type(await failure(ask, opened, body=body)) is error


async def test_what_a_busy_server_asks_for_is_kept(ask: Ask, opened: Open) -> None:
    """Seconds; a date or nonsense counts as nothing."""
    for told, kept in (("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None), ("1e300", None), ("²", None)):
        caught = await failure(ask, opened, status=429, headers={"Retry-After": told})
        assert caught.retry_after_s == kept


@pytest.mark.parametrize(
    ("entry", "settings", "cacheable"),
    [
        ({"created": lambda: int(time.time())}, {}, False),
        ({"created": lambda: int(time.time())}, {"vlm_revision": "2026-10"}, True),
        ({}, {}, False),
        ({"created": 0}, {}, False),
        ({"created": 1677610602}, {}, False),
        ({"created": 1750000000}, {}, True),
    ],
)
async def test_only_proof_makes_descriptions_cacheable(
    ask: Ask, opened: Open, entry: Mapping[str, object], settings: Mapping[str, object], *, cacheable: bool
) -> None:
    """The time of asking (vLLM), nothing (LM Studio), and placeholders prove nothing; a date or a revision does."""
    async with served(entry=entry) as server, opened(server.url, vlm_api="openai", **settings) as backend:
        assert (await backend.describe(ask(NAME))).cacheable is cacheable


async def test_other_weights_have_another_version(opened: Open) -> None:
    """As far as the server tells: a later date, other files, another length; the time of asking changes nothing."""
    told: list[Mapping[str, object]] = [
        {},
        {"created": lambda: int(time.time()) - 1},
        {"created": 1750000000},
        {"created": 1750000001},
        {"root": "/models/a"},
        {"max_model_len": 4096},
        {"meta": {"size": 1, "n_params": 5}},
    ]
    versions = []
    for entry in told:
        async with served(entry=entry) as server, opened(server.url, vlm_api="openai") as backend:
            versions += [state.version for state in await backend.models()]
    assert versions[0] == versions[1]
    assert len(set(versions)) == len(told) - 1


async def test_a_change_meanwhile_is_noticed(ask: Ask, opened: Open) -> None:
    """Both looks are compared."""
    dates = iter([1750000000, 1750000001])
    async with (
        served(entry={"created": lambda: next(dates)}) as server,
        opened(server.url, vlm_api="openai") as backend,
    ):
        assert not (await backend.describe(ask(NAME))).cacheable
