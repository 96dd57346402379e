"""The samples of docs/webhooks.md tell genuine requests from others, in every language this machine has."""

import base64
import json
import re
import time
from pathlib import Path
from typing import get_args

import pytest

from arachne.schemas.webhook import Failure
from arachne.signatures.signing import new_secret, sign, sign_with_all
from arachne.webhooks.events import EVENT_TYPES
from tests.standins.integrators import SAMPLES, Case, Sample, blocks

# Source: the Python library's own test in the standard-webhooks repository.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TIMESTAMP = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": str(TIMESTAMP),
    "webhook-signature": SIGNATURE,
}
OTHER = "v1," + base64.b64encode(b"\0" * 32).decode()
ED25519 = "v1a," + base64.b64encode(b"\0" * 64).decode()


def vector(*, secret: str = SECRET, body: bytes = BODY, later_s: int = 0, **headers: str | None) -> Case:
    """The published vector, received so many seconds after it was signed, with some headers changed or without."""
    changed = HEADERS | {f"webhook-{name}": value for name, value in headers.items()}
    return Case(
        secret, {name: value for name, value in changed.items() if value is not None}, body, TIMESTAMP + later_s
    )


GENUINE = {
    "the vector": vector(),
    "nearly five minutes old": vector(later_s=299),
    "nearly five minutes ahead": vector(later_s=-299),
    "second of two signatures": vector(signature=f"{OTHER} {SIGNATURE}"),
    "first of two signatures": vector(signature=f"{SIGNATURE} {OTHER}"),
    "beside another version": vector(signature=f"{ED25519} {SIGNATURE}"),
}
FORGED = {
    "a space more": vector(body=BODY.replace(b" ", b"  ")),
    "a line feed at the end": vector(body=BODY + b"\n"),
    "empty": vector(body=b""),
    "another secret": vector(secret=new_secret()),
    "another id": vector(id="msg_other"),
    "another time": vector(timestamp=str(TIMESTAMP + 1)),
    "too old": vector(later_s=302),
    "too new": vector(later_s=-302),
    "other signatures": vector(signature=f"{OTHER} {OTHER}"),
    "right, but of another version": vector(signature=SIGNATURE.replace("v1,", "v1a,")),
    "cut short": vector(signature=SIGNATURE[:-5]),
    "no version": vector(signature=SIGNATURE.removeprefix("v1,")),
    "no base64": vector(signature="v1,%%%"),
    "a pattern": vector(signature="v1,* *"),
    "nothing signed": vector(signature=""),
    "no signature": vector(signature=None),
    "no id": vector(id=None),
    "no time": vector(timestamp=None),
    "no number": vector(timestamp="now"),
    "endless": vector(timestamp="9" * 400),
}


@pytest.fixture(params=SAMPLES, ids=lambda sample: sample.name)
def sample(request: pytest.FixtureRequest) -> Sample:
    """Each sample whose language is here."""
    chosen: Sample = request.param
    if reason := chosen.missing():
        pytest.skip(reason)
    return chosen


@pytest.mark.processes
def test_sample_tells_genuine_from_forged(sample: Sample, tmp_path: Path) -> None:
    """The published vector is right within five minutes and among other signatures; whatever is changed is wrong."""
    cases = GENUINE | FORGED
    said = dict(zip(cases, sample.verdicts(tmp_path, list(cases.values())), strict=True))
    assert [name for name in GENUINE if not said[name]] == []
    assert [name for name in FORGED if said[name]] == []


@pytest.mark.processes
def test_sample_takes_what_we_sign(sample: Sample, tmp_path: Path) -> None:
    """Any bytes of UTF-8 under our secrets; while two are live with either, afterwards with the new one only."""
    old, new, now = new_secret(), new_secret(), int(time.time())
    body = json.dumps({"type": "job.completed", "text": 'ราคา ๑๒๐ ฿ "é" \\ \u2028 😀\n'}, ensure_ascii=False).encode()
    head = {"webhook-id": "msg_1", "webhook-timestamp": str(now)}
    during = head | {"webhook-signature": sign_with_all([new, old], "msg_1", now, body)}
    after = head | {"webhook-signature": sign(new, "msg_1", now, body)}
    cases = [Case(secret, headers, body, now) for headers in (during, after) for secret in (new, old)]
    assert sample.verdicts(tmp_path, cases) == [True, True, True, False]


def test_page_tells_what_is_so() -> None:
    """Every event and class of failure is on the page, its vector is the published one, its samples are tested."""
    page = (Path(__file__).parents[3] / "docs" / "webhooks.md").read_text()
    assert [event for event in EVENT_TYPES if f"`{event}`" not in page] == []
    assert [failure for failure in get_args(Failure) if f"`{failure}`" not in page] == []
    assert [value for value in (SECRET, *HEADERS.values(), BODY.decode()) if f"`{value}`" not in page] == []
    shown = {name for name, text in blocks().items() if re.search(r"hmac|Webhook\(", text, re.IGNORECASE)}
    assert shown == {sample.name for sample in SAMPLES}
