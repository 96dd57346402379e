"""Images described by a model on a server that comes and goes, seen by a client of the whole product."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Client, Product, new_client_of, running_product
from tests.acceptance.test_product import MANY, ONE, distinct, screenshots
from tests.machines.waiting import eventually
from tests.standins.process import OllamaProcess

FAST, LARGE = "qwen2.5vl:7b", "qwen2.5vl:32b"
PARALLEL = 3
PATIENCE_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[OllamaProcess]:
    """A stand-in for Ollama that could answer more at once than it is to be asked."""
    with OllamaProcess(parallel=16) as running:
        yield running


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory, server: OllamaProcess) -> Iterator[Product]:
    """The product with a model server."""
    settings = {"ARACHNE_VLM_URL": server.url, "ARACHNE_VLM_PARALLEL": str(PARALLEL)}
    with running_product(tmp_path_factory.mktemp("seeing") / "data", **settings) as running:
        yield running


@pytest.fixture
def client(seeing: Product) -> Iterator[Client]:
    """A client of it."""
    with new_client_of(seeing) as made:
        yield made


def send(client: Client, picture: bytes, **options: str) -> dict[str, Any]:
    """The finished job of one picture."""
    files = {"file": ("a.png", picture)}
    answer = client.api.post(ONE, files=files, params=options, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()
    return job


def await_vlm(client: Client, state: str) -> dict[str, Any]:
    """What readiness says once it says this of the model server."""

    def look() -> dict[str, Any] | None:
        answer = client.api.get("/readyz")
        assert answer.status_code == 200
        ready: dict[str, Any] = answer.json()
        return ready if ready["checks"]["vlm"] == state else None

    return eventually(look)


def test_each_level_has_its_model(client: Client, images: Path) -> None:
    """`standard` is described by the fast model, `detailed` by the large one, `fast` by none."""
    await_vlm(client, "ok")
    picture = screenshots(images)[0].read_bytes()
    models = {model["model"]: model for model in client.get("/api/models")["data"]}
    assert {name: model["route"] for name, model in models.items()} == {FAST: ["standard"], LARGE: ["detailed"]}
    assert all(model["healthy"] and len(model["digest"]) == 12 for model in models.values())
    for level, model in (("standard", FAST), ("detailed", LARGE)):
        result = send(client, picture, detail_level=level)["result"]
        assert result["model_version"] == result["vlm"]["model"] == f"{model}@{models[model]['digest']}"
        assert result["vlm"]["description"].startswith("A picture of ")
        assert result["stages"][-1]["status"] == "ok"
    assert send(client, picture, detail_level="fast")["result"]["vlm"] is None
    refused = client.api.post(ONE, files={"file": ("a.png", picture)}, params={"detail_level": "fast", "model": FAST})
    assert (refused.status_code, refused.json()["code"]) == (422, "options_conflict")


def test_two_workers_share_one_gate(seeing: Product, server: OllamaProcess, client: Client, images: Path) -> None:
    """Together they keep within what may be in flight, and each picture is asked about once."""
    server.change(answer_s=0.1)
    picture = screenshots(images)[0]
    before = server.counts()["images"]
    line = [sys.executable, "-P", "-m", "arachne", "worker", "gpu", "--data-dir", str(seeing.data_dir)]
    second = subprocess.Popen(line, env=seeing.environment)
    try:
        files = [("files", (f"{n}.png", distinct(picture, n))) for n in [*range(20), 3, 4]]
        job = client.wait(client.api.post(MANY, files=files, data={"metadata": "{}"}).json()["job_id"])
    finally:
        second.terminate()
        assert second.wait(PATIENCE_S) == 0
        server.change(answer_s=0.0)
    assert (job["status"], job["progress"]["completed"], job["progress"]["degraded"]) == ("completed", 22, 0)
    told = server.counts()
    assert told["gpu"]["max_in_flight"] <= PARALLEL
    new = {digest: count for digest, count in told["images"].items() if digest not in before}
    assert set(new.values()) == {1}


def test_images_go_without_descriptions_while_the_server_is_down(
    server: OllamaProcess, client: Client, images: Path
) -> None:
    """The queue goes on, readiness and each image say what is missing; later the model alone is asked."""
    pictures = [distinct(screenshots(images)[0], 100 + n) for n in range(6)]
    await_vlm(client, "ok")
    known = distinct(screenshots(images)[0], 200)
    described = send(client, known)["result"]["vlm"]
    server.stop()
    try:
        files = [("files", (f"{n}.png", picture)) for n, picture in enumerate(pictures)]
        job = client.wait(client.api.post(MANY, files=files).json()["job_id"])
        assert (job["status"], job["progress"]["degraded"]) == ("completed", 6)
        result = client.get(f"/api/extract/image-jobs/{job['job_id']}/images/0")["result"]
        assert (result["vlm"], result["degraded"]) == (None, True)
        assert result["stages"][-1]["status"] == "degraded"
        assert "server" in result["stages"][-1]["reason"]
        assert len(result["text"]) > 20
        ready = await_vlm(client, "unavailable")
        assert (ready["status"], ready["checks"]["postgres"]) == ("degraded", "ok")
        models = client.get("/api/models")["data"]
        assert [(model["healthy"], len(model["digest"])) for model in models] == [(False, 12)] * 2
        repeat = send(client, known)
        assert (repeat["cached"], repeat["result"]["vlm"]) == (True, described)
    finally:
        server.start()
    await_vlm(client, "ok")
    again = send(client, pictures[0])
    assert (again["cached"], again["result"]["degraded"]) == (False, False)
    assert [stage["cached"] for stage in again["result"]["stages"]] == [True] * 7 + [False]
    assert send(client, pictures[0])["cached"] is True
