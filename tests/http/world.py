"""One of everything that a path may name, so that every route can be called on something that is there."""

import re

from sqlalchemy import text

from tests.http.conftest import Service
from tests.http.pictures import png
from tests.http.sending import ONE, send
from tests.http.worker import Worker

PARAMETER = re.compile(r"{(\w+)}")


def fill(path: str, ids: dict[str, str]) -> str:
    """The path with its parameters filled in.

    Raises:
        KeyError: a parameter has no value in `ids`; `make_world` has to make one.
    """
    return PARAMETER.sub(lambda found: ids[found[1]], path)


async def make_world(service: Service) -> dict[str, str]:
    """Ids by the name of the path parameter: acme's job with one failed image, its endpoint and what was sent to it.

    Also the account `other` and its client, and a plan; these are administrators' to name.
    """
    url = "https://hooks.example.com/x"
    endpoint = await send(service, "/api/webhooks", json={"url": url, "events": ["job.*"]})
    worker = await Worker(service).start()
    data = png()
    job_id = (await send(service, ONE, files={"file": ("a.png", data)})).json()["job_id"]
    await worker.read_all(failing=tuple(await _digests(service, job_id)))
    other = await service.account("other")
    async with service.database.session() as session:
        message_id = await session.scalar(text("SELECT message_id FROM webhook_delivery LIMIT 1"))
    return {
        "job_id": job_id,
        "index": "0",
        "endpoint_id": endpoint.json()["endpoint_id"],
        "message_id": message_id,
        "account_id": other.account_id,
        "client_id": other.client_id,
        "plan_id": "default",
    }


async def _digests(service: Service, job_id: str) -> list[str]:
    async with service.database.session() as session:
        found = await session.scalars(text("SELECT sha256 FROM image WHERE job_id = :job_id"), {"job_id": job_id})
        return list(found)
