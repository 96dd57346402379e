"""Images described by a stand-in for Ollama: what is in flight, which model's turn it is, and what its faults cost."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from random import Random

import pytest
import service_harness
import stage_faults
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from arachne import tracing
from arachne.actors.batcher import Policy
from arachne.actors.describing import Describing
from arachne.metrics import REGISTRY
from arachne.schemas.result import Result
from arachne.vlm import Breaker, Retry
from tests.actors.gate_bench import question
from tests.standins.process import OllamaProcess

pytestmark = pytest.mark.processes

FAST, LARGE = "qwen2.5vl:7b", "qwen2.5vl:32b"
AT_ONCE = Retry(first_s=0.0, longest_s=0.0)


@pytest.fixture
def server() -> Iterator[OllamaProcess]:
    """The stand-in, quick and well."""
    with OllamaProcess() as running:
        yield running


@pytest.fixture
def serve(tmp_path, database_url, redis_url, server) -> Iterator[Callable[..., service_harness.Service]]:
    """Opens the service with a model server: `serve(vlm_parallel=3)`."""
    with ExitStack() as stack:

        def start(**more: object) -> service_harness.Service:
            chosen: dict[str, object] = {"vlm_url": server.url, "_env_file": None} | more
            settings = service_harness.small_settings(tmp_path, database_url, redis_url, **chosen)
            return stack.enter_context(service_harness.open_service(settings))

        yield start


def picture(number: int) -> bytes:
    """A small PNG of one colour, another one for each number."""
    pixels = b"".join(b"\x00" + bytes((number % 256, number // 256, 128)) * 32 for _ in range(32))
    chunks = [
        (b"IHDR", b"\x00\x00\x00\x20\x00\x00\x00\x20\x08\x02\x00\x00\x00"),
        (b"IDAT", zlib.compress(pixels)),
        (b"IEND", b""),
    ]
    told = [len(data).to_bytes(4) + name + data + zlib.crc32(name + data).to_bytes(4) for name, data in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(told)


def results(service: service_harness.Service, job_id: str) -> list[Result]:
    """The results of a job's images."""
    from arachne.cache import load_body

    with service.database.transaction() as transaction:
        bodies = [load_body(transaction, image.result_id) for image in service.images(job_id)]
    return [Result.model_validate_json(body) for body in bodies]


def test_what_is_done_for_a_job_is_one_trace_and_counted(serve) -> None:
    """Claim, stages, description and finish continue the request that made the job, by the image's ids."""
    trace, root = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    asked = REGISTRY.get_sample_value("arachne_vlm_requests_total", {"outcome": "answered"}) or 0
    described = REGISTRY.get_sample_value("arachne_stage_seconds_count", {"stage": "describe"}) or 0
    service, exporter = serve(), InMemorySpanExporter()
    job_id = service.submit(picture(1), picture(2))
    service.scalar(f"UPDATE job SET traceparent = '00-{trace}-{root}-01', request_id = 'req_1'")
    with tracing.exporting(exporter, "worker gpu"), service.dispatcher(stage_faults.read_to_describe):
        service.await_finished(job_id)
    for image in service.images(job_id):
        spans = {
            span.name: span
            for span in exporter.get_finished_spans()
            if span.attributes["arachne.image_id"] == image.image_id
        }
        assert set(spans) == {"claim", "stages", "describe", "finish"}
        for span in spans.values():
            assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (trace, root)
            assert (span.attributes["arachne.job_id"], span.attributes["arachne.request_id"]) == (job_id, "req_1")
        assert spans["finish"].attributes["arachne.describe_s"] > 0
        assert spans["stages"].end_time <= spans["describe"].end_time <= spans["finish"].end_time
    assert REGISTRY.get_sample_value("arachne_vlm_requests_total", {"outcome": "answered"}) == asked + 2
    assert REGISTRY.get_sample_value("arachne_stage_seconds_count", {"stage": "describe"}) == described + 2
    assert REGISTRY.get_sample_value("arachne_vlm_in_flight") == 0


def test_images_are_described(serve, server) -> None:
    """The description, its model with digest, the seconds it took; the repeat answers from the cache without asking."""
    service = serve()
    with service.dispatcher(stage_faults.read_to_describe):
        job_id = service.submit(*(picture(n) for n in range(6)))
        job = service.await_finished(job_id)
        told = server.counts()
        repeat = service.await_finished(service.submit(*(picture(n) for n in range(6))))
    assert (job.state, job.completed, job.degraded) == ("completed", 6, 0)
    found = results(service, job_id)
    digest = told["behaviour"]["models"][FAST][:12]
    assert {result.model_version for result in found} == {f"{FAST}@{digest}"}
    assert all(result.vlm and result.stages[-1].status == "ok" for result in found)
    assert told["requests"] == {FAST: 6}
    assert repeat.cached == 6
    assert server.counts()["requests"] == {FAST: 6}
    assert service.scalar("SELECT sum(gpu_s) > 0 FROM usage_entry WHERE NOT cached") is True


def test_two_workers_hold_so_many_in_flight_and_ask_once(serve, server) -> None:
    """Together they send no more than one alone would, and what is there twice is asked about once."""
    server.change(answer_s=0.05, parallel=8)
    service = serve(vlm_parallel=3)
    with service.dispatcher(stage_faults.read_to_describe), service.dispatcher(stage_faults.read_to_describe):
        job_id = service.submit(*(picture(n) for n in range(30)), picture(0), picture(1))
        job = service.await_finished(job_id)
    told = server.counts()
    assert (job.completed, job.degraded, job.cached) == (32, 0, 2)
    assert told["requests"] == {FAST: 30}
    assert told["gpu"]["max_in_flight"] == 3


@pytest.mark.parametrize("bounds", [{"vlm_switch_after_requests": 10}, {"vlm_switch_after_s": 0.01}])
def test_models_are_grouped_within_their_bounds(serve, server, bounds) -> None:
    """Of two models in random order a handful of swaps is left; where a turn may last for no time, there are more."""
    server.change(answer_s=0.02)
    service = serve(**bounds)
    random = Random(3)
    levels = [random.choice(("standard", "detailed")) for _ in range(40)]
    assert sum(one != other for one, other in pairwise(levels)) >= 15
    job_ids = [service.submit(picture(n), options={"detail_level": level}) for n, level in enumerate(levels)]
    with service.dispatcher(stage_faults.read_to_describe):
        for job_id in job_ids:
            assert service.await_finished(job_id).degraded == 0
    told = server.counts()
    assert told["requests"] == {FAST: levels.count("standard"), LARGE: levels.count("detailed")}
    if "vlm_switch_after_requests" in bounds:  # two loads would be a turn for each model with no bound at all
        assert 2 < told["gpu"]["loads"] <= 6
    else:
        assert told["gpu"]["loads"] > 6


def test_random_failures_degrade_few_and_cache_none_of_them(serve, server) -> None:
    """With 30 % of all requests failing every image completes; what lacks its description says so and is not kept."""
    server.change(failing_share=0.3)
    service = serve()
    policy = Policy(60, retry=Retry(attempts=1), breaker=Breaker(failures=99))
    with service.dispatcher(stage_faults.read_to_describe, policy):
        job_id = service.submit(*(picture(n) for n in range(40)))
        job = service.await_finished(job_id)
    assert (job.state, job.completed) == ("completed", 40)
    lacking = [result for result in results(service, job_id) if result.vlm is None]
    assert 0 < len(lacking) < 20
    assert len(lacking) == job.degraded
    assert all(result.degraded and "500" in result.stages[-1].reason for result in lacking)
    assert service.scalar("SELECT count(*) FROM image_result WHERE cache_key IS NULL") == job.degraded
    assert service.scalar("SELECT count(*) FROM usage_entry WHERE degraded AND amount > 0") == 0


def test_queue_goes_on_while_the_server_is_down(serve, server, eventually) -> None:
    """Images complete without descriptions, workers say that it is down, and when it is back, all is as before."""
    service = serve()
    says = partial(service.scalar, "SELECT vlm ->> 'ok' FROM worker")
    policy = Policy(60, 1, AT_ONCE, Breaker(failures=3, open_s=0.2))
    with service.dispatcher(stage_faults.read_to_describe, policy):
        assert service.await_finished(service.submit(picture(0))).degraded == 0
        eventually(lambda: says() == "true")
        server.stop()
        job = service.await_finished(service.submit(*(picture(n) for n in range(1, 13))))
        assert (job.state, job.degraded) == ("completed", 12)
        eventually(lambda: says() == "false")
        server.start()
        eventually(lambda: says() == "true")
        again = service.await_finished(service.submit(*(picture(n) for n in range(1, 13))))
    assert (again.state, again.degraded, again.cached) == ("completed", 0, 0)


def test_reading_is_kept_where_the_description_failed(serve, server) -> None:
    """The second time only the model is asked: stages before it report `cached`."""
    server.change(fault="error_500")
    service = serve()
    with service.dispatcher(stage_faults.read_to_describe, Policy(60, 0, AT_ONCE, Breaker(failures=999))):
        assert service.await_finished(service.submit(picture(1))).degraded == 1
        server.change(fault=None)
        job_id = service.submit(picture(1))
        assert service.await_finished(job_id).degraded == 0
    (result,) = results(service, job_id)
    assert [(stage.name, stage.cached) for stage in result.stages] == [("read", True), ("describe", False)]
    assert result.vlm is not None


def test_other_weights_under_the_same_name_miss_the_cache(serve, server, eventually) -> None:
    """What a digest change came in between of is not kept; afterwards results are kept under the new digest."""
    service = serve()
    published = partial(
        service.scalar, "SELECT value #>> '{value,qwen2.5vl:7b}' FROM publication WHERE name = 'model_version'"
    )
    with service.dispatcher(stage_faults.read_to_describe):
        service.await_finished(service.submit(picture(1)))
        before = published()
        server.change(faults=["digest_change"])
        job_id = service.submit(picture(2))
        assert service.await_finished(job_id).degraded == 0
        assert service.scalar("SELECT count(*) FROM image_result WHERE cache_key IS NULL") == 1
        service.await_finished(service.submit(picture(3)))
        eventually(lambda: published() != before)
        assert service.await_finished(service.submit(picture(1))).cached == 0
        assert service.await_finished(service.submit(picture(1))).cached == 1


def test_cancelled_images_leave_the_gate(serve, server, eventually) -> None:
    """Waiting or in flight: the model is left alone, and the next job has it."""
    server.change(fault="hang")
    service = serve(vlm_parallel=1)
    with service.dispatcher(stage_faults.read_to_describe):
        job_id = service.submit(*(picture(n) for n in range(3)))
        eventually(lambda: server.counts()["gpu"]["in_flight"] == 1)
        server.change(fault=None)
        service.scalar("UPDATE image SET state = 'cancelled', claim_id = NULL")
        assert service.await_finished(service.submit(picture(9))).degraded == 0
    assert {image.state for image in service.images(job_id)} == {"cancelled"}


def test_fast_images_pass_those_that_wait_for_the_model(serve, server, eventually) -> None:
    """A busy GPU keeps only so many images waiting, and none that needs no model."""
    server.change(fault="hang")
    service = serve(vlm_parallel=1, vlm_large_model=FAST)
    with service.dispatcher(stage_faults.read_to_describe) as dispatcher:
        job_id = service.submit(*(picture(n) for n in range(20)))
        eventually(lambda: server.counts()["gpu"]["in_flight"] == 1)
        fast = service.submit(*(picture(n) for n in range(30, 40)), options={"detail_level": "fast"})
        assert service.await_finished(fast).completed == 10
        running = service.scalar(f"SELECT count(*) FROM image WHERE job_id = '{job_id}' AND state = 'running'")
        assert 1 <= running <= 1 + 2
        dispatcher.stop()
        server.stop()


def test_worker_that_leaves_loses_no_image(serve, server, eventually) -> None:
    """What is in flight is answered, what waits goes back uncounted, and the next worker finishes it."""
    server.change(answer_s=0.3)
    service = serve()
    with service.dispatcher(stage_faults.read_to_describe):
        job_id = service.submit(*(picture(n) for n in range(12)))
        eventually(lambda: server.counts()["gpu"]["in_flight"] == 2)
    images = service.images(job_id)
    assert {image.state for image in images} <= {"completed", "queued"}
    assert sum(image.state == "completed" for image in images) >= 2
    assert {image.lost_leases for image in images} == {0}
    assert service.scalar("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    server.change(answer_s=0)
    with service.dispatcher(stage_faults.read_to_describe):
        assert service.await_finished(job_id).degraded == 0


def test_whoever_comes_after_the_end_is_told(serve, server) -> None:
    """An image that can't be asked about any more goes back at once, and the dispatcher can see why."""
    describing = Describing(serve().settings, lambda: "wrk_none", lambda _: None)
    describing.start(lambda: None)
    assert not describing.has_ended
    describing.close()
    assert describing.has_ended
    answers: list[object] = []
    describing.add("late", question(), answers.append)
    assert answers == [None]
