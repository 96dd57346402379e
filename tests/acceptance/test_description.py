"""The running service is as its own description says, whatever a tool that reads only that makes up to send to it."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from arachne.http.routes import all_resources
from arachne.http.samples import EXAMPLE_ONE
from arachne.schemas.token import SCOPES
from tests.acceptance.conftest import Client, Product, running_product
from tests.acceptance.receiver import Receiver

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance",
)  # fmt: skip
# With `withdraw` it would end the token that all else is asked with.
LEFT_OUT = "/api/admin/keys/rotate"
RATES = {f"ARACHNE_{name}_RATE_LIMIT": "1000000/minute" for name in ("VISION", "IMAGE", "READ", "OTHER")}
OPERATIONS = sum(len(resource.operations) for resource in all_resources())


@pytest.fixture(scope="module")
def open_product(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Product]:
    """A product that limits nobody, and calls nothing but the receiver."""
    only = {
        "ARACHNE_WEBHOOK_EGRESS_ALLOW": json.dumps([f"127.0.0.1:{receiver.port}"]),
        "ARACHNE_EGRESS_PORTS": json.dumps([receiver.port]),
    }
    with running_product(tmp_path_factory.mktemp("described") / "data", **RATES, **only) as running:
        yield running


@pytest.fixture(scope="module")
def client(open_product: Product) -> Iterator[Client]:
    """A client with every scope there is."""
    scopes = [word for scope in SCOPES for word in ("--scope", scope)]
    account = json.loads(open_product.command("account", "create", "acme", *scopes, "--json"))
    with httpx.Client(base_url=open_product.url, timeout=70, trust_env=False) as api:
        credentials = (account["client_id"], account["client_secret"])
        answer = api.post("/api/auth/token", data={"grant_type": "client_credentials"}, auth=credentials)
        api.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        yield Client(api, account)


def run_tool(client: Client, folder: Path, *words: str) -> str:
    """What the tool prints; it found nothing."""
    url, token = f"{client.api.base_url}/openapi.json", client.api.headers["Authorization"]
    line = [
        str(Path(sys.executable).parent / "st"), "--config-file", "ids.toml", "run", url, "--workers", "2",
        "--header", f"Authorization: {token}", "--checks", ",".join(CHECKS), "--exclude-path", LEFT_OUT, "--seed", "1",
        "--generation-database", "none", "--max-examples", "5", "--no-shrink", "--continue-on-failure",
        "--suppress-health-check", "all", "--request-timeout", "100", *words,
    ]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=900, cwd=folder)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    return done.stdout


def test_no_answer_is_undocumented_or_our_fault(client: Client, receiver: Receiver, tmp_path: Path) -> None:
    """Examples, bounds of every parameter and made-up bodies, to what is there: its ids stand in every path.

    Status, type, headers and body of each answer are as described, and none is a 500.
    """
    ids = make_ids(client, receiver)
    parameters = "".join(f'"path.{name}" = "{value}"\n' for name, value in ids.items())
    (tmp_path / "ids.toml").write_text(f'[parameters]\n{parameters}[phases.coverage]\nunexpected-methods = ["PUT"]\n')
    told = run_tool(client, tmp_path, "--phases", "examples,coverage,fuzzing", "--exclude-method", "DELETE")
    deletes = sum("DELETE" in resource.operations for resource in all_resources())
    all_but_itself = OPERATIONS - 1
    assert f"{all_but_itself - deletes - 1} selected / {all_but_itself} total" in told
    cases = re.search(r"(\d+) generated", told)
    assert cases is not None
    assert int(cases[1]) > 1000


def test_what_is_not_there_is_deleted_as_described(client: Client, tmp_path: Path) -> None:
    """With ids made up too."""
    (tmp_path / "ids.toml").write_text("")
    told = run_tool(client, tmp_path, "--phases", "coverage,fuzzing", "--include-method", "DELETE")
    assert "generated" in told


def make_ids(client: Client, receiver: Receiver) -> dict[str, str]:
    """Of a read image, an endpoint with a delivery, and another account: by the name of the path parameter."""
    api = client.api
    endpoint = api.post("/api/webhooks", json={"url": receiver.url("described"), "events": ["job.*"]}).json()
    job = client.wait(api.post("/api/extract/image", json=EXAMPLE_ONE).json()["job_id"])
    assert job["status"] == "completed"
    receiver.next("described")
    endpoint_id = endpoint["endpoint_id"]
    other = api.post("/api/admin/accounts", json={"name": "other"}).json()
    return {
        "job_id": job["job_id"],
        "index": "0",
        "endpoint_id": endpoint_id,
        "message_id": client.get(f"/api/webhooks/{endpoint_id}/deliveries")["data"][0]["message_id"],
        "account_id": other["account_id"],
        "client_id": other["client_id"],
        "plan_id": "default",
    }
