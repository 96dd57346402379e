"""Phases two and three of a delivery: it is signed and sent, with no transaction open, and what came of it is told."""

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp

from arachne import __version__
from arachne.complaints import Complaints
from arachne.errors import SetupError
from arachne.net.client import Exchange, open_exchange, read_bounded
from arachne.net.failures import classify
from arachne.net.policy import EgressPolicy
from arachne.net.urls import check_url
from arachne.schemas.webhook import Failure
from arachne.secretbox import SecretBox
from arachne.signatures.signing import sign_with_all
from arachne.webhooks.claim import Claim
from arachne.webhooks.sealing import open_all

_complaints = Complaints(logging.getLogger(__name__))

USER_AGENT = f"Arachne-Webhooks/{__version__}"
EXCERPT_BYTES = 2048
_EXCERPT_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one attempt came to; `failure` is None for a success. `retry_after` is the header as received."""

    at: datetime
    ms: int
    status_code: int | None = None
    failure: Failure | None = None
    response: str | None = None
    retry_after: str | None = None


async def attempt(session: aiohttp.ClientSession, policy: EgressPolicy, box: SecretBox, claim: Claim) -> Outcome:
    """The outcome of signing and sending a delivery once; faults of any kind are outcomes."""
    at, started_s = datetime.now(UTC), time.monotonic()
    status: int | None = None
    response, retry_after = None, None
    try:
        headers = sign_headers(box, claim, int(at.timestamp()))
        checked = check_url(claim.url, policy)
        async with open_exchange(session, "POST", checked, body=claim.body, headers=headers) as exchange:
            status = exchange.response.status
            retry_after = exchange.response.headers.get("Retry-After")
            response = await _read_excerpt(exchange)
        failure = _judge(status)
    except Exception as error:  # whatever it is, the delivery must go on and the fault be told
        failure = classify(error) if status is None else _judge(status)
        if failure == "ours":
            _complaints.tell("webhooks could not be sent from here", error)
    ms = round((time.monotonic() - started_s) * 1000)
    return Outcome(at, ms, status, failure, response, retry_after)


def _judge(status: int) -> Failure | None:
    """A status decides, whatever comes after it."""
    return None if 200 <= status < 300 else "http"


def sign_headers(box: SecretBox, claim: Claim, timestamp: int) -> dict[str, str]:
    """The headers of one attempt, signed now with every live secret.

    Raises:
        SetupError: the secrets can't be opened.
    """
    secrets = open_all(box, claim.secrets)
    if not secrets:
        raise SetupError("The endpoint has no signing secret. Rotate it to give it one.")
    return {
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "webhook-id": claim.message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign_with_all(secrets, claim.message_id, timestamp, claim.body),
    }


async def _read_excerpt(exchange: Exchange) -> str | None:
    """At most 2 kB of what was answered, as text; the status decides, so a body that hangs or breaks is no failure."""
    if exchange.from_private:
        return None
    try:
        async with asyncio.timeout(_EXCERPT_TIMEOUT_S):
            body, _ = await read_bounded(exchange.response, EXCERPT_BYTES)
    except (TimeoutError, aiohttp.ClientError):
        return None
    text = body.decode("utf-8", "replace").replace("\0", "\ufffd")
    return text.encode()[:EXCERPT_BYTES].decode("utf-8", "ignore")
