"""A webhook receiver on loopback that verifies what comes, prints it, and passes it on where that is wanted."""

import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, Self

import httpx2

from arachne.cli.output import say, shown
from arachne.cli.signals import heeded
from arachne.client.refusals import read_mapping
from arachne.client.settings import is_http_url
from arachne.errors import OutputLost, SetupError
from arachne.signatures.verification import verify_with_any
from arachne.strict_json import parse

MAX_BODY_BYTES = 4 * 1024 * 1024
_FORWARDED = ("content-type", "user-agent", "webhook-id", "webhook-timestamp", "webhook-signature")
_IDLE_S = 30.0
_FORWARD_TIMEOUT_S = 15.0


def check_forwarding(url: str) -> None:
    """Nothing, if requests can be passed on to this URL.

    Raises:
        SetupError: they can't.
    """
    if not is_http_url(url):
        raise SetupError(f"--forward-to is {url!r}, no http:// or https:// URL. Write it whole: http://127.0.0.1:3000/")


@contextmanager
def ended_by_signals(ended: threading.Event) -> Iterator[None]:
    """A block in which SIGINT and SIGTERM set this."""
    former = {one: signal.signal(one, lambda *_: ended.set()) for one in (signal.SIGINT, *heeded())}
    try:
        yield
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)


class Listener:
    """Listens on loopback from the start, so that `url` is known; answers once it has secrets to verify with.

    `lost`: why nothing can be printed any more, upon which it has `ended`.
    """

    def __init__(self, port: int, *, forward_to: str | None = None, as_json: bool = False) -> None:
        """`port` 0 is any.

        Raises:
            SetupError: the port can't be listened on.
        """
        self._as_json = as_json
        self._forward_to = forward_to
        self._client = httpx2.Client(timeout=_FORWARD_TIMEOUT_S, trust_env=False)
        self._secrets: Sequence[str] = ()
        self._print_lock = threading.Lock()
        self.ended = threading.Event()
        self.lost: OutputLost | None = None
        self._thread: threading.Thread | None = None
        listener = self

        class Handler(_Handler):
            owner = listener

        try:
            self._server = _Server(("127.0.0.1", port), Handler)
        except OSError as error:
            self._client.close()
            raise SetupError(f"Port {port} can't be used: {error.strerror}. Choose another with --port.") from None
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def start(self, secrets: Sequence[str]) -> None:
        """Answer from now on."""
        self._secrets = secrets
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return once it has ended."""
        while not self.ended.wait(1.0):  # a wait without end is not interrupted by signals everywhere
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._client.close()

    def take(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to a request, which is printed if it is genuine."""
        told = verify_with_any(self._secrets, headers, body)
        assert told is not None
        if not told.valid:
            say(f"refused {shown(headers.get('webhook-id', 'a request'))}: {told.reason}: {told.detail}")
            return 400, f"{told.reason}\n".encode()
        try:
            self._print(headers["webhook-id"], body)
        except OutputLost as error:
            self.lost = error
            self.ended.set()
            return 503, b"not printed\n"  # so that it is sent again
        return self._forward(headers, body) if self._forward_to is not None else (204, b"")

    def _print(self, message_id: str, body: bytes) -> None:
        try:
            line = _line(message_id, parse(body), as_json=self._as_json)
        except (ValueError, KeyError):
            say(f"{message_id} is genuine but not an event of ours")
            return
        with self._print_lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def _forward(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        assert self._forward_to is not None
        passed = {name: headers[name] for name in _FORWARDED if name in headers}
        try:
            answer = self._client.post(self._forward_to, content=body, headers=passed)
        except httpx2.HTTPError as error:
            say(f"{headers['webhook-id']} was not passed on: {error or type(error).__name__}")
            return 502, b"not passed on\n"
        say(f"{headers['webhook-id']} passed on: {answer.status_code}")
        return answer.status_code, answer.content


def _line(message_id: str, event: object, *, as_json: bool) -> str:
    if not isinstance(event, dict):
        raise ValueError("no object")  # noqa: TRY004  # it came over the wire
    if as_json:
        return json.dumps({"message_id": message_id, **event}, ensure_ascii=True, separators=(",", ":"))
    data = read_mapping(event["data"])
    about = [str(data[name]) for name in ("job_id", "status", "endpoint_id", "reason") if data.get(name) is not None]
    return shown("  ".join([str(event["timestamp"]), str(event["type"]), *about, message_id]))


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """One line for a connection that broke: the sender tries again."""
        say(f"a connection broke: {sys.exc_info()[1]!r}")


class _Handler(BaseHTTPRequestHandler):
    owner: ClassVar[Listener]
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S

    def do_POST(self) -> None:
        """Take one request."""
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit() and len(length) <= 12):
            self._answer(411, b"")
        elif int(length) > MAX_BODY_BYTES:
            self._answer(413, b"")
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._answer(*self.owner.take(headers, self.rfile.read(int(length))))

    def _answer(self, status: int, body: bytes) -> None:
        self.close_connection = self.close_connection or status in {411, 413}  # the body was not read
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status not in {204, 304}:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
