"""A service that is played: what it answers, in turn."""

import asyncio

import httpx2

from arachne.client import AsyncClient


def problem(status: int, code: str, **headers: str) -> httpx2.Response:
    told = {"type": "t", "title": "t", "status": status, "detail": "why", "code": code, "request_id": "r"}
    return httpx2.Response(status, json=told, headers=headers)


def alive() -> httpx2.Response:
    """What the service says of its health."""
    return httpx2.Response(200, json={"status": "ok"})


class Played:
    """A service that gives numbered tokens and answers in turn."""

    def __init__(self, *answers: httpx2.Response | Exception, expires_in: int = 3600) -> None:
        self.answers = list(answers)
        self.token_answers: list[httpx2.Response | Exception] = []
        self.expires_in = expires_in
        self.tokens = 0
        self.sent: list[str] = []
        self.paths: list[bytes] = []

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """The next answer, or a token."""
        await asyncio.sleep(0)
        if request.url.path == "/api/auth/token":
            if self.token_answers:
                return _give(self.token_answers.pop(0))
            self.tokens += 1
            told = {"access_token": f"t{self.tokens}", "token_type": "Bearer", "expires_in": self.expires_in}
            return httpx2.Response(200, json=told)
        self.sent.append(request.headers["Authorization"])
        self.paths.append(request.url.raw_path)
        return _give(self.answers.pop(0)) if self.answers else httpx2.Response(200, json={"ok": True, "new": 1})

    def client(self, **options: float) -> AsyncClient:
        """A client of this service."""
        credentials = {"client_id": "cli_x", "client_secret": "s"}
        return AsyncClient("http://x", transport=httpx2.MockTransport(self), **credentials, **options)  # type: ignore[arg-type]


def _give(answer: httpx2.Response | Exception) -> httpx2.Response:
    if isinstance(answer, Exception):
        raise answer
    return answer
