"""The API as a process of its own, and a client of it."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import service_harness

from arachne.accounts import create_account
from arachne.schemas.token import CLIENT_SCOPES
from arachne.secretbox import open_secret_box
from arachne.tokens import issue_operator_token
from tests.machines.waiting import eventually
from tests.standins.ports import free_port

API = "from arachne.http import server; server.serve(Settings.load())"
NAME = "acme"


@dataclass
class Api:
    """A running API process, and a client that sends what its account may."""

    process: subprocess.Popen[bytes]
    port: int
    client: httpx.Client

    def kill(self) -> None:
        """It is gone from one moment to the next."""
        self.process.kill()
        self.process.wait()


@contextmanager
def api_process(service: service_harness.Service, *, within: Sequence[str] = (), **variables: str) -> Iterator[Api]:
    """An API process that answers, with a token of the service's account, which is made if need be."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    service.account_id = service.account_id or service.database.run(_new_account)
    headers = {"Authorization": f"Bearer {_token(service, url)}"}
    variables = {"ARACHNE_PORT": str(port)} | variables
    with (
        service_harness.part_process(service.settings, API, within=within, **variables) as process,
        httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client,
    ):
        eventually(lambda: _answers(client))
        yield Api(process, port, client)


def _new_account(transaction) -> str:
    return create_account(transaction.session, NAME).account_id


def _token(service: service_harness.Service, url: str) -> str:
    settings = service.settings.model_copy(update={"public_url": url})
    box = open_secret_box(settings)
    return service.database.run(
        lambda transaction: issue_operator_token(transaction.session, box, settings, NAME, CLIENT_SCOPES, 600)
    )


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False
