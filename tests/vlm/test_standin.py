"""The stand-in for Ollama: its answers are held against the types and the client that Ollama publishes."""

import asyncio
import base64
import json

import httpx
import ollama
import pytest

from arachne.stages.describe import SCHEMA, Description
from tests.standins.ollama import OllamaStandin, ollama_standin, until
from tests.standins.process import OllamaProcess
from tests.vlm.conftest import Ask

MODEL, LARGE = "qwen2.5vl:7b", "qwen2.5vl:32b"
# What Ollama's API reference has in its answers to /api/chat, streamed ones' last line included.
TIMED = {"total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"}
TOLD = {"model", "created_at", "message", "done", "done_reason"} | TIMED


def chat(png: bytes | None = None, model: str = MODEL, **more: object) -> dict[str, object]:
    """A body of /api/chat."""
    images = {} if png is None else {"images": [base64.b64encode(png).decode()]}
    return {"model": model, "messages": [{"role": "user", "content": "What is this?"} | images], "stream": False} | more


async def post(server: OllamaStandin, body: object, path: str = "/api/chat") -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, verify=False) as client:
        return await client.post(path, json=body)


async def cancel(*asked: asyncio.Task[httpx.Response]) -> None:
    for request in asked:
        request.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


async def test_ollamas_own_client_is_content() -> None:
    """Listings, details and both kinds of answers are of its types, unknown members aside."""
    async with ollama_standin() as server, ollama.AsyncClient(server.url, verify=False) as client:
        asked = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
        whole = await client.chat(**asked)
        parts = [part async for part in await client.chat(**asked, stream=True)]
        listed, running, shown = await client.list(), await client.ps(), await client.show(MODEL)
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].done_reason == "stop"
    assert {model.model for model in listed.models} == {MODEL, LARGE}
    assert [(model.model, model.context_length) for model in running.models] == [(MODEL, 4096)]
    assert running.models[0].digest == next(model.digest for model in listed.models if model.model == MODEL)
    assert shown.capabilities == ["completion", "vision"]


async def test_an_answer_has_the_members_of_the_reference() -> None:
    """Durations are whole nanoseconds."""
    async with ollama_standin(answer_s=0.01) as server:
        whole = (await post(server, chat())).json()
        streamed = await post(server, chat(stream=True))
    last = json.loads(streamed.text.strip().split("\n")[-1])
    assert set(whole) == set(last) == TOLD
    assert all(isinstance(whole[name], int) for name in TIMED)
    assert 10_000_000 <= whole["total_duration"] < 10_000_000_000
    assert streamed.headers["content-type"] == "application/x-ndjson"


async def test_answers_are_of_the_schema_asked_for(ask: Ask) -> None:
    """And tell the size of the picture that arrived."""
    async with ollama_standin() as server:
        answer = (await post(server, chat(ask().png, format=SCHEMA))).json()
    assert (
        Description.model_validate_json(answer["message"]["content"]).description == "A picture of 640 by 480 pixels."
    )


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (chat(model="llava"), 404, "model 'llava' not found"),
        ({"messages": []}, 400, "model is required"),
        ({"model": MODEL, "messages": [{"role": "user", "images": ["%%%"]}]}, 400, "illegal base64"),
        (chat(b"GIF89a"), 500, "unknown format"),
    ],
)
async def test_refusals_are_ollamas(body: object, status: int, error: str) -> None:
    """The status, and its words in the member `error`."""
    async with ollama_standin() as server:
        answer = await post(server, body)
    assert answer.status_code == status
    assert error in answer.json()["error"]


async def test_an_empty_question_loads_and_unloads() -> None:
    """As the reference tells it."""
    async with ollama_standin() as server:
        loaded = (await post(server, {"model": MODEL, "messages": [], "stream": False})).json()
        assert len(server.gpu.loaded) == 1
        unloaded = (await post(server, {"model": MODEL, "messages": [], "stream": False, "keep_alive": 0})).json()
        assert not server.gpu.loaded
    assert (loaded["done_reason"], unloaded["done_reason"]) == ("load", "unload")


async def test_the_token_budget_is_kept() -> None:
    """An answer that is cut says so."""
    async with ollama_standin(content="x" * 400) as server:
        cut = (await post(server, chat(options={"num_predict": 50}))).json()
        whole = (await post(server, chat(options={"num_predict": 100}))).json()
    assert (cut["done_reason"], cut["eval_count"], whole["done_reason"]) == ("length", 50, "stop")


async def test_models_are_swapped_only_when_idle() -> None:
    """With room for one, two models in turn cost a load each time; with room for two, only the first ones."""
    for room, loads, swaps in ((1, 4, 3), (2, 2, 0)):
        async with ollama_standin(max_loaded=room) as server:
            for model in (MODEL, LARGE, MODEL, LARGE):
                assert (await post(server, chat(model=model))).status_code == 200
        assert (server.gpu.work.loads, server.gpu.work.swaps) == (loads, swaps)


async def test_another_context_loads_the_model_anew() -> None:
    """As Ollama does for other options of its runner."""
    async with ollama_standin() as server:
        for tokens in (4096, 4096, 8192):
            await post(server, chat(options={"num_ctx": tokens}))
    assert server.gpu.work.loads == 2


async def test_requests_beyond_the_parallel_ones_wait_and_beyond_the_queue_are_refused() -> None:
    """Two at once, three in the queue, the sixth is told to come again."""
    async with ollama_standin(parallel=2, max_queue=3, fault="hang") as server:
        asked = []
        for in_flight, waiting in ((1, 0), (2, 0), (2, 1), (2, 2), (2, 3)):
            asked.append(asyncio.create_task(post(server, chat())))
            await until(lambda now=(in_flight, waiting): (server.gpu.work.in_flight, server.gpu.work.waiting) == now)
        refused = await post(server, chat())
        await cancel(*asked)
    assert refused.status_code == 503
    assert refused.json()["error"] == "server busy, please try again.  maximum pending requests exceeded"
    assert server.gpu.work.max_in_flight == 2


async def test_a_client_that_leaves_frees_its_place() -> None:
    """As Ollama ends what nobody waits for."""
    async with ollama_standin(parallel=1, faults=["hang"]) as server:
        asked = asyncio.create_task(post(server, chat()))
        await until(lambda: server.gpu.work.in_flight > 0)
        await cancel(asked)
        assert (await post(server, chat())).status_code == 200


async def test_random_failures_are_the_same_for_the_same_seed() -> None:
    """About the share asked for, and the very same ones again."""

    async def failures(seed: int) -> list[int]:
        async with ollama_standin(failing_share=0.3, seed=seed) as server:
            return [(await post(server, chat())).status_code for _ in range(40)]

    first = await failures(7)
    assert 4 <= first.count(500) <= 20
    assert first == await failures(7)
    assert first != await failures(8)


async def test_what_is_asked_is_counted(ask: Ask) -> None:
    """By model and by picture."""
    async with ollama_standin() as server:
        for model in (MODEL, MODEL, LARGE):
            await post(server, chat(ask().png, model=model))
        counts = server.counts()
    assert counts["requests"] == counts["answered"] == {MODEL: 2, LARGE: 1}
    assert list(counts["images"].values()) == [3]
    assert counts["gpu"]["order"] == [MODEL, MODEL, LARGE]


def test_it_runs_as_a_process_of_its_own() -> None:
    """It can be told to behave otherwise, die, and come back at the same place."""
    with OllamaProcess() as server:
        url = server.url
        assert httpx.get(f"{url}/api/version", trust_env=False).json()["version"]
        server.change(fault="busy")
        assert httpx.post(f"{url}/api/chat", json=chat(), trust_env=False).status_code == 503
        assert server.counts()["requests"] == {MODEL: 1}
        server.stop()
        with pytest.raises(httpx.ConnectError):
            httpx.get(url, trust_env=False)
        server.start()
        assert server.url == url
        assert httpx.post(f"{url}/api/chat", json=chat(), trust_env=False).status_code == 200
