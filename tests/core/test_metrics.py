"""Metrics: a listener of their own, true tables, dashboards and alerts, and what the process itself counts."""

import json
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from arachne import exposition, metrics
from arachne.database import Database
from arachne.errors import Unavailable, VlmAnswerRejected
from arachne.exposition import Disk, exposed
from arachne.jobs import gauges
from arachne.metrics import CATALOG, REGISTRY, metrics_table
from arachne.spool import Spool, SpoolBudget
from tests.standins.ports import free_port

DOCS = Path(__file__).parent.parent.parent / "docs"
BOUNDED = {"method", "route", "status", "outcome", "stage", "level", "state", "kind", "folder"}


def value(name: str, **labels: str) -> float:
    """What the process has counted."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


def scraped(port: int) -> dict[str, float]:
    """Every sample at the port, by its name and labels, read by the public parser."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            sample.name + json.dumps(sample.labels, sort_keys=True): sample.value
            for family in families
            for sample in family.samples
        }


def eventually(holds: Callable[[], bool]) -> None:
    """Return once it holds."""
    for _ in range(600):
        if holds():
            return
        threading.Event().wait(0.05)
    raise AssertionError("waited in vain")


def listens(port: int) -> bool:
    """Whether somebody does."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_process_shows_its_own_registry_and_the_room_on_its_disks(tmp_path: Path) -> None:
    """At its port alone, until it ends."""
    port = free_port()
    metrics.count_delivery("dns", 0.2)
    with exposed("127.0.0.1", port, Disk(tmp_path)):
        eventually(lambda: listens(port))
        found = scraped(port)
    assert found['arachne_deliveries_total{"outcome": "dns"}'] == value("arachne_deliveries_total", outcome="dns") >= 1
    assert found['arachne_disk_free_bytes{"folder": "data"}'] > 0
    assert any(name.startswith("process_resident_memory_bytes") for name in found)
    assert not listens(port)


def test_a_taken_port_costs_the_metrics_until_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process itself works on, and says once why there are none."""
    monkeypatch.setattr(exposition, "AGAIN_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        block = exposed("127.0.0.1", port)
        block.__enter__()
    try:
        eventually(lambda: listens(port))
        assert scraped(port)
    finally:
        block.__exit__(None, None, None)


def test_port_0_shows_nothing() -> None:
    """And starts no thread."""
    before = threading.active_count()
    with exposed("127.0.0.1", 0):
        assert threading.active_count() == before


def test_labels_are_few_and_bounded() -> None:
    """No account, id or path is a label; what clients choose freely is one value."""
    assert {label for metric in CATALOG for label in metric.labels} == BOUNDED
    before = value("arachne_http_requests_total", method="other", route="-", status="404")
    metrics.count_request("BREW", "", 404, 0.1)
    assert value("arachne_http_requests_total", method="other", route="-", status="404") == before + 1


def test_what_became_of_questions_and_stages_is_counted() -> None:
    """By the error's code; whoever is cut off counts as dropped; nothing stays in flight."""
    outcomes = ("answered", "vlm_answer_rejected", "ours", "dropped")
    before = {outcome: value("arachne_vlm_requests_total", outcome=outcome) for outcome in outcomes}
    asked, reads = value("arachne_vlm_request_seconds_count"), value("arachne_stage_seconds_count", stage="read")
    for error in (None, VlmAnswerRejected("no JSON"), KeyError(), KeyboardInterrupt()):
        try:
            with metrics.question(), metrics.asking():
                assert value("arachne_vlm_in_flight") == 1
                if error is not None:
                    raise error
        except (VlmAnswerRejected, KeyError, KeyboardInterrupt):
            pass
    metrics.observe_stages({"read": 0.3})
    for outcome in outcomes:
        assert value("arachne_vlm_requests_total", outcome=outcome) == before[outcome] + 1
    assert value("arachne_vlm_request_seconds_count") == asked + 4
    assert value("arachne_vlm_in_flight") == 0
    assert value("arachne_stage_seconds_count", stage="read") == reads + 1


def test_spools_count_what_they_hold() -> None:
    """Until they are closed; what is refused is not held."""
    before = value("arachne_spool_bytes")
    spool = Spool(budget=SpoolBudget(1000), account_id="acc_1")
    spool.add(b"x" * 300)
    with pytest.raises(Unavailable):
        spool.add(b"x" * 300)
    assert value("arachne_spool_bytes") == before + 300
    spool.close()
    assert value("arachne_spool_bytes") == before


def test_connections_of_every_pool_are_counted(database: Database) -> None:
    """Those in use apart from those that wait, also after the pool was made anew."""
    before = value("arachne_database_connections", state="used")
    for _ in range(2):
        with database.transaction() as first, database.transaction() as second:
            for one in (first, second):
                one.session.execute(text("SELECT 1"))
            assert value("arachne_database_connections", state="used") == before + 2
        assert value("arachne_database_connections", state="used") == before
        database.close()


def test_the_table_is_that_of_the_code() -> None:
    """docs/operations.md has every metric, its kind, labels and processes."""
    assert gauges.QUEUE_IMAGES
    told = re.split(r"<!-- (?:metrics:.*|/metrics) -->\n", (DOCS / "operations.md").read_text())[1]
    assert told == metrics_table()


def named(expr: str) -> set[str]:
    """The metrics that an expression names, without what histograms add."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\barachne_\w+", expr)}


def test_dashboard_and_alerts_name_metrics_that_exist() -> None:
    """The dashboard has each; every label they select or group by is one of that metric, or Prometheus's own."""
    known = {metric.name: set(metric.labels) for metric in CATALOG}
    panels = json.loads((DOCS / "grafana.json").read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = yaml.safe_load((DOCS / "alerts.yaml").read_text())["groups"][0]["rules"]
    assert {name for expr in shown for name in named(expr)} == set(known)
    for expr in [*shown, *(rule["expr"] for rule in rules)]:
        assert named(expr) <= set(known), expr
        labels = set().union(*(known[name] for name in named(expr))) | {"le", "instance", "job"}
        grouped = {label.strip() for inner in re.findall(r"by \(([^)]*)\)", expr) for label in inner.split(",")}
        selected = set(re.findall(r"(\w+)[!=]=?~?\"", expr))
        assert grouped | selected <= labels, expr


def test_each_alert_has_its_line_in_the_runbook() -> None:
    """And no line speaks of one that isn't there."""
    rules = yaml.safe_load((DOCS / "alerts.yaml").read_text())["groups"][0]["rules"]
    lines = re.findall(r"^\| `(Arachne\w+)` \| .+ \| .+ \|$", (DOCS / "operations.md").read_text(), re.MULTILINE)
    assert sorted(lines) == sorted(rule["alert"] for rule in rules)
    assert all(rule["annotations"]["summary"] for rule in rules)
