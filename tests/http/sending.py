"""Submissions of the account `acme`."""

import base64

import httpx

from tests.http.conftest import Service

ONE, MANY = "/api/extract/image", "/api/extract/images"


def text(data: bytes) -> str:
    """Base64."""
    return base64.b64encode(data).decode()


async def send(service: Service, url: str, **request: object) -> httpx.Response:
    """The answer to a POST with acme's token."""
    headers = await service.headers() | dict(request.pop("headers", {}))  # type: ignore[call-overload]
    return await service.client.post(url, headers=headers, **request)  # type: ignore[arg-type]
