"""What the whole product charges, told alike by the API, the operator's commands and a client's."""

import csv
import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.acceptance.conftest import Client, Product

ONE = "/api/extract/image"
FAST = {"detail_level": "fast"}


def read(client: Client, image: Path) -> bool:
    """Whether the image was answered from the cache; it is read in any case."""
    files = {"file": (image.name, image.read_bytes())}
    answer = client.api.post(ONE, files=files, params=FAST, headers={"Prefer": "wait=60"})
    assert (answer.status_code, answer.json()["status"]) == (200, "completed"), answer.text
    return bool(answer.json()["cached"])


def test_a_statement_says_what_was_read_under_which_plan(product: Product, client: Client, images: Path) -> None:
    """One image read, once more from the cache, one under a dearer plan: half a cent goes to the even cent."""
    account_id = client.account["account_id"]
    product.command("plan", "create", "cheap", "--price-image", "0.0125", "--price-cached", "0.0025")
    product.command("plan", "create", "dear", "--price-image", "0.03", "--monthly-images", "3")
    product.command("account", "plan", account_id, "cheap")
    assert not read(client, images / "dialog_light.png")
    assert read(client, images / "dialog_light.png")
    month = f"{datetime.now(UTC):%Y-%m}"
    told = client.get("/api/usage/statement", month=month)
    assert [(line["plan_id"], line["kind"], line["amount"]) for line in told["lines"]] == [
        ("cheap", "read", "0.012500"),
        ("cheap", "cached", "0.002500"),
    ]
    assert (told["subtotal"], told["amount_due"], told["final"]) == ("0.015000", "0.02", False)
    product.command("account", "plan", account_id, "dear")
    assert not read(client, images / "error_dialog.png")
    refused = client.api.post(ONE, files={"file": ("a.png", (images / "chat.png").read_bytes())}, params=FAST)
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    assert client.get("/api/usage")["total"]["amount_due"] == "0.045000"
    (row,) = csv.DictReader(io.StringIO(product.command("usage", "--csv", "--account", account_id)))
    assert (row["account_id"], row["images"], row["cached"], row["amount_due"]) == (account_id, "3", "1", "0.045000")
    state = ("usage", "statement", "--month", month, "--json")
    ours = json.loads(product.command(*state, "--account", account_id))
    assert ours == json.loads(ask(product, client, *state)) == client.get("/api/usage/statement", month=month)
    assert ours["amount_due"] == "0.04"


def ask(product: Product, client: Client, *words: str) -> str:
    """What a command prints that is signed in as the client."""
    credentials = {"ARACHNE_CLIENT_ID": client.account["client_id"], "ARACHNE_URL": product.url}
    secret = {"ARACHNE_CLIENT_SECRET": client.account["client_secret"]}
    line = [sys.executable, "-P", "-m", "arachne", *words]
    environment = os.environ | credentials | secret
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
