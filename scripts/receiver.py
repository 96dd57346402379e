"""A webhook receiver on loopback, as an integrator would write it: it keeps raw bodies and verifies signatures."""

import base64
import hashlib
import hmac
import json
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

TOLERANCE_S = 300
MAX_BODY_BYTES = 1_000_000


@dataclass(frozen=True)
class Delivery:
    """One request as it came in; header names in lower case."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, object]:
        """The body, parsed."""
        parsed = json.loads(self.body)
        assert isinstance(parsed, dict)
        return parsed


def is_genuine(secret: str, delivery: Delivery) -> bool:
    """Whether the delivery is fresh and signed with `secret`. Source: Standard Webhooks 1.0, symmetric signatures."""
    timestamp = delivery.headers["webhook-timestamp"]
    if abs(time.time() - int(timestamp)) > TOLERANCE_S:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{delivery.headers['webhook-id']}.{timestamp}.".encode() + delivery.body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(expected, given) for given in delivery.headers["webhook-signature"].split(" "))


class Receiver:
    """Listens on a free loopback port until closed; deliveries wait in a queue."""

    def __init__(self) -> None:
        self.deliveries: queue.Queue[Delivery] = queue.Queue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Where deliveries go."""
        return f"http://127.0.0.1:{self.port}/hooks"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        deliveries = self.deliveries

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = min(int(self.headers.get("content-length", 0)), MAX_BODY_BYTES)
                headers = {name.lower(): value for name, value in self.headers.items()}
                deliveries.put(Delivery(headers, self.rfile.read(length)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
