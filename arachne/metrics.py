"""What each process counts, in a registry that its own listener shows to Prometheus.

Labels take few values: no account, no path as it was sent, no id. What is true of the whole queue, and would be told
as often as there are processes, is told by the scheduler alone (`arachne.jobs.gauges`).
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol
from weakref import WeakSet

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from arachne.errors import VlmError

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "DELETE", "OPTIONS"})
CLIENT_LEFT = 499
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metric(NamedTuple):
    """A line of the table in docs/operations.md; `parts` are the processes it is found in."""

    name: str
    kind: str
    labels: tuple[str, ...]
    parts: str
    meaning: str


CATALOG: list[Metric] = []


def _counter(name: str, parts: str, meaning: str, *labels: str) -> Counter:
    CATALOG.append(Metric(f"{name}_total", "counter", labels, parts, meaning))
    return Counter(name, meaning, labels, registry=REGISTRY)


def _histogram(name: str, parts: str, meaning: str, *labels: str) -> Histogram:
    CATALOG.append(Metric(name, "histogram", labels, parts, meaning))
    return Histogram(name, meaning, labels, registry=REGISTRY, buckets=SECONDS)


def _gauge(name: str, parts: str, meaning: str) -> Gauge:
    CATALOG.append(Metric(name, "gauge", (), parts, meaning))
    return Gauge(name, meaning, registry=REGISTRY)


def family(name: str, parts: str, meaning: str, *labels: str) -> Callable[[], GaugeMetricFamily]:
    """Makes the gauge anew for each look; for what is measured when it is asked for."""
    CATALOG.append(Metric(name, "gauge", labels, parts, meaning))
    return lambda: GaugeMetricFamily(name, meaning, labels=labels)


HTTP_REQUESTS = _counter(
    "arachne_http_requests", "api", "Requests by route template and status; 499: the client left", "method", "route",
    "status",
)  # fmt: skip
HTTP_SECONDS = _histogram(
    "arachne_http_request_seconds", "api", "Seconds to the end of the answer, waits that clients asked for included",
    "route",
)  # fmt: skip
USAGE_DROPPED = _counter("arachne_usage_rows_dropped", "api", "Calls that could not be written to the usage log")
IMAGES = _counter("arachne_images", "api, gpu, io", "Images that ended, by how", "outcome")
STAGE_SECONDS = _histogram("arachne_stage_seconds", "gpu", "Seconds of a stage that ran, over all frames", "stage")
CACHE_HITS = _counter(
    "arachne_cache_hits", "api, gpu",
    "Answers from the cache: `result` a whole one, `reading` stages 1 to 7, `file` its body from this machine's file",
    "level",
)  # fmt: skip
VLM_IN_FLIGHT = _gauge("arachne_vlm_in_flight", "gpu", "Questions this worker has with the model server")
VLM_SECONDS = _histogram("arachne_vlm_request_seconds", "gpu", "Seconds of one question to the model server")
VLM_REQUESTS = _counter(
    "arachne_vlm_requests",
    "gpu",
    "Questions to the model server: `answered`, `dropped`, or an error's code",
    "outcome",
)
DELIVERIES = _counter(
    "arachne_deliveries", "io, api", "Attempts to send a webhook: `succeeded`, or the class of failure", "outcome"
)
DELIVERY_SECONDS = _histogram("arachne_delivery_seconds", "io, api", "Seconds of one attempt to send a webhook")
LEASES_LOST = _counter("arachne_leases_lost", "gpu, io", "Images taken back from workers that were lost")
WORKERS_LOST = _counter("arachne_workers_lost", "gpu, io", "Workers found without a beat for LEASE_S")
SPOOL_BYTES = _gauge("arachne_spool_bytes", "api, io", "Bytes of images held in temporary files")
_CONNECTIONS = family(
    "arachne_database_connections", "api, gpu, io, scheduler", "Pooled connections to PostgreSQL, by state", "state"
)


class Pooled(Protocol):
    """An engine: what has a pool, another one after it was disposed of."""

    @property
    def pool(self) -> object:
        """The pool it has now."""


class _Connections(Collector):
    """The connections of all engines of this process that are still in use."""

    def __init__(self) -> None:
        self.engines: WeakSet[Pooled] = WeakSet()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        pools = [engine.pool for engine in list(self.engines)]
        gauge = _CONNECTIONS()
        gauge.add_metric(["used"], sum(_size(pool, "checkedout") for pool in pools))
        gauge.add_metric(["idle"], sum(_size(pool, "checkedin") for pool in pools))
        yield gauge


def _size(pool: object, of: str) -> int:
    counted = getattr(pool, of, None)  # pools of other kinds keep none
    return int(counted()) if counted is not None else 0


_connections = _Connections()
REGISTRY.register(_connections)


def watch_pool(engine: Pooled) -> None:
    """Count the engine's connections for as long as it is there."""
    _connections.engines.add(engine)


def count_request(method: str, route: str, status: int, seconds: float) -> None:
    """A request was answered; `route` is the template, empty where there is none."""
    route = route or "-"
    HTTP_REQUESTS.labels(method if method in METHODS else "other", route, str(status)).inc()
    HTTP_SECONDS.labels(route).observe(seconds)


def count_images(*, completed: int, cached: int, degraded: int, failed: int, cancelled: int) -> None:
    """Images ended; cached and degraded ones are among the completed."""
    counts = {
        "completed": max(0, completed - cached - degraded), "cached": cached, "degraded": degraded, "failed": failed,
        "cancelled": cancelled,
    }  # fmt: skip
    for outcome, number in counts.items():
        if number:
            IMAGES.labels(outcome).inc(number)


def count_delivery(failure: str | None, seconds: float) -> None:
    """A webhook was sent, or was not."""
    DELIVERIES.labels(failure or "succeeded").inc()
    DELIVERY_SECONDS.observe(seconds)


def observe_stages(seconds: Mapping[str, float]) -> None:
    """Stages of one image ran for so long."""
    for stage, taken_s in seconds.items():
        STAGE_SECONDS.labels(stage).observe(taken_s)


@contextmanager
def asking() -> Iterator[None]:
    """A question is with the model server inside."""
    started_s = time.perf_counter()
    with VLM_IN_FLIGHT.track_inprogress():
        try:
            yield
        finally:
            VLM_SECONDS.observe(time.perf_counter() - started_s)


@contextmanager
def question() -> Iterator[None]:
    """What becomes of a question inside is counted."""
    outcome = "dropped"
    try:
        yield
        outcome = "answered"
    except VlmError as error:
        outcome = error.code
        raise
    except Exception:
        outcome = "ours"
        raise
    finally:
        VLM_REQUESTS.labels(outcome).inc()


def metrics_table() -> str:
    """A Markdown table of every metric of ours."""
    rows = ["| metric | kind | labels | of | meaning |", "| --- | --- | --- | --- | --- |"]
    for one in sorted(CATALOG):
        labels = ", ".join(f"`{label}`" for label in one.labels) or "–"
        rows.append(f"| `{one.name}` | {one.kind} | {labels} | {one.parts} | {one.meaning} |")
    return "\n".join(rows) + "\n"
