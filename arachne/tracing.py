"""Spans for OpenTelemetry, where its packages are installed and told where to send them; nothing at all elsewhere.

A job keeps the `traceparent` (W3C Trace Context) of the request that made it, and what workers do for it later is part
of that trace. Spans hold ids, names and numbers; no texts, addresses or queries.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from threading import Thread
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from arachne.errors import SetupError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

log = logging.getLogger(__name__)
Kind = Literal["internal", "server", "client"]
Value = str | int | float | bool | None
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
LAST_S = 2.0  # for the last spans of a process that ends
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


class Span:
    """A span under way; without a tracer it is none, and has no `traceparent`."""

    def __init__(self, span: "OtelSpan | None" = None) -> None:
        self._span = span

    @property
    def traceparent(self) -> str | None:
        """How others continue it."""
        if self._span is None:
            return None
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"

    def note(self, **attributes: Value) -> None:
        """Add what has become known."""
        if self._span is not None:
            self._span.set_attributes(_named(attributes))


_NONE = Span()
_ambient: ContextVar[str | None] = ContextVar("arachne_traceparent", default=None)
_tracers: "list[Tracer]" = []
_providers: "list[TracerProvider]" = []


def accept(traceparent: str | None) -> str | None:
    """A `traceparent` of acceptable form; None for any other."""
    return traceparent if traceparent is not None and _TRACEPARENT.fullmatch(traceparent) else None


@contextmanager
def traced(part: str) -> Iterator[None]:
    """Spans of this process go where OpenTelemetry's own variables say, until the block ends; nowhere without them.

    Raises:
        SetupError: they say so, and the packages are not installed.
    """
    if not any(os.environ.get(name) for name in ENDPOINTS) or os.environ.get("OTEL_SDK_DISABLED", "") == "true":
        yield
        return
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        raise SetupError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is missing: install arachne-vision[server,otel]."
        )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415  # an extra

    with exporting(OTLPSpanExporter(), part):
        yield


@contextmanager
def exporting(exporter: "SpanExporter", part: str) -> Iterator[None]:
    """Spans of this process go to `exporter` until the block ends, when the last ones are sent."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  # an extra, and slow to load
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    name = os.environ.get("OTEL_SERVICE_NAME") or f"arachne-{part.replace(' ', '-')}"
    provider = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracers.append(provider.get_tracer("arachne"))
    _providers.append(provider)
    try:
        yield
    finally:
        _tracers.pop()
        _at_most(LAST_S, _providers.pop().shutdown)


def flush() -> None:
    """Nothing; spans that ended are sent by now, unless that takes too long. For processes that end by a signal."""
    for provider in _providers:
        _at_most(LAST_S, provider.force_flush)


def _at_most(timeout_s: float, work: Callable[[], object]) -> None:
    """`work` is done, or goes on behind us: a collector that hangs must not keep a process from ending."""
    thread = Thread(target=work, name="arachne-spans", daemon=True)
    thread.start()
    thread.join(timeout_s)


@contextmanager
def within(traceparent: str | None) -> Iterator[None]:
    """Spans made inside, by this thread or task, are part of that trace unless they name another."""
    token = _ambient.set(traceparent)
    try:
        yield
    finally:
        _ambient.reset(token)


@contextmanager
def span(
    name: str, parent: str | None = None, *, kind: Kind = "internal", told: Mapping[str, Value] = MappingProxyType({})
) -> Iterator[Span]:
    """A span over what happens inside, part of the trace of `parent`."""
    if not _tracers:
        yield _NONE
        return
    from opentelemetry.trace import SpanKind, StatusCode  # noqa: PLC0415

    attributes, context = _named(told), _context(parent)
    started = _tracers[-1].start_span(name, context, SpanKind[kind.upper()], attributes)
    try:
        yield Span(started)
    except BaseException as error:  # told by its kind alone: what it says may hold words of an image
        started.set_status(StatusCode.ERROR, type(error).__name__)
        raise
    finally:
        started.end()


def begin(name: str, told: Mapping[str, Value] = MappingProxyType({})) -> Callable[[], None]:
    """Ends the span that has begun; for what ends in another thread."""
    if not _tracers:
        return lambda: None
    started = _tracers[-1].start_span(name, _context(None), attributes=_named(told))
    return started.end


def record(name: str, parent: str | None, seconds: float, told: Mapping[str, Value]) -> None:
    """A span that ends now and began so many seconds ago, part of the trace of `parent`."""
    if not _tracers:
        return
    now_ns = time.time_ns()
    began_ns = now_ns - int(seconds * 1e9)
    _tracers[-1].start_span(name, _context(parent), attributes=_named(told), start_time=began_ns).end(now_ns)


def _context(parent: str | None) -> "Context":
    from opentelemetry.context import Context  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    parent = parent or _ambient.get()
    return TraceContextTextMapPropagator().extract({"traceparent": parent} if parent else {}, Context())


def _named(told: Mapping[str, Value]) -> dict[str, str | int | float | bool]:
    return {f"arachne.{name}": value for name, value in told.items() if value is not None}
