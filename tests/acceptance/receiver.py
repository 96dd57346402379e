"""A webhook receiver on loopback that keeps what it gets."""

import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from standardwebhooks import Webhook


@dataclass(frozen=True)
class Delivery:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    def verified(self, secret: str) -> dict[str, Any]:
        """The event, if the signature is right by another implementation."""
        event: dict[str, Any] = Webhook(secret).verify(self.body, dict(self.headers))
        return event


class Receiver:
    """Answers 204 to every POST."""

    def __init__(self) -> None:
        self._queues: dict[str, queue.Queue[Delivery]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.port = int(self._server.server_address[1])

    def url(self, name: str) -> str:
        """A URL of its own for one test."""
        self._queues[f"/{name}"] = queue.Queue()
        return f"http://127.0.0.1:{self.port}/{name}"

    def next(self, name: str, timeout_s: float = 60) -> Delivery:
        """The next delivery at that URL."""
        return self._queues[f"/{name}"].get(timeout=timeout_s)

    def taken(self, name: str) -> list[Delivery]:
        """All deliveries at that URL that nobody has asked for yet."""
        waiting = self._queues[f"/{name}"]
        return [waiting.get_nowait() for _ in range(waiting.qsize())]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        queues = self._queues

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path in queues:
                    queues[self.path].put(Delivery(self.path, headers, body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
