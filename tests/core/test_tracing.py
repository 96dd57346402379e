"""Spans: part of the trace that was given, told over OTLP, and nothing at all where nobody asked for them."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from arachne import tracing
from arachne.errors import SetupError

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"  # the example of W3C Trace Context


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """Where spans go; they are there once `exporting` has ended."""
    return InMemorySpanExporter()


@pytest.mark.parametrize(
    "header",
    [
        None, "", GIVEN.upper(), GIVEN + "0", GIVEN.replace("00-", "ff-", 1), GIVEN[:-1], "00-" + "0" * 32 + GIVEN[35:],
        GIVEN[:36] + "0" * 16 + "-01", GIVEN + "\n",
    ],
)  # fmt: skip
def test_malformed_traceparents_are_none(header: str | None) -> None:
    """As the specification says: lower case, no version ff, no id of zeros alone."""
    assert tracing.accept(header) is None
    assert tracing.accept(GIVEN) == GIVEN


def test_spans_continue_the_trace_they_are_given(exporter: InMemorySpanExporter) -> None:
    """By name, by the surroundings, across threads, and after the fact; none of their own fall into it."""
    with tracing.exporting(exporter, "worker gpu"):
        with tracing.span("named", GIVEN, told={"image_id": "img_1", "left_out": None}) as named:
            named.note(status=200)
        with tracing.within(named.traceparent):
            end = tracing.begin("around")
        threading.Thread(target=end).start()
        tracing.record("before", GIVEN, 2.0, {})
        with tracing.span("apart"):
            pass
    spans = {span.name: span for span in exporter.get_finished_spans()}
    trace_id, span_id = int(GIVEN[3:35], 16), int(GIVEN[36:52], 16)
    assert {span.context.trace_id for name, span in spans.items() if name != "apart"} == {trace_id}
    assert spans["apart"].context.trace_id != trace_id
    assert spans["named"].parent is not None
    assert spans["named"].parent.span_id == span_id
    assert spans["named"].attributes == {"arachne.image_id": "img_1", "arachne.status": 200}
    assert spans["around"].parent is not None
    assert spans["around"].parent.span_id == spans["named"].context.span_id
    assert spans["before"].end_time - spans["before"].start_time == 2_000_000_000
    assert spans["named"].resource.attributes["service.name"] == "arachne-worker-gpu"


def test_what_exceptions_say_is_not_told(exporter: InMemorySpanExporter) -> None:
    """It may hold words of an image; that it failed is."""
    with tracing.exporting(exporter, "api"), pytest.raises(ValueError, match="a word"), tracing.span("x"):
        raise ValueError("a word of the image")
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert "a word" not in span.to_json()


def test_a_collector_that_hangs_keeps_no_process_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its spans are given up."""
    monkeypatch.setattr(tracing, "LAST_S", 0.05)
    asked, answers = threading.Event(), threading.Event()

    class Hanging(InMemorySpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            asked.set()
            answers.wait()
            return super().export(spans)

    exporter = Hanging()
    with tracing.exporting(exporter, "api"):
        with tracing.span("x"):
            pass
        tracing.flush()
    assert asked.wait(20)
    assert exporter.get_finished_spans() == ()
    answers.set()


def test_without_an_endpoint_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No span, no traceparent."""
    for name in tracing.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    with tracing.traced("api"), tracing.span("x", GIVEN) as span:
        assert span.traceparent is None
        tracing.begin("y")()


@pytest.mark.processes
def test_the_packages_may_be_absent() -> None:
    """All parts can be loaded, and nothing is traced."""
    script = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from arachne import tracing; import arachne.http.app, arachne.actors.gpu, arachne.actors.io\n"
        "with tracing.traced('api'), tracing.span('x'), tracing.within(None): tracing.begin('y')()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_endpoint_without_the_packages_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, with what to install."""
    monkeypatch.setenv(tracing.ENDPOINTS[0], "http://127.0.0.1:1")
    monkeypatch.setattr(tracing, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match=r"arachne-vision\[server,otel\]"), tracing.traced("api"):
        pass


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """The URL of a collector on loopback, and the bodies it got at the path of OTLP's traces."""
    bodies: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", bodies
        server.shutdown()
        thread.join()


def test_spans_go_over_otlp(collector: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    """To where OpenTelemetry's own variable says; the last ones before the process ends."""
    url, bodies = collector
    monkeypatch.setenv(tracing.ENDPOINTS[0], url)
    with tracing.traced("api"), tracing.span("the request", GIVEN):
        pass
    sent = b"".join(bodies)
    assert b"the request" in sent
    assert bytes.fromhex(GIVEN[3:35]) in sent
