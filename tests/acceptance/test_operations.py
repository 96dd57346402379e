"""What operators see of the whole product: logs without secrets, traces over all processes, metrics that add up."""

import json
import os
import secrets
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.conftest import Client, Product, new_client_of, running_product
from tests.acceptance.picture_host import PictureHost
from tests.acceptance.receiver import Receiver
from tests.acceptance.test_product import JOBS, MANY, ONE, distinct, screenshots
from tests.machines.waiting import eventually
from tests.standins.served import Served

PARTS = ("api", "worker-gpu", "worker-io", "scheduler")
OTHER_API = 10  # ports above the first one's


def free_base() -> int:
    """A port that is free with those the parts take above it."""
    for base in range(20_000 + os.getpid() % 5000 * 2, 60_000, 16):
        with ExitStack() as opened, suppress(OSError):
            for port in (*range(base, base + len(PARTS)), base + OTHER_API):
                opened.enter_context(socket.create_server(("127.0.0.1", port)))
            return base
    raise AssertionError("no ports are free")


@pytest.fixture(scope="module")
def base_port() -> int:
    """Where metrics begin."""
    return free_base()


class Collector(Served):
    """Takes spans over OTLP."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[tuple[str, Span]] = []

    @property
    def url(self) -> str:
        """Where to send them."""
        return f"http://127.0.0.1:{self.port}"

    def of(self, trace_id: str) -> dict[str, str]:
        """The service that made each span of a trace, by the span's name."""
        return {span.name: service for service, span in list(self.spans) if span.trace_id.hex() == trace_id}

    async def answer(self, request: web.Request) -> web.Response:
        """200, once they are kept."""
        for told in ExportTraceServiceRequest.FromString(await request.read()).resource_spans:
            names = [one.value.string_value for one in told.resource.attributes if one.key == "service.name"]
            self.spans.extend((names[0], span) for scope in told.scope_spans for span in scope.spans)
        return web.Response()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """Where spans go."""
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory,
    receiver: Receiver,
    picture_host: PictureHost,
    base_port: int,
    collector: Collector,
) -> Iterator[Product]:
    """A product that logs all there is, is traced, and whose metrics have ports of their own."""
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "ARACHNE_LOG_LEVEL": "DEBUG",
        "ARACHNE_METRICS_PORT": str(base_port),
        "ARACHNE_WEBHOOK_EGRESS_ALLOW": json.dumps([f"127.0.0.1:{receiver.port}"]),
        "ARACHNE_IMAGE_EGRESS_ALLOW": json.dumps([f"127.0.0.1:{picture_host.port}"]),
    }
    with running_product(tmp_path_factory.mktemp("watched") / "data", **settings) as product:
        yield product


@contextmanager
def another_api(product: Product, metrics_port: int) -> Iterator[str]:
    """The URL of a second API process on the same service."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    line = [sys.executable, "-P", "-m", "arachne", "api", "--port", str(port), "--data-dir", str(product.data_dir)]
    environment = product.environment | {"ARACHNE_METRICS_PORT": str(metrics_port)}
    with (product.data_dir / "logs" / "api-2.log").open("wb") as log:
        process = subprocess.Popen(line, stderr=log, env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: answers(f"{url}/readyz"))
        yield url
    finally:
        process.terminate()
        process.wait(40)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def scrape(*ports: int) -> Counter[str]:
    """The samples at these ports, added up by name and labels."""
    total: Counter[str] = Counter()
    for port in ports:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=30).text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                total[f"{sample.name} {' '.join(sample.labels.values())}".strip()] += sample.value
    return total


def records(product: Product, part: str) -> list[dict[str, Any]]:
    """The lines of a part's log, each of them JSON."""
    return [json.loads(line) for line in (product.data_dir / "logs" / f"{part}.log").read_text().splitlines()]


def test_logs_lead_from_the_request_to_the_webhook_and_hold_no_secrets(
    watched: Product, receiver: Receiver, picture_host: PictureHost, images: Path
) -> None:
    """At DEBUG, of every process: no token, secret, prompt, metadata, query of a URL, or word of an image."""
    shot = screenshots(images)[0]
    query, prompt, label = (secrets.token_hex(12) for _ in range(3))
    picture_host.pages |= {"/ops.png": distinct(shot, 9001), "/ops.txt": b"no image"}
    with new_client_of(watched) as client:
        endpoint = client.api.post("/api/webhooks", json={"url": receiver.url(f"ops?q={query}")}).json()
        rotated = client.api.post(f"/api/webhooks/{endpoint['endpoint_id']}/rotate", json={}).json()
        urls = [f"{picture_host.url(path)}?signature={query}" for path in ("/ops.png", "/ops.txt", "/ops-gone")]
        body = {
            "images": [{"url": url} for url in urls],
            "options": {"prompt": f"Look at {prompt}"},
            "metadata": {"order": label},
        }
        sent = client.api.post(MANY, json=body, headers={"X-Request-Id": "req-of-ours"})
        job = client.wait(sent.json()["job_id"])
        assert job["status"] == "partial"
        refuse_in_many_ways(watched, client, query)
        event = receiver.next(f"ops?q={query}")
        default = client.get("/api/webhooks/default/secret")["secret"]
        hidden = [
            client.account["client_secret"], client.api.headers["authorization"].split()[1], endpoint["secret"],
            rotated["secret"], default, query, prompt, label, *telling_words(client, job["job_id"]),
        ]  # fmt: skip
    message_id = event.headers["webhook-id"]
    eventually(lambda: any(one.get("message_id") == message_id for one in records(watched, "worker-io")))
    for path in (watched.data_dir / "logs").iterdir():
        logged = path.read_text(errors="replace")
        assert [number for number, secret in enumerate(hidden) if secret in logged] == [], path.name
    assert_thread(watched, job["job_id"], message_id)


def refuse_in_many_ways(product: Product, client: Client, query: str) -> None:
    """Requests that go wrong, each with something in it that is nobody's business."""
    client.api.get(f"/api/extract/image-jobs?cursor={query}")
    client.api.post("/api/auth/token", data={"grant_type": "client_credentials", "client_secret": query})
    client.api.post(ONE, files={"file": (query, query.encode())})
    client.api.post(ONE, json={"image": {"base64": query}, "options": {"prompt": 7, query: 1}})
    httpx.get(f"{product.url}{JOBS}", headers={"Authorization": f"Bearer {query}"}, trust_env=False)
    httpx.get(f"{product.url}/nowhere?token={query}", trust_env=False)


def telling_words(client: Client, job_id: str) -> list[str]:
    """Words of the image that nothing of ours would say."""
    text = client.get(f"{JOBS}/{job_id}/images/0")["result"]["text"]
    lines = [line.strip() for line in text.splitlines() if len(line.split()) >= 3]
    assert lines
    return lines


def assert_thread(product: Product, job_id: str, message_id: str) -> None:
    """One request id leads from the acceptance over the image's end to the webhook."""
    ids = {"request_id": "req-of-ours", "job_id": job_id}
    for part, event, more in (
        ("api", "job accepted", {}),
        ("worker-gpu", "image completed", {}),
        ("worker-io", "webhook sent", {"message_id": message_id}),
    ):
        wanted = ids | more
        found = [one for one in records(product, part) if one["event"] == event and wanted.items() <= one.items()]
        assert len(found) == 1, (part, event)
    assert all(
        {"timestamp", "level", "logger", "event"} <= one.keys() for part in PARTS for one in records(product, part)
    )


def test_a_trace_leads_from_the_callers_request_over_all_processes(
    watched: Product, receiver: Receiver, images: Path, collector: Collector
) -> None:
    """Each part's spans are in the trace that the caller began, under its service's name."""
    trace_id = secrets.token_hex(16)
    with new_client_of(watched) as client:
        client.api.post("/api/webhooks", json={"url": receiver.url("traced"), "events": ["job.completed"]})
        headers = {"traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01", "Prefer": "wait=60"}
        answer = client.api.post(ONE, files={"file": distinct(screenshots(images)[0], 9201)}, headers=headers)
        assert answer.json()["status"] == "completed", answer.text
        receiver.next("traced")
    expected = {
        "request": "arachne-api", "claim": "arachne-worker-gpu", "stages": "arachne-worker-gpu",
        "finish": "arachne-worker-gpu", "delivery": "arachne-worker-io",
    }  # fmt: skip
    eventually(lambda: collector.of(trace_id) == expected)


def test_metrics_add_up_over_all_processes(watched: Product, receiver: Receiver, images: Path, base_port: int) -> None:
    """Two API processes and both workers count what was done, each its part; the queue is measured once."""
    ports = [*range(base_port, base_port + len(PARTS)), base_port + OTHER_API]
    shot = screenshots(images)[0]
    with another_api(watched, ports[-1]) as other, new_client_of(watched) as client:
        eventually(lambda: scrape(*ports))
        client.api.post("/api/webhooks", json={"url": receiver.url("sums"), "events": ["job.completed"]})
        before = scrape(*ports)
        headers = {"Authorization": client.api.headers["authorization"]}
        for n, url in enumerate((watched.url, other, watched.url, other, other)):
            image = distinct(shot, 9100 + n % 4)  # the last is one there was
            wait, files = {"Prefer": "wait=60"}, {"file": image}
            answer = httpx.post(f"{url}{ONE}", files=files, headers=headers | wait, timeout=90, trust_env=False)
            assert answer.json()["status"] == "completed", answer.text
        for _ in range(5):
            receiver.next("sums")
        eventually(lambda: (scrape(*ports) - before)["arachne_deliveries_total succeeded"] == 5)
        after = scrape(*ports)
    counted = after - before
    assert counted[f"arachne_http_requests_total POST {ONE} 200"] == 5
    assert counted["arachne_images_total completed"] == 4
    assert counted["arachne_images_total cached"] == 1
    assert counted["arachne_cache_hits_total result"] == 1
    assert counted["arachne_stage_seconds_count read"] == counted["arachne_stage_seconds_count decode"] == 4
    assert (after["arachne_workers gpu"], after["arachne_workers io"]) == (1, 1)
    assert after["arachne_queue_images queued"] == after["arachne_deliveries_pending"] == 0
    assert after["arachne_leases_lost_total"] == 0
