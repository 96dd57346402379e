"""The examples of README and docs, typed in their order against the service that README's first one starts."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from arachne.database import plain_url
from arachne.embedded import instance
from tests.acceptance.picture_host import PictureHost
from tests.acceptance.reader import Reader, absent
from tests.acceptance.receiver import Receiver
from tests.documents.fences import ROOT, Fence, all_fences, of_page
from tests.documents.test_fences import RUN, is_sample
from tests.machines.waiting import eventually

STAYS = re.compile(r"stays at (http://127\.0\.0\.1:\d+)")
STOP_TIMEOUT_S = 60
_LISTENING = "4567"  # where the pages' receivers listen, and `arachne webhooks listen`


def runs(fence: Fence) -> bool:
    """Whether it is typed here."""
    return fence.language in RUN and fence.reason is None and not is_sample(fence)


PAGES = sorted({fence.page for fence in all_fences() if runs(fence)})
LATER = [page for page in PAGES if page != "README.md"]


@dataclass(frozen=True)
class Shown:
    """The service that README's first example has started, and what the pages' addresses are here."""

    data_dir: Path
    replaced: dict[str, str]
    settings: dict[str, str]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver, picture_host: PictureHost) -> Iterator[Shown]:
    """What `scripts/run` leaves running, with a receiver and a host of pictures in the place of example.com."""
    hooks, port = receiver.url("hooks/arachne"), free_port()
    picture_host.pages |= {f"/{name}.png": (ROOT / "tests/images/chat.png").read_bytes() for name in "abc"}
    settings = {
        "ARACHNE_VISION_RATE_LIMIT": "1000/minute",
        "ARACHNE_WEBHOOK_EGRESS_ALLOW": json.dumps([f"127.0.0.1:{receiver.port}", f"127.0.0.1:{port}"]),
        "ARACHNE_IMAGE_EGRESS_ALLOW": json.dumps([f"127.0.0.1:{picture_host.port}"]),
    }
    data_dir = tmp_path_factory.mktemp("shown") / "var"
    with running(data_dir, settings) as url:
        replaced = {
            "https://example.com/hooks/arachne": hooks,
            "https://example.com": picture_host.url(""),
            "http://127.0.0.1:8000": url,
            "webhooks listen": f"webhooks listen --port {port}",
            _LISTENING: str(port),
        }
        yield Shown(data_dir, replaced, {"ARACHNE_DATA_DIR": str(data_dir), "ARACHNE_URL": url})


@contextmanager
def running(data_dir: Path, settings: dict[str, str]) -> Iterator[str]:
    """URL of what README's first example starts; it ends well when it is asked to."""
    first = next(fence for fence in of_page("README.md") if fence.language == "sh")
    assert first.text == "scripts/run\n"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ARACHNE_")} | settings
    output = data_dir.parent / "printed"
    with output.open("wb") as stream:
        line = [first.text.strip(), "--port", "0", "--data-dir", str(data_dir)]
        process = subprocess.Popen(line, cwd=ROOT, env=environment, stdout=stream, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: STAYS.search(output.read_text()) or process.poll() is not None, 300)
        stays = STAYS.search(output.read_text())
        assert stays, output.read_text()
        yield stays[1]
    finally:
        process.send_signal(signal.SIGINT)
        status = process.wait(STOP_TIMEOUT_S)
    assert status == 0, output.read_text()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def after_readme(shown: Shown, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader who has typed README's examples."""
    reader = Reader(tmp_path_factory.mktemp("reader") / "arachne", shown.replaced, shown.settings)
    type_page(reader, "README.md")
    return reader


def type_page(reader: Reader, page: str) -> None:
    """Every example of the page prints what it says it prints."""
    try:
        for fence in filter(runs, of_page(page)):
            if fence.text == "scripts/run\n" or absent(fence.language):
                continue
            said = reader.types(fence)
            for pattern in fence.told("prints") if not fence.told("stays") else ():
                assert re.search(pattern, said, re.MULTILINE), f"{fence} prints no {pattern!r}, but:\n{said}"
        reader.leaves()
    finally:
        reader.abandons()


@pytest.mark.skipif(absent("sh") is not None, reason=str(absent("sh")))
def test_readme(after_readme: Reader) -> None:
    """From the first command to the last, with what each has set for the next."""


@pytest.mark.skipif(absent("sh") is not None, reason=str(absent("sh")))
@pytest.mark.parametrize("page", LATER)
def test_page(page: str, after_readme: Reader, tmp_path: Path) -> None:
    """By a reader who comes from README, and knows no more than it has set."""
    type_page(after_readme.again(tmp_path / "arachne"), page)


def test_javascript_is_run() -> None:
    """Examples in JavaScript are left out where there is no Node."""
    if reason := absent("js"):
        pytest.skip(reason)
    assert any(fence.language == "js" and runs(fence) for fence in all_fences())


@pytest.mark.skipif(absent("sh") is not None, reason=str(absent("sh")))
def test_the_body_shown_has_the_members_that_events_have(after_readme: Reader, shown: Shown) -> None:
    """Those of an image and of the progress too; `text` stands for all of a result."""
    told = json.loads(next(one.text for one in of_page("docs/webhooks.md") if one.language == "json"))
    command = 'curl -s -H "Authorization: Bearer $TOKEN" "$ARACHNE_URL/api/events?limit=200"'
    printed = after_readme.again(shown.data_dir.parent / "feed").types(Fence("feed", 1, "sh", (), command, ()))
    events = json.loads(printed.splitlines()[-1].partition("<HTTP")[0])["data"]
    event = next(one for one in events if one["type"] == "job.completed" and one["data"]["images"][0]["result"])
    del event["message_id"]
    for place in (lambda one: one, lambda one: one["data"], lambda one: one["data"]["progress"]):
        assert set(place(told)) == set(place(event))
    (image,) = told["data"]["images"]
    assert set(image) == set(event["data"]["images"][0])
    assert set(image["result"]) <= set(event["data"]["images"][0]["result"])


def test_sql(shown: Shown) -> None:
    """A statement of the pages does what it says: the second time nothing is written."""
    statements = [fence.text for fence in all_fences() if fence.language == "sql"]
    assert len(statements) == 1
    url = instance.find(shown.data_dir).database_url
    with psycopg.connect(plain_url(url)) as connection:
        connection.execute("CREATE TEMPORARY TABLE received_webhook (webhook_id text PRIMARY KEY)")
        connection.execute(f"PREPARE take (text) AS {statements[0].partition(';')[0]}")
        assert [connection.execute("EXECUTE take ('msg_1')").rowcount for _ in range(2)] == [1, 0]
