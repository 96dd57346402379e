"""What is sent again, when, and with which token; the service is played by the test."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from arachne.client import ClientError, UnexpectedAnswer, Unreachable, watching
from arachne.client.connection import Call
from arachne.client.watching import Watched, Watcher, Way
from arachne.errors import InvalidToken, NotFound, RateLimited, RequestError, Unavailable
from tests.client.answers import make_job
from tests.client.played import Played, alive, problem


async def test_many_at_once_fetch_one_token() -> None:
    played = Played()
    async with played.client() as arachne:
        await asyncio.gather(*(arachne.call("GET", "/x") for _ in range(20)))
    assert (played.tokens, set(played.sent)) == (1, {"Bearer t1"})


async def test_a_token_of_a_minute_is_kept_for_most_of_it() -> None:
    """Authlib takes it for one that has expired, and would fetch another for each request."""
    played = Played(expires_in=60)
    async with played.client() as arachne:
        for _ in range(5):
            await arachne.call("GET", "/x")
    assert played.tokens == 1


async def test_a_token_refused_in_the_middle_is_renewed_once() -> None:
    played = Played(problem(401, "invalid_token"))
    async with played.client() as arachne:
        await arachne.call("POST", "/x")
        assert played.sent == ["Bearer t1", "Bearer t2"]
        played.answers = [problem(401, "invalid_token"), problem(401, "invalid_token")]
        with pytest.raises(InvalidToken):
            await arachne.call("GET", "/x")


@pytest.mark.parametrize(
    "refusal",
    [
        problem(429, "rate_limited", **{"Retry-After": "0"}),
        problem(429, "account_queue_full", **{"Retry-After": "0"}),
        problem(409, "idempotency_key_in_use"),
        problem(503, "unavailable", **{"Retry-After": "0"}),
        httpx2.Response(502, text="<h1>Bad gateway</h1>"),
        httpx2.ReadError("cut"),
    ],
)
async def test_what_may_pass_later_is_sent_again(refusal: httpx2.Response | Exception) -> None:
    played = Played(refusal)
    async with played.client() as arachne:
        call = Call("POST", "/x", repeatable=True)
        assert (await arachne._connection.send(call)).status_code == 200
    assert len(played.sent) == 2


@pytest.mark.parametrize(
    "refusal",
    [problem(503, "unavailable"), problem(429, "rate_limited"), httpx2.Response(502), httpx2.ReadError("cut")],
)
async def test_a_request_that_waits_for_its_token_was_not_sent(refusal: httpx2.Response | Exception) -> None:
    """So the token is asked for again, though the request itself may be made only once."""
    played = Played()
    played.token_answers = [refusal]
    async with played.client() as arachne:
        await arachne.call("POST", "/api/webhooks", json={})
    assert (played.tokens, len(played.sent)) == (1, 1)


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"a":' * 100_000, b"[]", b"null", b"\xff", b'{"a": NaN}', b"<html>"]
)
@pytest.mark.parametrize("status", [200, 400])
async def test_what_is_no_object_is_said_to_be_none(body: bytes, status: int) -> None:
    """However deep it is nested, and where a token was asked for too."""
    for place in ("answers", "token_answers"):
        played = Played()
        setattr(played, place, [httpx2.Response(status, content=body)])
        async with played.client() as arachne:
            with pytest.raises(UnexpectedAnswer, match=r"ARACHNE_URL"):
                await arachne.call("GET", "/x")


async def test_what_may_have_been_done_is_not_sent_again() -> None:
    """A request without a key whose answer was lost."""
    played = Played(httpx2.ReadError("cut"))
    async with played.client() as arachne:
        with pytest.raises(Unreachable):
            await arachne.call("POST", "/api/webhooks", json={})
    assert len(played.sent) == 1


async def test_a_wait_that_would_be_too_long_ends_with_its_reason() -> None:
    played = Played(problem(429, "rate_limited", **{"Retry-After": "3000"}))
    async with played.client(max_wait_s=60) as arachne:
        with pytest.raises(RateLimited) as caught:
            await arachne.call("GET", "/x")
    assert caught.value.retry_after_s == 3000
    assert len(played.sent) == 1


async def test_a_wait_asks_again_soon_whatever_something_on_the_way_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long poll that is refused for a day is given up for polls."""
    monkeypatch.setattr(watching, "_MAX_POLL_S", 0.01)
    busy = problem(503, "unavailable", **{"Retry-After": "86400"})
    waiting, done, again = (
        httpx2.Response(200, json=make_job("job_1", ["a.png"], finished=finished)) for finished in (False, True, True)
    )
    played = Played(waiting, busy, busy, done, again)
    async with played.client() as arachne:
        arachne._watcher.way = watching.Way.LONG_POLL
        assert (await arachne.wait("job_1", timeout_s=60)).finished
        assert arachne._watcher.way is watching.Way.POLL


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (problem(404, "not_found"), NotFound, "not_found"),
        (problem(422, "of_a_newer_service"), RequestError, "of_a_newer_service"),
        (problem(500, "internal"), Unavailable, "internal"),
    ],
)
async def test_refusals_are_the_services_own_classes(answer: httpx2.Response, kind: type[Exception], code: str) -> None:
    played = Played(answer)
    async with played.client(max_wait_s=0) as arachne:
        with pytest.raises(kind) as caught:
            await arachne.call("GET", "/x")
    assert getattr(caught.value, "code", None) == code


async def test_a_service_is_looked_at_once_with_the_token_that_is_used_then() -> None:
    """What would be tried again elsewhere is told at once."""
    played = Played(problem(503, "unavailable", **{"Retry-After": "0"}), alive())
    async with played.client() as arachne:
        with pytest.raises(Unavailable):
            await arachne.check()
        await arachne.check()
        await arachne.call("GET", "/x")
    assert (played.tokens, len(played.sent)) == (1, 3)


@pytest.mark.parametrize("token", ["a b", "a\nb", "a\0", ""])
async def test_a_token_that_can_be_none_is_not_sent(token: str) -> None:
    """What gives such a one is no token endpoint."""
    played = Played()
    played.token_answers = [httpx2.Response(200, json={"access_token": token, "token_type": "Bearer"})]
    async with played.client() as arachne:
        with pytest.raises(UnexpectedAnswer):
            await arachne.call("GET", "/x")


@pytest.mark.parametrize("answer", [{"text": "<html>hi</html>"}, {"json": {}}, {"json": {"status": "up"}}, {}])
async def test_another_server_is_not_taken_for_the_service(answer: dict[str, Any]) -> None:
    """Before images are sent to it."""
    played = Played(httpx2.Response(200, **answer))
    async with played.client() as arachne:
        with pytest.raises(UnexpectedAnswer, match="ARACHNE_URL"):
            await arachne.check()


def test_a_client_is_of_one_event_loop() -> None:
    """As one that lives longer than an `asyncio.run`: that is said before anything is sent by the other."""
    played = Played(alive())
    client = played.client()
    asyncio.run(client.check())
    with pytest.raises(ClientError, match="event loop"):
        asyncio.run(client.check())
    assert len(played.sent) == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("../../webhooks/whe_1", b"..%2F..%2Fwebhooks%2Fwhe_1"),
        *(("..", b"%2E%2E"), ("a/b", b"a%2Fb"), ("a?b=1", b"a%3Fb%3D1"), ("a#b", b"a%23b"), ("é", b"%C3%A9")),
    ],
)
async def test_an_id_leads_nowhere_else(given: str, told: bytes) -> None:
    """Such as one that a user of the program wrote."""
    played = Played()
    async with played.client() as arachne:
        for call in (
            arachne.job(given),
            arachne.delete(given),
            arachne.document(given),
            arachne.webhooks.remove(given),
            arachne.webhooks.delivery("whe_1", given),
            anext(arachne.results(given)),
        ):
            with suppress(UnexpectedAnswer):
                await call
    job, endpoint = b"/api/extract/image-jobs/" + told, b"/api/webhooks/"
    assert played.paths == [
        *(job, job, job + b"/images/0/result?format=json"),
        *(endpoint + told, endpoint + b"whe_1/deliveries/" + told, job + b"?include=results"),
    ]


async def test_a_member_of_a_list_in_another_form_is_told_in_a_line() -> None:
    played = Played(httpx2.Response(200, json={"data": [{"job_id": 1}], "next_cursor": None}))
    async with played.client() as arachne:
        with pytest.raises(UnexpectedAnswer, match="update arachne-vision") as caught:
            await anext(arachne.jobs())
    assert "\n" not in caught.value.message


async def test_long_polls_that_are_answered_at_once_come_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Than polls would, where something on the way says by itself that nothing is new."""
    played = Played(*[httpx2.Response(304, headers={"Retry-After": "2"})] * 3, problem(404, "not_found"))
    pauses: list[float] = []

    async def sleep(delay_s: float) -> None:
        pauses.append(delay_s)

    async with played.client() as arachne:
        watcher = Watcher(arachne._connection)
        watcher.way = Way.LONG_POLL
        monkeypatch.setattr("arachne.client.watching.asyncio", SimpleNamespace(sleep=sleep))
        with pytest.raises(NotFound):
            async for _ in watcher._poll(Watched("job_1")):
                pass
    assert pauses == [2.0, 2.0, 2.0]
