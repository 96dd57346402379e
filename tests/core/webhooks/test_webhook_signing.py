"""Signatures against published known answers and the public library, and what the verifier says of faults."""

import base64
import json
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from arachne.signatures.signing import decode_secret, new_secret, sign, sign_with_all
from arachne.signatures.verification import verify

# Source: the Python library's own test in the standard-webhooks repository.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIMESTAMP = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
HEADERS = {"webhook-id": MESSAGE_ID, "webhook-timestamp": str(TIMESTAMP), "webhook-signature": SIGNATURE}


def test_published_vector() -> None:
    """The signature everybody else computes for the same bytes."""
    assert sign(SECRET, MESSAGE_ID, TIMESTAMP, BODY) == SIGNATURE
    assert sign(SECRET.removeprefix("whsec_"), MESSAGE_ID, TIMESTAMP, BODY) == SIGNATURE


@given(st.binary(min_size=24, max_size=64), st.integers(0, 2**33), st.text(max_size=200))
def test_agrees_with_the_library(key: bytes, timestamp: int, text: str) -> None:
    """Any secret, time and text are signed as the public library does."""
    secret, body = "whsec_" + base64.b64encode(key).decode(), json.dumps(text)
    theirs = Webhook(secret).sign(MESSAGE_ID, datetime.fromtimestamp(timestamp, UTC), body)
    assert sign(secret, MESSAGE_ID, timestamp, body.encode()) == theirs


def test_the_library_accepts_old_and_new_secrets() -> None:
    """With two live secrets, receivers holding either verify; any other doesn't."""
    old, new, now = new_secret(), new_secret(), int(time.time())
    signature = sign_with_all([new, old], MESSAGE_ID, now, BODY)
    headers = {"webhook-id": MESSAGE_ID, "webhook-timestamp": str(now), "webhook-signature": signature}
    for secret in (old, new):
        assert Webhook(secret).verify(BODY, headers) == {"test": 2432232314}
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(BODY, headers)


def test_new_secrets() -> None:
    """32 random bytes behind the prefix, never twice the same."""
    made = {new_secret() for _ in range(50)}
    assert len(made) == 50
    assert all(secret.startswith("whsec_") and len(decode_secret(secret)) == 32 for secret in made)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!!", "whsec_ü", "whsec_a"])
def test_unusable_secrets(secret: str) -> None:
    """A secret that is none is told, never signed with."""
    with pytest.raises(ValueError, match="secret"):
        sign(secret, MESSAGE_ID, TIMESTAMP, BODY)
    assert verify(secret, HEADERS, BODY, now_s=TIMESTAMP).reason == "bad_secret"


def test_verdict_on_a_right_signature() -> None:
    """Right within the tolerance either way, in any letter case of the headers, among other signatures."""
    headers = {name.title(): value for name, value in HEADERS.items()}
    headers["Webhook-Signature"] = f"v1a,AAAA v1,broken {SIGNATURE}"
    for now in (TIMESTAMP, TIMESTAMP + 300, TIMESTAMP - 300):
        assert verify(SECRET, headers, BODY, now_s=now).valid


@pytest.mark.parametrize(
    ("change", "body", "now_s", "reason"),
    [
        ({"webhook-id": ""}, BODY, TIMESTAMP, "missing_header"),
        ({"webhook-signature": ""}, BODY, TIMESTAMP, "missing_header"),
        ({}, BODY, TIMESTAMP + 301, "timestamp_too_old"),
        ({}, BODY, TIMESTAMP - 301, "timestamp_too_new"),
        ({"webhook-signature": "v1a," + SIGNATURE[3:]}, BODY, TIMESTAMP, "no_v1_signature"),
        ({"webhook-signature": "v1,&&&"}, BODY, TIMESTAMP, "no_v1_signature"),
        ({"webhook-signature": SIGNATURE[:-2] + "A="}, BODY, TIMESTAMP, "wrong_signature"),
        ({"webhook-id": "msg_other"}, BODY, TIMESTAMP, "wrong_signature"),
        ({"webhook-timestamp": "1614265331"}, BODY, TIMESTAMP, "wrong_signature"),
        ({}, BODY + b" ", TIMESTAMP, "reserialised_body"),
        ({}, b'{"test":2432232314}', TIMESTAMP, "reserialised_body"),
        ({}, b'{\n  "test": 2432232314\n}', TIMESTAMP, "reserialised_body"),
        ({}, b'{"test": 1}', TIMESTAMP, "wrong_signature"),
        ({}, b"[" * 100_000, TIMESTAMP, "wrong_signature"),
        ({}, b"\xff", TIMESTAMP, "wrong_signature"),
    ],
)
def test_verdicts_name_the_fault(change: dict[str, str], body: bytes, now_s: int, reason: str) -> None:
    """Each fault has its own word, the re-serialised body before all."""
    found = verify(SECRET, HEADERS | change, body, now_s=now_s)
    assert (found.valid, found.reason) == (False, reason)
    assert found.detail


@pytest.mark.parametrize("timestamp", ["1e9", "-1", "nan", "1614265330.5", "٣", "9" * 400])
def test_odd_timestamps(timestamp: str) -> None:
    """A well-signed request with an odd time is refused for its time."""
    digest_of = sign(SECRET, MESSAGE_ID, timestamp, BODY)  # type: ignore[arg-type]  # what a foreign sender may do
    headers = {"webhook-id": MESSAGE_ID, "webhook-timestamp": timestamp, "webhook-signature": digest_of}
    assert verify(SECRET, headers, BODY, now_s=TIMESTAMP).reason == "bad_timestamp"
