"""Webhooks are believed only where their signature is right, and what is wrong is told."""

import pytest

from arachne.client import SignatureRejected, UnexpectedAnswer, verify_webhook
from arachne.errors import SetupError
from arachne.signatures.signing import sign

# Source: the test vector of the Standard Webhooks specification.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
BODY = b'{"test": 2432232314}'


def test_webhooks_are_verified() -> None:
    """One of several secrets and signatures is enough; an old or changed one is refused, with a word that says why."""
    several = HEADERS | {"webhook-signature": "v1,AAAA " + HEADERS["webhook-signature"]}
    assert verify_webhook(["whsec_AAAA", SECRET], several, BODY, now_s=1614265330) == {"test": 2432232314}
    for body, now_s, reason in ((BODY, 1614266000, "timestamp_too_old"), (BODY + b" ", 1614265330, "wrong_signature")):
        with pytest.raises(SignatureRejected) as caught:
            verify_webhook(SECRET, HEADERS, body, now_s=now_s)
        assert caught.value.reason in {reason, "reserialised_body"}


def test_of_several_secrets_the_right_one_says_what_is_wrong() -> None:
    """Wherever it stands; one that can be none is told only where none is right."""
    for secrets in ([SECRET, "whsec_AAAA"], ["whsec_AAAA", "whsec_!", SECRET]):
        with pytest.raises(SignatureRejected) as caught:
            verify_webhook(secrets, HEADERS, BODY, now_s=1614266000)
        assert caught.value.reason == "timestamp_too_old"
        assert verify_webhook(secrets, HEADERS, BODY, now_s=1614265330)
    for none in ([], ["whsec_AAAA", "whsec_!"]):
        with pytest.raises(SetupError):
            verify_webhook(none, HEADERS, BODY, now_s=1614265330)


@pytest.mark.parametrize("body", [b"not JSON", b"[]", b"[" * 100_000])
def test_what_is_signed_and_no_event_is_unexpected(body: bytes) -> None:
    headers = HEADERS | {"webhook-signature": sign(SECRET, HEADERS["webhook-id"], 1614265330, body)}
    with pytest.raises(UnexpectedAnswer, match="secret"):
        verify_webhook(SECRET, headers, body, now_s=1614265330)


def test_headers_that_are_no_text_are_refused() -> None:
    """As servers hand them over whose bytes are no UTF-8."""
    with pytest.raises(SignatureRejected):
        verify_webhook(SECRET, HEADERS | {"webhook-id": "\udcff"}, BODY)
