"""Stored results get into answers as they are, and not on the event loop."""

import json
import threading

import pytest
from sqlalchemy import event

from arachne.bodies import StoredJson, compress
from arachne.http.splicing import splice
from tests.http.conftest import Service
from tests.http.pictures import png
from tests.http.sending import MANY, ONE, send
from tests.http.worker import Worker

JOBS = "/api/extract/image-jobs"


def test_stored_json_stands_in_the_answer_as_it_was_stored() -> None:
    stored, plain = b'{"text": "\\u0e01 \\"0\\"",  "n": 1.50}', b"[1, 2]"
    value = {"a": StoredJson(compress(stored)), "b": ['"x:0"', "ก", None, StoredJson(plain, is_compressed=False)]}
    body = splice(value)
    assert stored in body
    assert json.loads(body) == {"a": json.loads(stored), "b": ['"x:0"', "ก", None, [1, 2]]}
    with pytest.raises(TypeError):
        splice({"a": object()})


async def test_results_are_unpacked_in_other_threads(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = await Worker(service).start()
    files = [("files", (f"{n}.png", png((n, n, n)))) for n in range(2)]
    job_id = (await send(service, MANY, files=files)).json()["job_id"]
    await worker.read_all()
    readers, read = list[threading.Thread](), StoredJson.read

    def noted(self: StoredJson) -> bytes:
        readers.append(threading.current_thread())
        return read(self)

    monkeypatch.setattr(StoredJson, "read", noted)
    headers = await service.headers()
    paths = ("?include=results", "/images/0", "/images/0/result", "/images/0/result?format=txt")
    for path in paths:
        assert (await service.client.get(f"{JOBS}/{job_id}{path}", headers=headers)).status_code == 200
    for _ in range(2):  # from PostgreSQL, then from this machine's cache
        again = await send(service, ONE, files={"file": ("0.png", png((0, 0, 0)))})
        assert again.json()["result"]["text"].startswith("text of")
        assert again.json()["images"][0]["result"] == again.json()["result"]
    assert len(readers) > len(paths) + 1
    assert threading.current_thread() not in readers


async def test_a_list_of_jobs_asks_the_database_no_more_for_more_jobs(service: Service) -> None:
    worker = await Worker(service).start()
    statements = list[str]()
    parts = service.app.starlette.state.parts
    event.listen(
        parts.database.engine.sync_engine,
        "before_cursor_execute",
        lambda _connection, _cursor, statement, *_: statements.append(statement),
    )
    counts = []
    for number in range(3):
        await send(service, ONE, files={"file": ("a.png", png((number, 1, 1)))})
        await worker.read_all()
        headers = await service.headers()
        statements.clear()
        jobs = (await service.client.get(JOBS, headers=headers)).json()["data"]
        assert [job["model_version"] for job in jobs] == ["none"] * (number + 1)
        counts.append(sum("FROM image" in statement for statement in statements))
    assert counts == [1, 1, 1]
