"""The vision cache of a running service, as an operator carries it and as clients see it."""

import json
import sqlite3
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.acceptance.conftest import Client, Product

ONE = "/api/extract/image"


def send(client: Client, images: Path, **options: str) -> dict[str, Any]:
    """The finished job of one screenshot."""
    files = {"file": ("a.png", (images / "terminal_dark.png").read_bytes())}
    answer = client.api.post(ONE, files=files, params=options, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()
    return job


def test_cache_is_exported_emptied_and_imported(product: Product, client: Client, images: Path, tmp_path: Path) -> None:
    """While the service runs. Emptied, nothing answers; imported, the very same result does."""
    file = str(tmp_path / "cache.jsonl.gz")
    first = send(client, images)
    exported = json.loads(product.command("cache", "export", file, "--json"))
    assert exported["results"] >= 1
    assert json.loads(product.command("cache", "prune", "--older-than", "0", "--json"))["shared"] >= 1
    assert json.loads(product.command("cache", "stats", "--json"))["shared"]["results"] == 0
    imported = json.loads(product.command("cache", "import", file, "--json"))
    assert (imported["imported"], imported["foreign"]) == (exported["results"], 0)
    again = send(client, images)
    assert (again["cached"], again["result"]) == (True, first["result"])
    assert json.loads(product.command("cache", "verify", "--json"))["faults"] == []


def test_original_file_never_answers(product: Product, client: Client, images: Path, tmp_path: Path) -> None:
    """Its row for this very image is kept and listed, and the image is read all the same."""
    digest = sha256((images / "terminal_dark.png").read_bytes()).hexdigest()
    connection = sqlite3.connect(tmp_path / "old.db")
    with connection:
        connection.execute("CREATE TABLE vision_cache (sha256, result_json, model_version, created_at, hits)")
        connection.execute("INSERT INTO vision_cache VALUES (?, '{\"text\": \"a lie\"}', 'none', 2e9, 3)", (digest,))
    connection.close()
    assert json.loads(product.command("cache", "import", str(tmp_path / "old.db"), "--json"))["originals"] == 1
    job = send(client, images)
    assert (job["cached"], "a lie" in job["result"]["text"]) == (False, False)
    assert json.loads(product.command("cache", "stats", "--json"))["originals"]["entries"] == 1


def test_new_prompt_keeps_the_reading(client: Client, images: Path) -> None:
    """Stages 1 to 7 say `cached`, and what was read is the same to the letter."""
    first = send(client, images)
    again = send(client, images, prompt="What is new?")
    stages = {stage["name"]: stage["cached"] for stage in again["result"]["stages"]}
    assert [stages[name] for name in list(stages)[:7]] == [True] * 7
    assert stages["describe"] is False
    assert again["result"]["blocks"] == first["result"]["blocks"]
