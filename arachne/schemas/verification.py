"""Checking a received webhook's signature for a receiver who is looking for the fault."""

from typing import Annotated

from pydantic import Field

from arachne.schemas.wire import WireModel


class VerifyRequest(WireModel):
    """What was received; `body` is the raw body as text."""

    secret: Annotated[str, Field(max_length=500)]
    headers: Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=100)]
    body: Annotated[str, Field(max_length=1_000_000)]


class VerdictView(WireModel):
    """The verdict; `signed_sha256` is the digest of the bytes the signature was checked over."""

    valid: bool
    reason: str | None
    detail: str | None
    signed_sha256: str | None
