"""Nothing of what was erased is left: not in a table, not in the store, not in a cache file."""

import io
import json
import time
import zlib
from hashlib import sha256
from typing import Any

from PIL import Image, ImageDraw, ImageFont
from sqlalchemy import text

from arachne.database import Database
from arachne.embedded import instance
from tests.acceptance.conftest import Client, Product
from tests.acceptance.receiver import Receiver

JOBS = "/api/extract/image-jobs"
ONE = "/api/extract/image"
TABLES = text("""
SELECT relname FROM pg_class
WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace ORDER BY relname
""")


def picture(words: str) -> bytes:
    """A screenshot that says this, in large letters."""
    image = Image.new("RGB", (900, 140), "white")
    ImageDraw.Draw(image).text((40, 40), words, "black", ImageFont.load_default(48))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def send(client: Client, data: bytes, name: str = "a.png") -> dict[str, Any]:
    """The finished job of one picture."""
    answer = client.api.post(ONE, files={"file": (name, data)}, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()
    return job


def rows(product: Product) -> list[tuple[str, str]]:
    """Every row of every table, as text, with its table's name; bodies are read."""
    database = Database(instance.find(product.data_dir).database_url, pool_size=1)
    try:
        with database.transaction() as transaction:
            connection = transaction.session.connection()
            tables = list(connection.scalars(TABLES))
            whole = {name: connection.scalars(text(f"SELECT t::text FROM {name} t")).all() for name in tables}
            found = [(name, str(row)) for name, each in whole.items() for row in each]
            results = connection.scalars(text("SELECT body FROM image_result")).all()
            events = connection.scalars(text("SELECT body FROM webhook_message")).all()
            found += [("image_result", zlib.decompress(body).decode()) for body in results]
            return found + [("webhook_message", bytes(body).decode()) for body in events]
    finally:
        database.close()


def find_traces(product: Product, *traces: str) -> list[str]:
    """Where any of these is found: tables and files."""
    tables = {name for name, row in rows(product) if any(trace in row for trace in traces)}
    files = [*product.data_dir.glob("storage/**/*"), *product.data_dir.rglob("vlm_cache.db*")]
    read = {path: path.read_bytes() for path in files if path.is_file()}
    told = {path.name for path, data in read.items() if any(trace.encode() in data for trace in traces)}
    named = {path.name for path in read if path.name in traces}
    return sorted(tables | told | named)


def await_clean(product: Product, *traces: str, timeout_s: float = 120) -> None:
    """Nothing; the traces are gone, from cache files as soon as the processes that have them open have looked."""
    deadline = time.monotonic() + timeout_s
    while found := find_traces(product, *traces):
        assert time.monotonic() < deadline, found
        time.sleep(0.5)


def test_an_erased_job_leaves_no_trace(product: Product, client: Client, receiver: Receiver) -> None:
    """Its picture, its words, its name and its metadata were everywhere; then they are nowhere."""
    client.api.post("/api/webhooks", json={"url": receiver.url("erasing"), "events": ["image.*", "job.*"]})
    data = picture("VEXING QUAGMIRE 80317")
    digest = sha256(data).hexdigest()
    job = send(client, data, "payslip.png")
    assert "QUAGMIRE" in job["result"]["text"]
    cached = send(client, data)
    assert cached["cached"] is True
    traces = (digest, "QUAGMIRE", "payslip.png")
    found = find_traces(product, *traces)
    assert {"image", "image_result", "webhook_message", "blob", digest} <= set(found)
    assert any(name.startswith("vlm_cache.db") for name in found)
    assert client.api.delete(f"{JOBS}/{job['job_id']}").status_code == 204
    assert client.get(f"{JOBS}/{cached['job_id']}")["result"]["text"] == job["result"]["text"]
    assert client.api.delete(f"{JOBS}/{cached['job_id']}").status_code == 204
    assert client.api.get(f"{JOBS}/{job['job_id']}").json()["code"] == "gone"
    await_clean(product, *traces)
    assert send(client, data)["cached"] is False


def test_an_erased_account_leaves_sums_alone(product: Product, new_client: Any) -> None:
    """Its tokens stop at once. Whoever has the same picture keeps it, with its words."""
    leaving, staying = new_client(), new_client()
    shared, own = picture("UBIQUITOUS PENGUIN"), picture("CLANDESTINE WALRUS")
    kept = send(staying, shared)
    send(leaving, shared)
    send(leaving, own)
    leaving.api.post("/api/webhooks", json={"url": "https://93.184.215.14/leaving"})
    account_id = leaving.account["account_id"]
    erased = json.loads(product.command("account", "erase", account_id, "--yes", "--json"))
    assert (erased["account_id"], erased["jobs"]) == (account_id, 2)
    refused = leaving.api.get(JOBS)
    assert (refused.status_code, refused.json()["code"]) == (403, "account_unknown")
    await_clean(product, sha256(own).hexdigest(), "WALRUS", leaving.account["client_id"])
    assert {name for name, row in rows(product) if account_id in row} == {"usage_entry", "audit_log"}
    for path in product.data_dir.rglob("vlm_cache.db*"):
        assert account_id.encode() not in path.read_bytes()
    job = staying.get(f"{JOBS}/{kept['job_id']}")
    assert "PENGUIN" in job["result"]["text"]
    assert staying.api.get(f"{JOBS}/{kept['job_id']}/images/0/original").content == shared
    assert send(staying, shared)["cached"] is True
