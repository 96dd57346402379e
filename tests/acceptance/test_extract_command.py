"""`arachne extract` against a running service: what it prints and writes, its exit codes, and going on after an end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.conftest import Client, Product
from tests.acceptance.picture_host import PictureHost
from tests.acceptance.test_client_library import pictures

Start = Callable[..., "subprocess.Popen[bytes]"]
NUMBER = 160
DECODE = ("--detail-level", "fast", "--stages", "decode")


@pytest.fixture
def start(product: Product, client: Client, tmp_path: Path) -> Start:
    """Starts `arachne extract …` in a folder of its own, signed in as `client`; further settings by keyword."""
    ours = {"ARACHNE_URL": product.url, "XDG_STATE_HOME": str(tmp_path / "state")}
    ours |= {f"ARACHNE_{name.upper()}": value for name, value in client.account.items()}
    bare = {name: value for name, value in os.environ.items() if not name.startswith("ARACHNE_")}

    def start(*words: object, **settings: str) -> "subprocess.Popen[bytes]":
        line = [sys.executable, "-P", "-m", "arachne", "extract", *map(str, words)]
        return subprocess.Popen(
            line, env=bare | ours | settings, cwd=tmp_path,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return start


def finish(process: "subprocess.Popen[bytes]", data: bytes | None = None) -> tuple[int, bytes, str]:
    """Exit code, stdout and stderr of the command, given `data` on stdin."""
    out, err = process.communicate(data, timeout=120)
    return process.returncode, out, err.decode()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_was_ended_goes_on(start: Start, client: Client, tmp_path: Path, how: signal.Signals) -> None:
    """The same command writes what is missing, under the same names; each image is billed once."""
    shots, out = tmp_path / "shots", tmp_path / "out"
    shots.mkdir()
    for number, data in enumerate(pictures(NUMBER)):
        (shots / f"{number:03}.png").write_bytes(data)
    words = ("shots", "--out", "out", *DECODE)
    first = start(*words)
    while not list(out.glob("*.json")):
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(how)
    code, _, told = finish(first)
    assert code == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert how == signal.SIGKILL or "The same command within a day goes on" in told
    written = {path: path.stat().st_mtime_ns for path in out.glob("*.json")}
    assert 0 < len(written) < NUMBER
    assert finish(start(*words)) == (0, b"", "")
    assert sorted(path.name for path in out.iterdir()) == [f"{number:03}.json" for number in range(NUMBER)]
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert client.get("/api/usage")["total"]["images"] == NUMBER
    assert finish(start(*words)) == (0, b"", "")
    assert client.get("/api/usage")["total"]["images"] == NUMBER


def test_what_failed_or_changed_is_read_anew(start: Start, client: Client, images: Path, tmp_path: Path) -> None:
    """Of three images one is no image at first, then it is; a second one is another by then."""
    good, bad, other = tmp_path / "good.png", tmp_path / "bad.png", tmp_path / "other.png"
    first, second, third = pictures(3)
    good.write_bytes(first)
    bad.write_bytes(b"no image")
    other.write_bytes(second)
    words = ("good.png", "bad.png", "other.png", *DECODE)
    code, out, err = finish(start(*words))
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, [row["file"] for row in rows]) == (1, ["good.png", "bad.png", "other.png"])
    assert [row.get("error", {}).get("code") for row in rows] == [None, "unsupported_image", None]
    assert "bad.png: unsupported_image" in err
    bad.write_bytes(third)
    other.write_bytes(third)
    code, out, _ = finish(start(*words))
    again = [json.loads(line) for line in out.splitlines()]
    assert (code, again[0]) == (0, rows[0])
    assert again[1]["image"]["sha256"] == again[2]["image"]["sha256"] != rows[2]["image"]["sha256"]
    assert client.get("/api/usage")["total"]["images"] == 4


def test_one_image_from_stdin_and_from_a_url(start: Start, images: Path, picture_host: PictureHost) -> None:
    """What it says is printed alone, and a document as it is."""
    data = (images / "dialog_light.png").read_bytes()
    words = (images / "dialog_light.txt").read_text().split()
    code, out, err = finish(start("-", "--format", "txt", "--detail-level", "fast"), data)
    assert (code, err) == (0, "")
    assert set(words) & set(out.decode().split())
    picture_host.pages["/extract/shot.png"] = data
    url = picture_host.url("/extract/shot.png")
    code, out, _ = finish(start(url, "--format", "pdf", "--detail-level", "fast"))
    assert (code, out[:5]) == (0, b"%PDF-")


def test_jobs_are_sent_now_and_taken_later(start: Start, client: Client, tmp_path: Path) -> None:
    """`--no-wait` prints their ids; the same command without it gets their results, and `--anew` sends again."""
    for number, data in enumerate(pictures(3)):
        (tmp_path / f"{number}.png").write_bytes(data)
    words = ("*.png", *DECODE, "--metadata", "order=4711")
    code, out, _ = finish(start(*words, "--no-wait"))
    [job_id] = out.decode().split()
    assert (code, client.wait(job_id)["metadata"]) == (0, {"order": "4711"})
    code, out, _ = finish(start(*words))
    assert (code, len(out.splitlines())) == (0, 3)
    assert [job["job_id"] for job in client.get("/api/extract/image-jobs")["data"]] == [job_id]
    assert finish(start(*words, "--anew"))[0] == 0
    assert len(client.get("/api/extract/image-jobs")["data"]) == 2


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("ARACHNE_CLIENT_SECRET", "wrong", "ARACHNE_CLIENT_SECRET"),
        ("ARACHNE_CLIENT_SECRET", "", "ARACHNE_CLIENT_SECRET"),
        ("ARACHNE_URL", "http://127.0.0.1:9", "ARACHNE_URL"),
        ("ARACHNE_TOKEN", "no-token", "token"),
    ],
)
def test_who_is_not_let_in_is_told_at_once(start: Start, images: Path, setting: str, value: str, told: str) -> None:
    """Exit code 3, nothing on stdout."""
    code, out, err = finish(start(images / "chat.png", **{setting: value}))
    assert (code, out, told in err) == (3, b"", True), err
