"""Received webhooks, checked before anything in them is believed."""

from collections.abc import Iterable, Mapping

from arachne.client.refusals import read_mapping
from arachne.errors import SetupError, SignatureRejected
from arachne.signatures.verification import TOLERANCE_S, verify
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
        SetupError: there is no secret, or one is none.
    """
    raw = body.encode() if isinstance(body, str) else body
    verdict = None
    for one in [secret] if isinstance(secret, str) else secret:
        verdict = verify(one, headers, raw, now_s=now_s, tolerance_s=tolerance_s)
        if verdict.reason == "bad_secret":
            raise SetupError(verdict.detail or "")
        if verdict.valid:
            return dict(read_mapping(parse(raw)))
    if verdict is None:
        raise SetupError("There is no secret to verify with. Set ARACHNE_WEBHOOK_SECRET.")
    raise SignatureRejected(verdict.detail or "", reason=verdict.reason or "wrong_signature")
