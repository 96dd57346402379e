"""What operators see of requests: counts by template, and ids and traces that reach the worker and the webhook."""

import asyncio
import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.contextvars import get_contextvars

from arachne import tracing
from arachne.http.routes import all_resources, undescribed_resources
from arachne.metrics import REGISTRY
from tests.http.conftest import Service
from tests.http.pictures import png
from tests.http.sending import ONE, send
from tests.http.worker import Worker

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def count(method: str, route: str, status: int) -> float:
    labels = {"method": method, "route": route, "status": str(status)}
    return REGISTRY.get_sample_value("arachne_http_requests_total", labels) or 0.0


async def test_requests_count_under_their_template(service: Service) -> None:
    """With their status; paths as sent are nobody's label, unknown ones count together."""
    expected = [
        ("GET", "/api/extract/image-jobs/{job_id}", 404, "/api/extract/image-jobs/job_0000000000000000000000000"),
        ("GET", "/api/extract/image-jobs", 200, "/api/extract/image-jobs"),
        ("DELETE", "/api/extract/image", 405, "/api/extract/image"),
        ("GET", "-", 404, "/secret/path?token=abc"),
        ("GET", "/healthz", 200, "/healthz"),
    ]
    before = [count(*one[:3]) for one in expected]
    headers = await service.headers()
    for method, _, _, path in expected:
        await service.client.request(method, path, headers=headers)
    assert [count(*one[:3]) for one in expected] == [number + 1 for number in before]
    routes = {
        sample.labels["route"]
        for family in REGISTRY.collect()
        for sample in family.samples
        if family.name.startswith("arachne_http")
    }
    served = [*all_resources(), *undescribed_resources()]
    assert routes <= {resource.path for resource in served} | {"-"}


async def test_the_requests_id_and_trace_reach_whoever_works_for_its_job(service: Service) -> None:
    """A claim names the request that made its job, and the caller's trace where nothing is traced here."""
    headers = {"X-Request-Id": "req-of-the-caller", "traceparent": GIVEN}
    sent = await send(service, ONE, files={"file": ("a.png", png())}, headers=await service.headers() | headers)
    worker = await Worker(service).start()
    (image,) = await worker.claim()
    assert image.ids == {
        "request_id": "req-of-the-caller", "job_id": sent.json()["job_id"], "image_id": image.image_id
    }  # fmt: skip
    assert image.traceparent == GIVEN


async def test_malformed_traces_are_not_kept(service: Service) -> None:
    await send(
        service, ONE, files={"file": ("a.png", png())}, headers=await service.headers() | {"traceparent": "00-x"}
    )
    (image,) = await (await Worker(service).start()).claim()
    assert image.traceparent is None


async def test_records_made_for_a_request_carry_its_id(service: Service) -> None:
    """And no other's, however many are answered at once."""
    found: dict[str, dict[str, Any]] = {}

    class Catch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "job accepted":
                found[record.__dict__["job_id"]] = get_contextvars()

    log, handler = logging.getLogger("arachne.http.entry"), Catch()
    log.addHandler(handler)
    former, _ = log.level, log.setLevel(logging.INFO)
    try:
        sending = [send(service, ONE, files={"file": ("a.png", png((n, 0, 0)))}) for n in range(5)]
        answers = await asyncio.gather(*sending)
    finally:
        log.removeHandler(handler)
        log.setLevel(former)
    told = {answer.json()["job_id"]: {"request_id": answer.headers["X-Request-Id"]} for answer in answers}
    assert found == told


async def test_a_request_and_its_claim_are_one_trace(service: Service) -> None:
    """The span of the request continues the caller's; the claim continues the request's."""
    exporter = InMemorySpanExporter()
    with tracing.exporting(exporter, "api"):
        headers = await service.headers() | {"traceparent": GIVEN}
        sent = await send(service, ONE, files={"file": ("a.png", png())}, headers=headers)
        await (await Worker(service).start()).claim()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    request, claim = spans["request"], spans["claim"]
    assert f"{request.context.trace_id:032x}" == f"{claim.context.trace_id:032x}" == GIVEN[3:35]
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == GIVEN[36:52]
    assert claim.parent is not None
    assert claim.parent.span_id == request.context.span_id
    assert request.attributes == {
        "arachne.method": "POST", "arachne.route": "/api/extract/image", "arachne.status": sent.status_code
    }  # fmt: skip
    assert claim.attributes["arachne.job_id"] == sent.json()["job_id"]


@pytest.mark.parametrize("path", ["/metrics", "/api/metrics"])
async def test_metrics_are_not_on_the_apis_port(service: Service, path: str) -> None:
    assert (await service.client.get(path)).status_code == 404
