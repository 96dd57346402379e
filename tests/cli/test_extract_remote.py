"""`arachne extract` and a service that refuses."""

from functools import partial

import httpx2
import pytest

from arachne.cli import extract_remote
from arachne.client import AsyncClient
from tests.cli.conftest import Run, problem


def test_too_many_tokens_are_waited_for_and_one_is_enough(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command a file, as loops in shells make them, is no reason to fail."""
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        if request.url.path == "/healthz":
            return httpx2.Response(200, json={"status": "ok"})
        if request.url.path == "/api/extract/images":
            return httpx2.Response(403, json=problem(403, "quota_exceeded"))
        if len(asked) == 1:
            return httpx2.Response(429, json=problem(429, "rate_limited"), headers={"Retry-After": "0"})
        return httpx2.Response(200, json={"access_token": "t", "token_type": "Bearer", "expires_in": 3600})

    for name in ("URL", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.setenv(f"ARACHNE_{name}", "http://service.example")
    monkeypatch.setattr(extract_remote, "AsyncClient", partial(AsyncClient, transport=httpx2.MockTransport(answer)))
    assert run("extract", "https://pictures.example/a.png")[0] == 1
    assert asked[-1] == "/api/extract/images"
    assert asked.count("/api/auth/token") == 2
