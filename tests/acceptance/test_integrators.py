"""What integrators have: samples that verify, commands for endpoints, and a receiver for their own machine."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tests.acceptance.conftest import Client, Product
from tests.acceptance.receiver import Delivery, Receiver
from tests.standins.integrators import SAMPLES, Case

MANY = "/api/extract/images"


def environment(product: Product, client: Client, **more: str) -> dict[str, str]:
    """Where the service is, and an account's credentials."""
    ours = {"ARACHNE_URL": product.url, **{f"ARACHNE_{name.upper()}": value for name, value in client.account.items()}}
    return {name: value for name, value in os.environ.items() if not name.startswith("ARACHNE_")} | ours | more


def arachne(product: Product, client: Client, *words: str, status: int = 0) -> str:
    """What a command prints that ends with this status."""
    line = [sys.executable, "-P", "-m", "arachne", *words]
    done = subprocess.run(
        line, env=environment(product, client), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == status, done.stderr
    return done.stdout


@contextmanager
def listening(product: Product, client: Client, *words: str, secret: str) -> Iterator[tuple[str, list[str]]]:
    """URL of `arachne webhooks listen`, and the lines it has printed once it was asked to leave at the end."""
    line = [sys.executable, "-P", "-m", "arachne", "webhooks", "listen", "--port", "0", *words]
    process = subprocess.Popen(
        line, env=environment(product, client, ARACHNE_WEBHOOK_SECRET=secret), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        assert said.startswith("Listening on "), said
        printed: list[str] = []
        yield said.split()[-1], printed
        process.send_signal(signal.SIGTERM)
        printed += process.stdout.read().splitlines()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def post(url: str, delivery: Delivery, *, body: bytes | None = None) -> int:
    """Status of the answer to a delivery passed on as it came, or with another body."""
    headers = {name: value for name, value in delivery.headers.items() if name.startswith(("webhook-", "content-type"))}
    return httpx.post(
        url, content=delivery.body if body is None else body, headers=headers, trust_env=False
    ).status_code


def submit(client: Client, images: Path) -> str:
    """A job whose metadata is not ASCII."""
    files = {"files": ("a.png", (images / "dialog_light.png").read_bytes())}
    options = {"options": '{"detail_level": "fast"}', "metadata": json.dumps({"ชื่อ": 'ç "é" 😀'})}
    answer = client.api.post(MANY, files=files, data=options)
    assert answer.is_success, answer.text
    return str(answer.json()["job_id"])


def test_every_receiver_verifies_what_is_sent_through_a_rotation(
    client: Client, receiver: Receiver, images: Path, tmp_path: Path
) -> None:
    """The public package and all samples of the docs: one secret, both during the grace, then only the new one."""
    made = client.api.post("/api/webhooks", json={"url": receiver.url("rotated"), "events": ["*"]}).json()
    path, first = f"/api/webhooks/{made['endpoint_id']}", made["secret"]
    submit(client, images)
    before = [receiver.next("rotated") for _ in range(3)]
    assert {json.loads(one.body)["type"] for one in before} == {"job.started", "image.completed", "job.completed"}
    second = client.api.post(f"{path}/rotate", json={"grace_seconds": 3600}).json()["secret"]
    assert client.api.post(f"{path}/test").json()["failure"] is None
    during = receiver.next("rotated")
    third = client.api.post(f"{path}/rotate", json={"grace_seconds": 0}).json()["secret"]
    assert client.api.post(f"{path}/test").json()["failure"] is None
    after = receiver.next("rotated")

    expected = [(one, secret, secret == first) for one in before for secret in (first, second)]
    expected += [(during, first, True), (during, second, True), (during, third, False)]
    expected += [(after, first, False), (after, second, False), (after, third, True)]
    verdicts = [right for _, _, right in expected]
    assert [verifies(one, secret) for one, secret, _ in expected] == verdicts
    cases = [Case(secret, dict(one.headers), one.body, time.time()) for one, secret, _ in expected]
    for number, sample in enumerate(one for one in SAMPLES if one.missing() is None):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert sample.verdicts(folder, cases) == verdicts, sample.name


def verifies(delivery: Delivery, secret: str) -> bool:
    """What the public package says."""
    try:
        Webhook(secret).verify(delivery.body, dict(delivery.headers))
    except WebhookVerificationError:
        return False
    return True


def test_commands_for_endpoints(product: Product, client: Client, receiver: Receiver) -> None:
    """`add`, `list`, `test`, `deliveries` and `redeliver` do what they say, with nothing but data on stdout."""
    made = json.loads(arachne(product, client, "webhooks", "add", receiver.url("cli"), "--event", "*", "--json"))
    assert made["secret"].startswith("whsec_")
    endpoint_id = made["endpoint_id"]
    listed = json.loads(arachne(product, client, "webhooks", "list", "--json"))
    assert [(one["endpoint_id"], one["events"]) for one in listed] == [(endpoint_id, ["*"])]
    assert endpoint_id in arachne(product, client, "webhooks", "list")
    attempt = json.loads(arachne(product, client, "webhooks", "test", endpoint_id, "--json"))
    assert (attempt["status_code"], attempt["failure"]) == (204, None)
    sent = receiver.next("cli")
    assert sent.verified(made["secret"])["type"] == "webhook.test"
    message_id = sent.headers["webhook-id"]
    rows = json.loads(arachne(product, client, "webhooks", "deliveries", endpoint_id, "--json"))
    assert [(row["message_id"], row["status"]) for row in rows] == [(message_id, "succeeded")]
    assert message_id in arachne(product, client, "webhooks", "redeliver", endpoint_id, message_id)
    again = receiver.next("cli")
    assert (again.headers["webhook-id"], again.body) == (message_id, sent.body)
    shown = json.loads(arachne(product, client, "webhooks", "deliveries", endpoint_id, message_id, "--json"))
    assert [one["number"] for one in shown["attempts"]][:1] == [1]
    assert arachne(product, client, "webhooks", "test", "whe_nobody", status=1) == ""


@pytest.mark.parametrize("as_json", [True, False])
def test_listener_prints_what_is_genuine(product: Product, client: Client, receiver: Receiver, as_json: bool) -> None:
    """A real delivery is printed as one line and passed on as it came; a changed one is refused and not passed on."""
    name = f"listened-{as_json}"
    made = client.api.post("/api/webhooks", json={"url": receiver.url(name)}).json()
    assert client.api.post(f"/api/webhooks/{made['endpoint_id']}/test").json()["failure"] is None
    sent = receiver.next(name)
    words = ["--forward-to", receiver.url(f"{name}-passed-on"), *(["--json"] if as_json else [])]
    with listening(product, client, *words, secret=made["secret"]) as (url, printed):
        assert post(url, sent, body=sent.body + b" ") == 400
        assert post(url, sent) == 204
        passed = receiver.next(f"{name}-passed-on")
    assert (passed.body, passed.verified(made["secret"])["type"]) == (sent.body, "webhook.test")
    assert len(printed) == 1
    if as_json:
        assert json.loads(printed[0]) == {"message_id": sent.headers["webhook-id"], **json.loads(sent.body)}
    else:
        assert sent.headers["webhook-id"] in printed[0]


def test_listener_without_secret_adds_an_endpoint_of_its_own(product: Product, client: Client) -> None:
    """Where the service may not call it, it says so and leaves nothing behind."""
    line = [sys.executable, "-P", "-m", "arachne", "webhooks", "listen", "--port", "0"]
    done = subprocess.run(
        line, env=environment(product, client), capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "egress_blocked" in done.stderr
    assert client.get("/api/webhooks")["data"] == []
