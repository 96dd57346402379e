"""Clients as careful ones are: they send again with the same Idempotency-Key until they have an answer."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Lock

import httpx

from scripts.havoc.orders import Order
from scripts.havoc.outside import Outside

JOBS = "/api/extract/image-jobs"
TIMEOUT_S, PATIENCE_S, LONGEST_WAIT_S = 20.0, 300.0, 2.0
AT_ONCE = 16
STATES = {"completed", "partial", "failed", "cancelled"}


class GivenUpError(Exception):
    """The service answered nothing useful for far too long."""


@dataclass
class Client:
    """An account's client. It goes to the next API process where one doesn't answer, as through a balancer."""

    account: dict[str, str]
    apis: Sequence[str]
    resent: int = 0
    faults: list[str] = field(default_factory=list)  # answers that no client should get
    _token: str = ""
    _turn: count = field(default_factory=count)  # type: ignore[type-arg]
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        limits = httpx.Limits(max_keepalive_connections=AT_ONCE)
        self._http = httpx.Client(timeout=TIMEOUT_S, trust_env=False, limits=limits)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, method: str, path: str, **more: object) -> httpx.Response:
        """The answer, once there is one that says something.

        Raises:
            GivenUpError: there was none for minutes.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = self._try(method, path, **more)
            if answer is not None and answer.status_code < 400:
                return answer
            wait_s = self._judge(answer, f"{method} {path}")
            with self._lock:
                self.resent += 1
            time.sleep(wait_s)
        raise GivenUpError(f"{method} {path}")

    def _try(self, method: str, path: str, **more: object) -> httpx.Response | None:
        base = self.apis[next(self._turn) % len(self.apis)]
        headers: dict[str, str] = {"Authorization": f"Bearer {self._token}"}
        given = more.pop("headers", None)
        if isinstance(given, dict):
            headers |= given
        try:
            return self._http.request(method, base + path, headers=headers, **more)  # type: ignore[arg-type]
        except httpx.TransportError:
            return None

    def _judge(self, answer: httpx.Response | None, what: str) -> float:
        """Seconds to wait before trying again; an answer that should not be is kept."""
        if answer is None:
            return 0.2
        if answer.status_code == 401:
            self.sign_in()
            return 0.2
        again = answer.status_code in {429, 503} or _code(answer) == "idempotency_key_in_use"
        if not again:
            with self._lock:
                self.faults.append(f"{what}: {answer.status_code} {answer.text[:300]}")
        elif "Retry-After" not in answer.headers:
            with self._lock:
                self.faults.append(f"{what}: {answer.status_code} without Retry-After")
        return min(float(answer.headers.get("Retry-After", 1)), LONGEST_WAIT_S)

    def sign_in(self) -> None:
        """Have a token, if the service lets us."""
        credentials = (self.account["client_id"], self.account["client_secret"])
        base = self.apis[next(self._turn) % len(self.apis)]
        form = {"grant_type": "client_credentials"}
        try:
            answer = self._http.post(f"{base}/api/auth/token", data=form, auth=credentials)
        except httpx.TransportError:
            return
        if answer.status_code == 200:
            self._token = answer.json()["access_token"]
        elif answer.status_code not in {429, 503}:
            with self._lock:
                self.faults.append(f"token: {answer.status_code} {answer.text[:300]}")


def _code(answer: httpx.Response) -> str:
    try:
        return str(answer.json().get("code", ""))
    except ValueError:
        return ""


@dataclass
class Crowd:
    """All clients at work: they send their orders when it is time, cancel some, and look how they get on."""

    clients: Sequence[Client]
    orders: Sequence[Order]
    outside: Outside
    _stop: Event = field(default_factory=Event)

    def start(self) -> None:
        """Begin."""
        self._began_s = time.monotonic()
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="client")
        self._sent = [self._threads.submit(self._send, order) for order in self.orders]
        self._watcher = ThreadPoolExecutor(1, thread_name_prefix="watcher")
        self._watching = self._watcher.submit(self._watch)

    @property
    def is_done(self) -> bool:
        """Whether everything was sent."""
        return all(sent.done() for sent in self._sent)

    def stop(self) -> None:
        """End.

        Raises:
            GivenUpError: a client had no answer.
        """
        self._stop.set()
        self._threads.shutdown(cancel_futures=True)
        self._watcher.shutdown()
        for sent in [*self._sent, self._watching]:
            if not sent.cancelled():
                sent.result()

    def _send(self, order: Order) -> None:
        if self._stop.wait(max(0.0, self._began_s + order.at_s - time.monotonic())):
            return
        client = self.clients[order.client]
        route = "/api/extract/image" if order.is_single else "/api/extract/images"
        request = order.request(self.outside)
        for _ in range(1 + order.sent_again):
            answer = client.ask("POST", route, headers={"Idempotency-Key": order.key}, **request)
            order.job_ids.add(answer.json()["job_id"])
        if order.cancel_after_s is not None and not self._stop.wait(order.cancel_after_s):
            job = client.ask("POST", f"{JOBS}/{order.job_id}/cancel").json()
            order.cancelled = True
            self._note(order, job)

    def _watch(self) -> None:
        """Now and then look at each job: what is finished must stay as it is."""
        while not self._stop.is_set():
            for order in self.orders:
                if self._stop.wait(0.02):
                    return
                if order.job_ids and order.seen is None:
                    self._note(order, self.clients[order.client].ask("GET", f"{JOBS}/{order.job_id}").json())

    def _note(self, order: Order, job: dict[str, object]) -> None:
        if job["status"] in STATES and order.seen is None:
            order.seen = {"status": job["status"], "progress": job["progress"], "finished_at": job["finished_at"]}
