"""An S3 server on loopback, in a process of its own that a test may freeze and kill."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3
import httpx
import psutil
from botocore.config import Config

from tests.machines.waiting import eventually
from tests.standins.ports import free_port

BUCKET, REGION = "pictures", "eu-north-1"
KEY_ID, SECRET = "AKIATESTTESTTESTTEST", "a secret of the tests"


@dataclass(frozen=True)
class ObjectStore:
    """The server, with one bucket."""

    url: str
    process: subprocess.Popen[bytes]

    @property
    def settings(self) -> dict[str, str]:
        """What a machine is told of it."""
        return {
            "storage_url": f"s3://{BUCKET}/originals-of-tests",
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
        }

    def names(self) -> list[str]:
        """The names of all objects."""
        listed = _client(self.url).list_objects_v2(Bucket=BUCKET)
        return [one["Key"] for one in listed.get("Contents", [])]

    def demand_credentials(self, *, after: int = 0) -> None:
        """Every request is refused whose credentials are not those of somebody the server knows: nobody's."""
        httpx.post(f"{self.url}/moto-api/reset-auth", content=str(after), trust_env=False).raise_for_status()

    def freeze(self) -> None:
        """It takes connections, since the kernel does, and says nothing."""
        psutil.Process(self.process.pid).suspend()

    def thaw(self) -> None:
        """It goes on."""
        psutil.Process(self.process.pid).resume()

    def kill(self) -> None:
        """It is gone, and what it held with it."""
        self.process.kill()
        self.process.wait()


@contextmanager
def object_store(folder: Path, *, port: int | None = None) -> Iterator[ObjectStore]:
    """The server, gone at the end."""
    port = port or free_port()
    with (folder / "objects.log").open("ab") as log:
        line = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    store = ObjectStore(f"http://127.0.0.1:{port}", process)
    try:
        eventually(lambda: _answers(store))
        _client(store.url).create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        yield store
    finally:
        store.kill()


def _client(url: str):  # type: ignore[no-untyped-def]  # boto3 is published without types
    return boto3.client(
        "s3", endpoint_url=url, aws_access_key_id=KEY_ID, aws_secret_access_key=SECRET, region_name=REGION,
        config=Config(retries={"max_attempts": 1}),
    )  # fmt: skip


def _answers(store: ObjectStore) -> bool:
    assert store.process.poll() is None
    try:
        return httpx.get(f"{store.url}/moto-api/data.json", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
