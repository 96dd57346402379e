"""The backend for Ollama, against a stand-in that is true on the wire and does wrong on request."""

import asyncio
import logging
import socket

import pytest

from arachne.errors import (
    VlmAnswerRejected,
    VlmBusy,
    VlmError,
    VlmFailed,
    VlmModelMissing,
    VlmTimedOut,
    VlmUnreachable,
)
from arachne.stages.describe import accept
from arachne.vlm import Breaker, Retry
from tests.standins.ollama import ollama_standin, until
from tests.vlm.conftest import Ask, Open

MODEL, LARGE = "qwen2.5vl:7b", "qwen2.5vl:32b"
ONCE = Retry(attempts=1)


async def test_a_picture_is_described(ask: Ask, opened: Open) -> None:
    """The answer is taken, and named by the manifest's digest."""
    async with ollama_standin(models={MODEL: "a2af6cc3eb7f" + "0" * 52}) as server, opened(server.url) as backend:
        asked = ask()
        reply = await backend.describe(asked)
    assert reply.model_version == f"{MODEL}@a2af6cc3eb7f"
    assert reply.cacheable
    assert accept(reply, asked).description == "A picture of 640 by 480 pixels."


async def test_what_is_sent(ask: Ask, opened: Open) -> None:
    """Bounds on tokens, no chance, one context for all, and the picture's bytes."""
    async with ollama_standin() as server, opened(server.url, vlm_keep_alive_s=90, vlm_context_tokens=7000) as backend:
        asked = ask(max_tokens=700, prompt="Look for buttons.")
        await backend.describe(asked)
        (question,) = server.seen.questions
    assert question["options"] == {"num_predict": 700, "num_ctx": 7000, "temperature": 0, "seed": 0}
    assert question["format"] == asked.schema
    assert (question["keep_alive"], question["stream"], question["think"]) == (90, True, False)
    assert question["messages"] == [asked.instruction, asked.question]
    assert len(question["images"]) == 1


@pytest.mark.parametrize("size", [(1, 1), (20_000, 3), (3, 9000)])
async def test_thin_pictures_crash_no_runner(ask: Ask, opened: Open, size: tuple[int, int]) -> None:
    """The stand-in fails, as qwen2.5vl does, on sides under 28 px."""
    async with ollama_standin() as server, opened(server.url) as backend:
        assert (await backend.describe(ask(size=size))).done_reason == "stop"


async def test_one_context_for_all_sizes_never_loads_twice(ask: Ask, opened: Open) -> None:
    """Pictures of all sizes and prompts of all lengths use the model as it was loaded."""
    async with ollama_standin() as server, opened(server.url) as backend:
        for width in (28, 640, 4000):
            await backend.describe(ask(size=(width, 480), prompt="x" * width))
    assert server.gpu.work.loads == 1


@pytest.mark.parametrize(
    ("fault", "error", "words", "requests"),
    [
        ("error_500", VlmFailed, "status 500", 3),
        ("error_in_stream", VlmFailed, "status 500", 3),
        ("no_memory", VlmFailed, "too little memory for 'qwen2.5vl:7b'", 3),
        ("busy", VlmBusy, "queue is full", 3),
        ("hang", VlmTimedOut, "in time", 2),
        ("stall", VlmTimedOut, "in time", 2),
        ("drip", VlmTimedOut, "in time", 2),
        ("reset", VlmUnreachable, "broke the connection off", 3),
        ("broken_off", VlmFailed, "not its protocol", 3),
        ("html", VlmFailed, "not its protocol", 3),
        ("loop", VlmAnswerRejected, "repeats itself", 1),
        ("huge", VlmAnswerRejected, "longer than 65536 characters", 1),
        ("endless_line", VlmAnswerRejected, "larger than 4194304 bytes", 1),
    ],
)
async def test_what_goes_wrong_is_told_and_tried_again_where_that_helps(
    ask: Ask, opened: Open, *, fault: str, error: type[VlmError], words: str, requests: int
) -> None:
    """Each fault has its own error; only what may pass is tried again, and timeouts once."""
    timeout_s = 0.3 if error is VlmTimedOut else 30
    async with ollama_standin(fault=fault) as server, opened(server.url, vlm_timeout_s=timeout_s) as backend:
        with pytest.raises(error, match=words) as caught:
            await backend.describe(ask())
    assert caught.type is error
    assert caught.value.__cause__ is None
    assert server.seen.requests[MODEL] == requests


@pytest.mark.parametrize("fault", ["error_500", "error_in_stream", "reset", "broken_off", "html", "busy"])
async def test_a_fault_that_passes_is_not_noticed(ask: Ask, opened: Open, fault: str) -> None:
    """The second attempt succeeds."""
    async with ollama_standin(faults=[fault]) as server, opened(server.url) as backend:
        assert (await backend.describe(ask())).done_reason == "stop"


async def test_a_loop_is_cut_short(ask: Ask, opened: Open) -> None:
    """Long before its tokens are spent the connection is closed, and the GPU is free."""
    async with ollama_standin(fault="loop", answer_s=60) as server, opened(server.url) as backend:
        with pytest.raises(VlmAnswerRejected):
            await asyncio.wait_for(backend.describe(ask(max_tokens=15_000)), 20)
        await until(lambda: not server.gpu.work.in_flight)


async def test_nobody_at_home(ask: Ask, opened: Open) -> None:
    """A refused connection says what to look at, and not at which address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with opened(url) as backend:
            with pytest.raises(VlmUnreachable, match="Check ARACHNE_VLM_URL") as caught:
                await backend.describe(ask())
            with pytest.raises(VlmUnreachable):
                await backend.models()
    assert "127.0.0.1" not in caught.value.message


async def test_a_server_that_comes_back_is_used(ask: Ask, opened: Open) -> None:
    """Connections of before it went down hinder nothing."""
    async with ollama_standin() as server, opened(server.url) as backend:
        await backend.describe(ask())
        await server.stop()
        with pytest.raises(VlmUnreachable):
            await backend.describe(ask())
        await server.start()
        assert (await backend.describe(ask())).done_reason == "stop"


async def test_a_missing_model_is_told_with_what_there_is(ask: Ask, opened: Open) -> None:
    """It is not asked for, and the words say how to get it."""
    async with ollama_standin() as server, opened(server.url) as backend:
        with pytest.raises(
            VlmModelMissing, match=r"no 'llava'; it has: qwen2.5vl:7b, qwen2.5vl:32b.*ollama pull llava"
        ):
            await backend.describe(ask("llava"))
        assert not server.seen.requests
        server.change(models={"llava:latest": "f" * 64})
        assert (await backend.describe(ask("llava"))).model_version == "llava:latest@" + "f" * 12


async def test_a_digest_that_changes_meanwhile_is_not_cached(
    ask: Ask, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """The description is used; the next one, under the new digest, is cached."""
    async with ollama_standin(faults=["digest_change"]) as server, opened(server.url) as backend:
        changed = await backend.describe(ask())
        after = await backend.describe(ask())
    assert changed.done_reason == "stop"
    assert (changed.cacheable, after.cacheable) == (False, True)
    assert changed.model_version != after.model_version
    assert "weights of qwen2.5vl:7b changed" in caplog.text


async def test_an_answer_that_came_is_kept_when_its_proof_does_not(ask: Ask, opened: Open) -> None:
    """A server that dies right after its answer loses the proof, not the description."""
    async with ollama_standin() as server, opened(server.url) as backend:
        await backend.models()
        server.change(listings_fail=True)
        reply = await backend.describe(ask())
    assert reply.done_reason == "stop"
    assert not reply.cacheable
    assert server.seen.requests[MODEL] == 1


async def test_most_random_failures_are_made_good(ask: Ask, opened: Open) -> None:
    """Of 60 questions to a server that fails three in ten at random, a few at most go unanswered."""
    async with ollama_standin(failing_share=0.3, seed=4) as server, opened(server.url) as backend:
        told = await asyncio.gather(*(backend.describe(ask()) for _ in range(60)), return_exceptions=True)
    failed = [one for one in told if isinstance(one, BaseException)]
    assert len(failed) <= 6
    assert all(isinstance(one, VlmFailed) for one in failed)
    assert server.seen.failed["500"] > 10


async def test_the_breaker_sees_a_server_go_and_come(ask: Ask, opened: Open) -> None:
    """Open while nothing answers, tried once the wait is over, closed by the first answer."""
    now_s = [0.0]
    breaker = Breaker(failures=2, open_s=5, clock=lambda: now_s[0])
    async with ollama_standin() as server, opened(server.url, retry=ONCE) as backend:
        await server.stop()
        for _ in range(2):
            with pytest.raises(VlmUnreachable, match="Check ARACHNE_VLM_URL"), breaker.passage():
                await backend.describe(ask())
        assert breaker.state == "open"
        await server.start()
        now_s[0] = 5.0
        assert breaker.state == "half_open"
        with breaker.passage():
            await backend.describe(ask())
    assert breaker.state == "closed"


async def test_each_answer_costs_one_look_at_the_digests(ask: Ask, opened: Open) -> None:
    """The look after one answer is the look before the next."""
    async with ollama_standin() as server, opened(server.url) as backend:
        for _ in range(5):
            await backend.describe(ask())
    assert server.seen.listings == 6


async def test_the_models_state_is_told(ask: Ask, opened: Open) -> None:
    """Which are there, and which of them loaded."""
    async with ollama_standin() as server, opened(server.url) as backend:
        await backend.describe(ask(LARGE))
        states = {state.name: state for state in await backend.models()}
    assert (states[MODEL].loaded, states[LARGE].loaded) == (False, True)
    assert all(state.proven and state.size_bytes == 5_969_245_856 for state in states.values())


async def test_requests_run_side_by_side(ask: Ask, opened: Open) -> None:
    """Bounding them is the gate's part."""
    async with ollama_standin(parallel=8, answer_s=0.2) as server, opened(server.url) as backend:
        await asyncio.gather(*(backend.describe(ask()) for _ in range(8)))
    assert server.gpu.work.max_in_flight == 8


async def test_a_cancelled_question_ends_at_the_server(ask: Ask, opened: Open) -> None:
    """A worker that stops leaves no work behind."""
    async with ollama_standin(fault="hang") as server, opened(server.url) as backend:
        asked = asyncio.create_task(backend.describe(ask()))
        await until(lambda: server.gpu.work.in_flight > 0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await until(lambda: not server.gpu.work.in_flight)


async def test_the_key_goes_along_and_shows_nowhere(
    ask: Ask, opened: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in logs, nor in errors."""
    monkeypatch.setenv("OLLAMA_API_KEY", "not-this-one")
    caplog.set_level(logging.DEBUG)
    async with ollama_standin(fault="error_500") as server:
        async with opened(server.url, vlm_api_key="top-secret", retry=ONCE) as backend:
            with pytest.raises(VlmFailed) as caught:
                await backend.describe(ask())
        assert server.seen.authorizations == {"Bearer top-secret"}
    assert "top-secret" not in caplog.text + str(caught.value) + repr(caught.value)
