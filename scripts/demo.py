"""The demonstration behind scripts/run: a batch of screenshots in, text and a verified webhook out."""

import argparse
import json
import queue
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from launch import DEFAULT_PORT, Service, StartError, create_account, free_port, keep_account, recall_account
from receiver import Delivery, Receiver, is_genuine
from rich.console import Console
from rich.markup import escape
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
IMAGES = sorted((ROOT / "tests" / "images").glob("*.png"))
MIN_IMAGES = 6
WEBHOOK_TIMEOUT_S = 300.0
DESCRIPTION = "scripts/run"
TERMINAL = {"completed", "partial", "failed", "cancelled"}
out, err = Console(), Console(stderr=True)


class StepError(Exception):
    """A step of the demonstration was not right; the message says which and why."""


def main() -> int:
    """Exit status: 0 if every step was right, 1 if one was not, 3 if the service didn't start."""
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Receiver() as receiver:
            service = Service(arguments.data_dir.absolute(), free_port(arguments.port), receiver.port)
            with service:
                service.await_ready()
                account = show_batch(service, receiver, anew=arguments.once)
                if not arguments.once:
                    stay(service, account, any_port=arguments.port is None)
        status = service.stop()
        check(status == 0, f"`arachne up` stopped with status {status}")
    except StartError as error:
        err.print(f"[red]Arachne did not start.[/] Its output ends:\n{escape(str(error))}")
        return 3
    except (StepError, httpx.HTTPError) as error:
        err.print(f"[red]Not right:[/] {escape(str(error))}")
        return 1
    except KeyboardInterrupt:
        return 0 if not arguments.once else 130
    return 0


def parse_arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="scripts/run", description="Shows Arachne at work on this machine.")
    parser.add_argument("--once", action="store_true", help="stop everything at the end; exit 0 only if all was right")
    parser.add_argument("--port", type=int, help="port of the API (default: 8000, or a free one if that is taken)")
    parser.add_argument(
        "--data-dir", type=Path, default=ROOT / "var", help="data folder (default: var in the checkout)"
    )
    return parser.parse_args()


def show_batch(service: Service, receiver: Receiver, *, anew: bool) -> dict[str, str]:
    """The account that sent one batch through the whole service, each step checked.

    Raises:
        StepError: a step was not right.
    """
    check(len(IMAGES) >= MIN_IMAGES, f"tests/images has {len(IMAGES)} images, {MIN_IMAGES} are needed")
    step(f"Arachne runs at {service.url}")
    with httpx.Client(base_url=service.url, timeout=60, trust_env=False) as api:
        account = sign_in(api, service.data_dir, anew=anew)
        step(f"Signed in as account {account['account_id']}")
        secret = register(api, receiver)
        started = time.monotonic()
        job_id = submit(api)
        step(f"Sent {len(IMAGES)} screenshots as {job_id}")
        delivery = await_webhook(receiver, secret, job_id)
        step(
            f"Webhook {delivery.headers['webhook-id']} arrived after {time.monotonic() - started:.1f} s, rightly signed"
        )
        print_results(api, job_id)
    return account


def sign_in(api: httpx.Client, data_dir: Path, *, anew: bool) -> dict[str, str]:
    """The account whose token `api` has from now on: the last start's, with all that was sent by it, or a new one."""
    account = None if anew else recall_account(data_dir)
    if account is None or (answer := ask_for_token(api, account)).status_code == httpx.codes.UNAUTHORIZED:
        account = create_account(data_dir, f"demonstration-{secrets.token_hex(4)}")
        if not anew:
            keep_account(data_dir, account)
        answer = ask_for_token(api, account)
    api.headers["Authorization"] = f"Bearer {expect(answer, 200)['access_token']}"
    return account


def ask_for_token(api: httpx.Client, account: dict[str, str]) -> httpx.Response:
    """What the service answers to the account's client."""
    credentials = (account["client_id"], account["client_secret"])
    return api.post("/api/auth/token", data={"grant_type": "client_credentials"}, auth=credentials)


def register(api: httpx.Client, receiver: Receiver) -> str:
    """The signing secret of a new endpoint at our receiver, in the place of the last start's."""
    for endpoint in expect(api.get("/api/webhooks"), 200)["data"]:
        if endpoint["description"] == DESCRIPTION:
            api.delete(f"/api/webhooks/{endpoint['endpoint_id']}").raise_for_status()
    wanted = {"url": receiver.url, "events": ["job.*"], "description": DESCRIPTION}
    return str(expect(api.post("/api/webhooks", json=wanted), 201)["secret"])


def submit(api: httpx.Client) -> str:
    """The id of a job with all our images."""
    files = [("files", (path.name, path.read_bytes(), "image/png")) for path in IMAGES]
    answer = api.post("/api/extract/images", files=files, data={"metadata": json.dumps({"from": "scripts/run"})})
    return str(expect(answer, 200, 202)["job_id"])


def await_webhook(receiver: Receiver, secret: str, job_id: str) -> Delivery:
    """The job's terminal event, verified."""
    deadline = time.monotonic() + WEBHOOK_TIMEOUT_S
    while True:
        try:
            delivery = receiver.deliveries.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise StepError(f"no terminal webhook for {job_id} within {WEBHOOK_TIMEOUT_S:.0f} s") from None
        check(is_genuine(secret, delivery), f"the signature of {delivery.event['type']} is wrong")
        data = delivery.event["data"]
        assert isinstance(data, dict)
        if data["job_id"] == job_id and data["status"] in TERMINAL:
            check(data["status"] == "completed", f"the job ended as {data['status']}")
            return delivery


def print_results(api: httpx.Client, job_id: str) -> None:
    """The job's results as a table, each with some text."""
    job = expect(api.get(f"/api/extract/image-jobs/{job_id}", params={"include": "results"}), 200)
    table = Table("image", "status", "words", "confidence", "ms", box=None, pad_edge=False)
    table.add_column("first words", no_wrap=True)
    for image in job["images"]:
        result = image["result"]
        check(result is not None and bool(result["text"].split()), f"{image['name']} has no text: {image['error']}")
        words = result["text"].split()
        ms = sum(stage["ms"] or 0 for stage in result["stages"])
        table.add_row(
            image["name"], "cached" if image["cached"] else image["status"], str(len(words)),
            f"{result['confidence']:.2f}", f"{ms:.0f}", escape(" ".join(words)[: max(12, out.width - 62)]),
        )  # fmt: skip
    out.print(table)
    check(len(job["images"]) == len(IMAGES), f"{len(job['images'])} of {len(IMAGES)} images are listed")


def stay(service: Service, account: dict[str, str], *, any_port: bool) -> None:
    """Keep the service in the foreground until it ends or Ctrl-C, with what signs in at its console."""
    out.print(f"\nNow your own screenshots: open [bold]{service.url}/console[/] and sign in with")
    for name in ("client_id", "client_secret"):
        out.print(f"  {name.replace('_', ' ')}  {account[name]}", highlight=False, soft_wrap=True)
    out.print(f"\nArachne stays at [bold]{service.url}[/] until Ctrl-C.", highlight=False)
    if any_port and not service.url.endswith(f":{DEFAULT_PORT}"):
        out.print(
            f"Port {DEFAULT_PORT} is taken: where README says http://127.0.0.1:{DEFAULT_PORT}, put this URL.",
            highlight=False,
        )
    service.show = True
    service.process.wait()


def expect(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    """The answer's JSON.

    Raises:
        StepError: another status.
    """
    check(
        answer.status_code in statuses, f"{answer.request.url.path} answered {answer.status_code}: {answer.text[:500]}"
    )
    body: dict[str, Any] = answer.json()
    return body


def check(right: bool, otherwise: str) -> None:
    """Nothing, if it is right.

    Raises:
        StepError: it is not.
    """
    if not right:
        raise StepError(otherwise)


def step(line: str) -> None:
    """A step that was right."""
    out.print(f"[green]✓[/] {escape(line)}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
