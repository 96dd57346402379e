"""Received webhooks, checked before anything in them is believed."""

from collections.abc import Iterable, Mapping

from arachne.errors import SetupError, SignatureRejected, UnexpectedAnswer
from arachne.signatures.verification import TOLERANCE_S, verify_with_any
from arachne.strict_json import parse


def verify_webhook(
    secret: str | Iterable[str],
    headers: Mapping[str, str],
    body: bytes | str,
    *,
    tolerance_s: int = TOLERANCE_S,
    now_s: float | None = None,
) -> dict[str, object]:
    """The event in a received request, where one of its signatures is by one of the secrets and not too old.

    `body` is the raw body, before anything parsed it; several secrets are given while one follows another.

    Raises:
        SignatureRejected: it is not by any of them, or is too old; says why.
        SetupError: there is no secret, or none is right and one can be none.
        UnexpectedAnswer: what is signed is no event.
    """
    raw = body.encode() if isinstance(body, str) else body
    secrets = [secret] if isinstance(secret, str) else secret
    verdict = verify_with_any(secrets, headers, raw, now_s=now_s, tolerance_s=tolerance_s)
    if verdict is None:
        raise SetupError("There is no secret to verify with. Set ARACHNE_WEBHOOK_SECRET.")
    if verdict.reason == "bad_secret":
        raise SetupError(verdict.detail or "")
    if verdict.reason is not None:
        raise SignatureRejected(verdict.detail or "", reason=verdict.reason)
    return _read_event(raw)


def _read_event(body: bytes) -> dict[str, object]:
    try:
        event = parse(body)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise UnexpectedAnswer("What is rightly signed is no JSON object. See that only the service has the secret.")
    return event
