"""`arachne webhooks`: what it says of services that refuse or aren't there, and its receiver among odd requests."""

import json
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from http.client import HTTPConnection

import httpx
import pytest
import respx
from standardwebhooks import Webhook

from arachne.cli import webhooks
from arachne.cli.listener import MAX_BODY_BYTES, Listener
from arachne.signatures.signing import new_secret, sign
from tests.cli.conftest import problem

Run = Callable[..., tuple[int, str, str]]
SECRET, OTHER = new_secret(), new_secret()
EVENT = b'{"type":"job.completed","timestamp":"2026-01-31T12:00:00Z","data":{"job_id":"job_1","status":"completed"}}'


def headers_for(body: bytes, secret: str = SECRET, message_id: str = "msg_1") -> dict[str, str]:
    """What a delivery now would carry."""
    now = int(time.time())
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(now),
        "webhook-signature": sign(secret, message_id, now, body),
    }


@pytest.fixture
def receiver() -> Iterator[Listener]:
    """A listener with two secrets."""
    with Listener(0) as made:
        made.start([OTHER, SECRET])
        yield made


def post(receiver: Listener, body: bytes, headers: Mapping[str, str]) -> int:
    """Status of the answer."""
    return httpx.post(receiver.url, content=body, headers=dict(headers), trust_env=False).status_code


def test_without_credentials(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3, and which variables to set."""
    for name in ("ARACHNE_TOKEN", "ARACHNE_CLIENT_ID", "ARACHNE_CLIENT_SECRET", "ARACHNE_WEBHOOK_SECRET"):
        monkeypatch.delenv(name, raising=False)
    code, out, err = run("webhooks", "list")
    assert (code, out, "ARACHNE_TOKEN" in err) == (3, "", True)
    code, out, err = run("webhooks", "listen", "--port", "0")
    assert (code, out, "ARACHNE_WEBHOOK_SECRET" in err) == (3, "", True)


def test_client_credentials_sign_in(run: Run, service: respx.Router, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are exchanged for a token, in HTTP Basic; refused ones end with 3 and the reason."""
    monkeypatch.delenv("ARACHNE_TOKEN")
    monkeypatch.setenv("ARACHNE_CLIENT_ID", "cli_1")
    monkeypatch.setenv("ARACHNE_CLIENT_SECRET", "s3cret")
    token = service.post("/api/auth/token").respond(json={"access_token": "fresh"})
    listed = service.get("/api/webhooks").respond(json={"data": [], "next_cursor": None})
    assert run("webhooks", "list", "--json")[:2] == (0, "[]\n")
    assert token.calls.last.request.headers["Authorization"].startswith("Basic ")
    assert listed.calls.last.request.headers["Authorization"] == "Bearer fresh"
    token.respond(401, json={"error": "invalid_client"})
    code, out, err = run("webhooks", "list")
    assert (code, out, "invalid_client" in err, "s3cret" in err) == (3, "", True, False)


def test_all_pages_are_listed(run: Run, service: respx.Router) -> None:
    """One list of all of them, in order."""
    row = {"url": "https://a.example", "events": ["job.*"], "enabled": True, "disabled_reason": None}
    service.get("/api/webhooks", params={"cursor": "next"}).respond(
        json={"data": [row | {"endpoint_id": "whe_2"}], "next_cursor": None}
    )
    service.get("/api/webhooks").respond(json={"data": [row | {"endpoint_id": "whe_1"}], "next_cursor": "next"})
    found = json.loads(run("webhooks", "list", "--json")[1])
    assert [one["endpoint_id"] for one in found] == ["whe_1", "whe_2"]
    assert re.search("whe_1 .*job.*\n.*whe_2", run("webhooks", "list")[1])


@pytest.mark.parametrize(
    ("answer", "told", "status"),
    [
        (
            httpx.Response(403, json=problem(403, "insufficient_scope")),
            "insufficient_scope",
            3,
        ),
        (
            httpx.Response(422, json=problem(422, "invalid_options", {"loc": ["events", 0], "msg": "matches none"})),
            "events.0: matches none",
            1,
        ),
        (httpx.Response(503, text="<html>"), "503", 1),
        (httpx.ConnectError("nobody listens"), "nobody listens", 3),
    ],
)
def test_refusals_are_told(run: Run, service: respx.Router, answer: object, told: str, status: int) -> None:
    """Nothing on stdout, on stderr what the service said, and 3 where access is to be mended, else 1."""
    effect = {"side_effect": answer} if isinstance(answer, Exception) else {"return_value": answer}
    service.post("/api/webhooks").mock(**effect)  # type: ignore[arg-type]
    code, out, err = run("webhooks", "add", "https://a.example/hook")
    assert (code, out, told in err) == (status, "", True)


def test_a_failed_test_ends_with_1(run: Run, service: respx.Router) -> None:
    """The attempt is printed all the same, and an id with a slash is no other path."""
    attempt = {"at": "2026-01-31T12:00:00Z", "status_code": 500, "ms": 3, "failure": "http", "response": None}
    asked = service.post(path__regex=r"/api/webhooks/.*/test").respond(json=attempt)
    code, out, _ = run("webhooks", "test", "../whe_1", "--json")
    assert (code, json.loads(out)) == (1, attempt)
    assert asked.calls.last.request.url.raw_path == b"/api/webhooks/..%2Fwhe_1/test"


def test_listening_without_a_secret(run: Run, service: respx.Router, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint for all events is added for the while, and deleted at the end; jobs' own webhooks verify too."""
    monkeypatch.delenv("ARACHNE_WEBHOOK_SECRET", raising=False)
    added = service.post("/api/webhooks").respond(201, json={"endpoint_id": "whe_1", "secret": SECRET})
    service.get("/api/webhooks/default/secret").respond(json={"secret": OTHER})
    deleted = service.delete("/api/webhooks/whe_1").respond(204)

    def while_listening(_: object) -> None:
        wanted = json.loads(added.calls.last.request.content)
        assert (wanted["events"], deleted.called) == (["*"], False)
        service.route(host="127.0.0.1").pass_through()
        for secret in (SECRET, OTHER):
            answer = httpx.post(wanted["url"], content=EVENT, headers=headers_for(EVENT, secret), trust_env=False)
            assert answer.status_code == 204

    monkeypatch.setattr(Listener, "wait", while_listening)
    code, out, _ = run("webhooks", "listen", "--port", "0", "--json")
    assert (code, len(out.splitlines()), deleted.called) == (0, 2, True)


@pytest.mark.parametrize(("answer", "status", "is_left"), [(404, 0, False), (403, 3, True), (503, 1, True)])
def test_an_endpoint_that_can_not_be_taken_away_is_named(
    run: Run, service: respx.Router, monkeypatch: pytest.MonkeyPatch, *, answer: int, status: int, is_left: bool
) -> None:
    """With what removes it, unless somebody did so already."""
    monkeypatch.delenv("ARACHNE_WEBHOOK_SECRET", raising=False)
    monkeypatch.setattr(Listener, "wait", lambda _: None)
    codes = {404: "not_found", 403: "insufficient_scope", 503: "unavailable"}
    service.post("/api/webhooks").respond(201, json={"endpoint_id": "whe_1", "secret": SECRET})
    service.get("/api/webhooks/default/secret").respond(json={"secret": OTHER})
    service.delete("/api/webhooks/whe_1").respond(answer, json=problem(answer, codes[answer]))
    code, out, err = run("webhooks", "listen", "--port", "0")
    assert (code, out, "webhooks remove whe_1" in err) == (status, "", is_left)


def test_listening_may_be_ended_once_it_says_that_it_listens(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever waits for that line, however soon."""
    monkeypatch.setenv("ARACHNE_WEBHOOK_SECRET", SECRET)
    monkeypatch.setattr(webhooks, "say", lambda _: signal.raise_signal(signal.SIGINT))
    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs have it ignored
    try:
        assert run("webhooks", "listen", "--port", "0")[:2] == (0, "")
    finally:
        signal.signal(signal.SIGINT, former)


def test_listener_takes_what_is_genuine(receiver: Listener, capsys: pytest.CaptureFixture[str]) -> None:
    """Signed by the public library or by us with either secret: 204 and one line each."""
    theirs = headers_for(EVENT)
    moment = datetime.fromtimestamp(int(theirs["webhook-timestamp"]), UTC)
    theirs["webhook-signature"] = Webhook(OTHER).sign("msg_1", moment, EVENT.decode())
    assert [post(receiver, EVENT, one) for one in (theirs, headers_for(EVENT))] == [204, 204]
    assert capsys.readouterr().out.splitlines() == ["2026-01-31T12:00:00Z  job.completed  job_1  completed  msg_1"] * 2


@pytest.mark.parametrize(
    ("body", "change"),
    [
        (EVENT + b"\n", {}),
        (b"", {}),
        (EVENT, {"webhook-id": "msg_2"}),
        (EVENT, {"webhook-timestamp": "soon"}),
        (EVENT, {"webhook-signature": ""}),
        (EVENT, {"webhook-signature": "v1,\xff"}),
    ],
)
def test_listener_refuses_the_rest(
    receiver: Listener, capsys: pytest.CaptureFixture[str], body: bytes, change: dict[str, str]
) -> None:
    """400, nothing on stdout, the reason on stderr."""
    headers = {name: value.encode("latin-1") for name, value in (headers_for(EVENT) | change).items()}
    assert httpx.post(receiver.url, content=body, headers=headers, trust_env=False).status_code == 400
    printed = capsys.readouterr()
    assert (printed.out, printed.err.startswith("refused ")) == ("", True)


def test_listener_reads_no_endless_bodies(receiver: Listener) -> None:
    """A length is needed, and one that is too great is refused before the body is read."""
    for header, status in ({"Content-Length": str(MAX_BODY_BYTES + 1)}, 413), ({"Transfer-Encoding": "chunked"}, 411):
        with closing(HTTPConnection("127.0.0.1", int(receiver.url.split(":")[2].rstrip("/")))) as connection:
            connection.putrequest("POST", "/")
            for name, value in header.items():
                connection.putheader(name, value)
            connection.endheaders()
            assert connection.getresponse().status == status


def test_listener_tells_that_nothing_takes_what_it_passes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """502, so that it is sent again, and why on stderr."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with Listener(0, forward_to=f"http://127.0.0.1:{closed.getsockname()[1]}/") as receiver:
            receiver.start([SECRET])
            assert post(receiver, EVENT, headers_for(EVENT)) == 502
    assert "not passed on" in capsys.readouterr().err


def test_listening_where_it_can_not(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that is taken and a URL that is none: exit code 3, and what to change."""
    monkeypatch.setenv("ARACHNE_WEBHOOK_SECRET", SECRET)
    with Listener(0) as first:
        code, out, err = run("webhooks", "listen", "--port", first.url.split(":")[2].rstrip("/"))
        assert (code, out, "--port" in err) == (3, "", True)
    for url in ("localhost:3000", "http://[", "http://127.0.0.1:99999/"):
        code, _, err = run("webhooks", "listen", "--port", "0", "--forward-to", url)
        assert (code, "--forward-to" in err) == (3, True)


def test_an_endpoint_is_changed_rotated_and_removed(run: Run, service: respx.Router) -> None:
    """Only what is named is changed, and ids are one segment of the path whatever is in them."""
    row = {"endpoint_id": "whe_1", "url": "https://a.example", "events": ["job.*"], "enabled": False}
    changed = service.patch("/api/webhooks/whe_1").respond(json=row | {"disabled_reason": "gone"})
    assert run("webhooks", "change", "whe_1")[0] == 2
    code, out, _ = run("webhooks", "change", "whe_1", "--disable", "--event", "job.*")
    assert (code, "job.*" in out) == (0, True)
    assert json.loads(changed.calls.last.request.content) == {"enabled": False, "events": ["job.*"]}
    rotated = service.post("/api/webhooks/whe_1/rotate").respond(json={"secret": "whsec_x", "old_secret_until": None})
    code, out, _ = run("webhooks", "rotate", "whe_1", "--grace", "0", "--json")
    assert (code, json.loads(out)["secret"]) == (0, "whsec_x")
    assert json.loads(rotated.calls.last.request.content) == {"grace_seconds": 0}
    removed = service.delete(path__regex="/api/webhooks/.*").respond(204)
    assert run("webhooks", "remove", "whe/../1")[:2] == (0, "")
    assert removed.calls.last.request.url.raw_path == b"/api/webhooks/whe%2F..%2F1"


def test_what_was_missed_is_listed_or_sent(run: Run, service: respx.Router) -> None:
    """A table or the answer as it is; that there is more is said beside it."""
    missed = {"message_id": "msg_1", "event": "job.failed", "created_at": "2026-01-31T12:00:00Z", "status": None}
    answer = {"dry_run": True, "count": 1, "more": True, "data": [missed]}
    asked = service.post("/api/webhooks/whe_1/recover").respond(json=answer)
    code, out, err = run("webhooks", "recover", "whe_1", "--since", "2026-01-31T00:00:00Z", "--dry-run")
    assert (code, "msg_1" in out, "would be sent: 1" in err, "more" in err) == (0, True, True, True)
    assert json.loads(asked.calls.last.request.content) == {"since": "2026-01-31T00:00:00Z", "dry_run": True}
    assert json.loads(run("webhooks", "recover", "whe_1", "--json")[1]) == answer
