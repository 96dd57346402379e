"""The whole product, started as a user starts it and spoken to over HTTP only."""

import json
import os
import queue
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.acceptance.picture_host import PictureHost
from tests.acceptance.receiver import Receiver

READY = re.compile(r"ready (http://\S+)")
START_TIMEOUT_S, STOP_TIMEOUT_S = 120, 40


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder are acceptance tests."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.acceptance)


@dataclass
class Product:
    """A running `arachne up`."""

    url: str
    data_dir: Path
    process: subprocess.Popen[str]
    environment: dict[str, str]

    def command(self, *words: str) -> str:
        """What a command of ours prints."""
        line = [sys.executable, "-P", "-m", "arachne", *words, "--data-dir", str(self.data_dir)]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def parts(self, *words: str) -> list[psutil.Process]:
        """Our processes whose command line ends in these words."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in children if child.cmdline()[-len(words) :] == list(words)]


@dataclass
class Client:
    """An account's client."""

    api: httpx.Client
    account: dict[str, str]

    def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        """The JSON at a path."""
        answer = self.api.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def wait(self, job_id: str, timeout_s: float = 120) -> dict[str, Any]:
        """The job, finished."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            job = self.get(f"/api/extract/image-jobs/{job_id}", wait=10)
            if job["finished"]:
                return job
        raise AssertionError(f"not finished within {timeout_s} s: {job['progress']}")


@pytest.fixture(scope="session")
def receiver() -> Iterator[Receiver]:
    """A webhook receiver on loopback."""
    with Receiver() as running:
        yield running


@pytest.fixture(scope="session")
def picture_host() -> Iterator[PictureHost]:
    """A host of pictures on loopback."""
    with PictureHost() as running:
        yield running


@pytest.fixture(scope="session")
def product(
    tmp_path_factory: pytest.TempPathFactory, receiver: Receiver, picture_host: PictureHost
) -> Iterator[Product]:
    """The product, stopped at the end without leaving a process. It may call the receiver and the host of pictures."""
    allowed = {
        "ARACHNE_WEBHOOK_EGRESS_ALLOW": json.dumps([f"127.0.0.1:{receiver.port}"]),
        "ARACHNE_IMAGE_EGRESS_ALLOW": json.dumps([f"127.0.0.1:{picture_host.port}"]),
    }
    with running_product(tmp_path_factory.mktemp("product") / "data", **allowed) as running:
        yield running


@contextmanager
def running_product(data_dir: Path, **settings: str) -> Iterator[Product]:
    """A product with these settings, stopped at the end without leaving a process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ARACHNE_")} | {
        "ARACHNE_EGRESS_ALLOW_HTTP": "true",
        "ARACHNE_VISION_RATE_LIMIT": "1000/minute",
        **settings,
    }
    line = [sys.executable, "-P", "-m", "arachne", "up", "--port", "0", "--data-dir", str(data_dir)]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=None, text=True, env=environment)
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    reader = threading.Thread(target=lambda stream: [lines.put(one) for one in stream], args=(process.stdout,))
    reader.start()
    try:
        ready = READY.match(lines.get(timeout=START_TIMEOUT_S))
        assert ready is not None
        running = Product(ready[1], data_dir, process, environment)
        children = psutil.Process(process.pid).children(recursive=True)
        yield running
        children += psutil.Process(process.pid).children(recursive=True)
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(STOP_TIMEOUT_S)
        reader.join(STOP_TIMEOUT_S)
        process.stdout.close()
    assert status == 0
    assert [child for child in children if is_alive(child)] == []


def is_alive(process: psutil.Process) -> bool:
    """Whether the process runs; one that only waits to be reaped by another does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def new_client(product: Product) -> Iterator[Any]:
    """Makes clients of accounts of their own."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(new_client_of(product))


@contextmanager
def new_client_of(product: Product) -> Iterator[Client]:
    """A client of an account of its own, with a token from the token endpoint."""
    account = json.loads(product.command("account", "create", f"a-{secrets.token_hex(6)}", "--json"))
    with httpx.Client(base_url=product.url, timeout=70, trust_env=False) as api:
        credentials = (account["client_id"], account["client_secret"])
        answer = api.post("/api/auth/token", data={"grant_type": "client_credentials"}, auth=credentials)
        assert answer.status_code == 200, answer.text
        api.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        yield Client(api, account)


@pytest.fixture
def client(new_client: Any) -> Client:
    """A client of an account of this test's own."""
    made: Client = new_client()
    return made
