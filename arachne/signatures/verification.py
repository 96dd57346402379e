"""Whether a received webhook's signature is right and, where not, why: for receivers who are looking for the fault."""

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from arachne.signatures.signing import decode_secret, signed_bytes

TOLERANCE_S = 300
Reason = Literal[
    "missing_header",
    "bad_secret",
    "bad_timestamp",
    "timestamp_too_old",
    "timestamp_too_new",
    "no_v1_signature",
    "reserialised_body",
    "wrong_signature",
]


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict. `signed_sha256` is the hex digest of the bytes the signature was checked over."""

    valid: bool
    reason: Reason | None = None
    detail: str | None = None
    signed_sha256: str | None = None


def verify(
    secret: str, headers: Mapping[str, str], body: bytes, *, now_s: float | None = None, tolerance_s: int = TOLERANCE_S
) -> Verification:
    """The verdict on a received request; never raises on what was received."""
    received = {name.lower(): value for name, value in headers.items()}
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
        if not received.get(name):
            return Verification(False, "missing_header", f"The header {name} is missing.")
    try:
        key = decode_secret(secret)
    except ValueError as error:
        return Verification(False, "bad_secret", f"{str(error).capitalize()}; copy it whole.")
    message_id, timestamp = received["webhook-id"], received["webhook-timestamp"]
    signed = signed_bytes(message_id, timestamp, body)
    digest = hashlib.sha256(signed).hexdigest()
    reason, detail = _find_fault(key, received["webhook-signature"], message_id, timestamp, body)
    if reason is None:
        reason, detail = _check_age(timestamp, time.time() if now_s is None else now_s, tolerance_s)
    return Verification(reason is None, reason, detail, digest)


def verify_with_any(
    secrets: Iterable[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    now_s: float | None = None,
    tolerance_s: int = TOLERANCE_S,
) -> Verification | None:
    """The verdict that tells most, such as that one secret is the right one; None without secrets."""
    verdicts = (verify(secret, headers, body, now_s=now_s, tolerance_s=tolerance_s) for secret in secrets)
    return min(verdicts, key=_rank, default=None)


def _rank(verdict: Verification) -> int:
    """Lower where the verdict tells more: all is right, the secret is right, it is none, it is another."""
    if verdict.valid:
        return 0
    return {"bad_secret": 2, "wrong_signature": 3}.get(verdict.reason or "", 1)


def _check_age(timestamp: str, now_s: float, tolerance_s: int) -> tuple[Reason | None, str | None]:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return "bad_timestamp", "webhook-timestamp is not a number of whole seconds."
    age_s = now_s - int(timestamp)
    if age_s > tolerance_s:
        return "timestamp_too_old", f"Signed {age_s:.0f} s ago, over the tolerance of {tolerance_s} s."
    if age_s < -tolerance_s:
        return "timestamp_too_new", f"Signed {-age_s:.0f} s in the future; check this machine's clock."
    return None, None


def _find_fault(
    key: bytes, header: str, message_id: str, timestamp: str, body: bytes
) -> tuple[Reason | None, str | None]:
    given = list(_v1_signatures(header))
    if not given:
        return "no_v1_signature", "webhook-signature holds no readable `v1,<base64>`."
    if _matches(key, given, signed_bytes(message_id, timestamp, body)):
        return None, None
    for other in _reserialisations(body):
        if _matches(key, given, signed_bytes(message_id, timestamp, other)):
            return "reserialised_body", "The body was parsed and written again; verify the raw bytes of the request."
    return "wrong_signature", "No signature matches: another secret, or the body, id or timestamp was changed."


def _v1_signatures(header: str) -> Iterator[bytes]:
    for part in header.split():
        version, _, text = part.partition(",")
        if version != "v1":
            continue
        try:
            yield base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            continue


def _matches(key: bytes, given: list[bytes], signed: bytes) -> bool:
    expected = hmac.digest(key, signed, hashlib.sha256)
    return any(hmac.compare_digest(expected, signature) for signature in given)


def _reserialisations(body: bytes) -> Iterator[bytes]:
    """The forms the body may have had before somebody's JSON library rewrote it."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return
    for separators in ((",", ":"), (", ", ": ")):
        for ascii_only in (False, True):
            text = json.dumps(value, ensure_ascii=ascii_only, separators=separators)
            yield text.encode("utf-8", "surrogatepass")
