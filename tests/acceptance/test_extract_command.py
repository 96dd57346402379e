"""`arachne extract` against the whole product: everything arrives once, however often the command is ended."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from PIL import Image

from tests.acceptance.conftest import Client, Product
from tests.acceptance.picture_host import PictureHost
from tests.machines.waiting import eventually

JOBS = "/api/extract/image-jobs"
MANY = 60  # more than one parcel holds
# Whoever runs the tests in the background has SIGINT ignored, and children inherit that.
PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from arachne.cli import main; main()"
)
TIMEOUT_S = 180
REFUSALS: list[tuple[dict[str, str], tuple[str, ...], int, str]] = [
    ({"ARACHNE_CLIENT_SECRET": "wrong"}, (), 3, "Check ARACHNE_CLIENT_ID and ARACHNE_CLIENT_SECRET."),
    ({"ARACHNE_TOKEN": "a.b.c"}, (), 3, "token"),
    ({"ARACHNE_URL": "http://127.0.0.1:9"}, (), 3, "can't be reached"),
    ({"ARACHNE_CLIENT_ID": ""}, (), 3, "--local"),
    ({}, ("--languages", "xyz"), 1, "xyz"),
    ({}, ("--detail-level", "fast", "--model", "m"), 1, "fast"),
]


@dataclass
class Command:
    """The command as an account's user runs it in a folder of his own."""

    environment: dict[str, str]
    folder: Path

    @property
    def notes(self) -> list[Path]:
        """The files of its journal."""
        return sorted((self.folder / "state" / "arachne" / "extract").glob("*.jsonl"))

    def run(self, *words: object, stdin: bytes = b"") -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        done = subprocess.run(
            self._line(*words), input=stdin, capture_output=True, check=False, timeout=TIMEOUT_S, **self._place()
        )
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode()

    @contextmanager
    def started(self, *words: object) -> Iterator[subprocess.Popen[bytes]]:
        """The command under way; it is no more at the end."""
        process = subprocess.Popen(
            self._line(*words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            **self._place(),
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def _line(self, *words: object) -> list[str]:
        return [sys.executable, "-P", "-c", PROGRAM, "extract", *map(str, words)]

    def _place(self) -> dict[str, Any]:
        return {"env": self.environment, "cwd": self.folder}


@pytest.fixture
def command(product: Product, client: Client, tmp_path: Path) -> Command:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ARACHNE_")} | {
        "ARACHNE_URL": product.url,
        "ARACHNE_CLIENT_ID": client.account["client_id"],
        "ARACHNE_CLIENT_SECRET": client.account["client_secret"],
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    return Command(environment, tmp_path)


def billed(client: Client) -> int:
    """Images in the ledger."""
    return int(client.get("/api/usage")["total"]["images"])


def job_ids(client: Client) -> list[str]:
    return [job["job_id"] for job in client.get(JOBS, limit=200)["data"]]


def make_pictures(images: Path, folder: Path, number: int) -> None:
    """Pictures of one sentence, no two alike."""
    folder.mkdir()
    with Image.open(images / "dialog_light.png") as picture:
        page = picture.convert("RGB").crop((0, 0, 560, 80))
    for one in range(number):
        page.putpixel((one % page.width, page.height - 1), (one % 256, 77, secrets.randbelow(256)))
        page.save(folder / f"shot{one:02}.png")


def written(folder: Path) -> set[str]:
    """Files that are whole."""
    return {path.name for path in folder.glob("*") if not path.name.startswith(".")}


def lose_answers(notes: Path) -> None:
    """The notes of a command that was killed after the service took what it sent, and before it heard of that."""
    lines = notes.read_text().splitlines(keepends=True)
    notes.write_text("".join(line for line in lines if "accepted" not in line and "written" not in line))


def test_killed_and_started_again_everything_arrives_once(command: Command, client: Client, images: Path) -> None:
    """By `kill -9` while it sends, by Ctrl-C while it waits, by `kill -9` again: one ledger entry an image."""
    make_pictures(images, command.folder / "shots", MANY)
    words = ("shots", "--detail-level", "fast", "--format", "txt", "--out", "read")
    with command.started(*words) as process:
        eventually(lambda: bool(command.notes) and b"plan" in command.notes[0].read_bytes(), TIMEOUT_S)
        process.kill()
    with command.started(*words) as process:
        eventually(lambda: len(written(command.folder / "read")) >= 2, TIMEOUT_S)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (130, b"")
    assert b"The same command goes on from here, within 24 hours." in err
    assert b"Traceback" not in err
    first = {path: path.stat().st_mtime_ns for path in (command.folder / "read").iterdir()}
    with command.started(*words) as process:
        eventually(lambda: len(written(command.folder / "read")) > len(first), TIMEOUT_S)
        process.kill()
    assert command.run(*words) == (0, "", "")
    assert written(command.folder / "read") == {f"shot{number:02}.txt" for number in range(MANY)}
    assert [path.name for path in (command.folder / "read").glob(".*")] == []
    assert {path: path.stat().st_mtime_ns for path in first if path.exists() and path.name[0] != "."} == {
        path: changed for path, changed in first.items() if path.name[0] != "."
    }
    assert all("Save changes" in path.read_text() for path in (command.folder / "read").iterdir())
    assert billed(client) == MANY
    assert sum(client.get(f"{JOBS}/{one}")["progress"]["total"] for one in job_ids(client)) == MANY


def test_what_the_service_took_unheard_is_sent_under_the_same_key(
    command: Command, client: Client, images: Path
) -> None:
    """Nothing is read or billed twice though no answer came; a run with nothing left to do asks for nothing at all."""
    make_pictures(images, command.folder / "shots", 3)
    words = ("shots", "--detail-level", "fast", "--out", "read")
    assert command.run(*words) == (0, "", "")
    lose_answers(command.notes[0])
    for path in (command.folder / "read").iterdir():
        path.unlink()
    jobs = job_ids(client)
    assert command.run(*words) == (0, "", "")
    assert len(written(command.folder / "read")) == 3
    assert (job_ids(client), billed(client)) == (jobs, 3)
    command.environment["ARACHNE_URL"] = "http://127.0.0.1:9"
    assert command.run(*words)[0] == 3  # another service is another command
    command.environment["ARACHNE_URL"] = str(client.api.base_url).rstrip("/")
    command.environment["ARACHNE_CLIENT_SECRET"] = "wrong"
    assert command.run(*words) == (0, "", "")


def test_only_what_failed_or_changed_is_sent_again(command: Command, client: Client, images: Path) -> None:
    """Two read, one no image, one missing; then the third is a picture, the fourth there, and the first another."""
    make_pictures(images, command.folder / "shots", 2)
    (command.folder / "shots" / "text.png").write_text("This is text.")
    words = ("shots", "late.png", "--detail-level", "fast", "--format", "md", "--out", "read")
    code, out, err = command.run(*words)
    assert (code, out) == (1, "")
    assert [line.split(": ")[1:3] for line in err.splitlines()] == [
        ["late.png", "not_found"],
        ["shots/text.png", "unsupported_image"],
    ]
    assert command.run(*words)[0] == 1
    before = (command.folder / "read" / "shot00.md").stat().st_mtime_ns
    jobs = job_ids(client)
    assert len(jobs) == 1  # the second time there was nothing the service would make a job of
    with Image.open(images / "chat.png") as picture:
        picture.save(command.folder / "shots" / "text.png")
        picture.convert("L").save(command.folder / "late.png")
        picture.rotate(180).save(command.folder / "shots" / "shot01.png")
    assert command.run(*words) == (0, "", "")
    assert written(command.folder / "read") == {"shot00.md", "shot01.md", "shot01-2.md", "text.md", "late.md"}
    assert (command.folder / "read" / "shot00.md").stat().st_mtime_ns == before
    assert sorted(client.get(f"{JOBS}/{one}")["progress"]["total"] for one in job_ids(client)) == [3, 3]
    assert billed(client) == 5


def test_erased_jobs_are_sent_anew_and_anew_sends_all(command: Command, client: Client, images: Path) -> None:
    """A job that is gone when the command goes on is no failure; `--anew` begins from the beginning."""
    words = (images / "dialog_light.png", "--detail-level", "fast", "--format", "txt")
    code, out, err = command.run(*words)
    assert (code, err) == (0, "")
    assert command.run(*words) == (0, out, "")
    first = job_ids(client)
    assert len(first) == 1
    assert client.api.delete(f"{JOBS}/{first[0]}").status_code == 204
    assert command.run(*words) == (0, out, "")
    second = job_ids(client)
    assert len(second) == 1
    assert second != first
    assert command.run(*words, "--anew") == (0, out, "")
    assert len(job_ids(client)) == 2


def test_results_are_the_services_own_in_the_order_given(
    command: Command, client: Client, images: Path, picture_host: PictureHost
) -> None:
    """A file, an address and stdin, as lines of JSON: what the API answers, under the names they were given by."""
    picture_host.pages["/deep/a%20b.png"] = picture_host.pages["/deep/a b.png"] = (images / "chat.png").read_bytes()
    address = picture_host.url("/deep/a%20b.png?size=1")
    given = (images / "dialog_light.png", address, "-")
    options = ("--detail-level", "fast", "--metadata", "order=4711", "--metadata", "note=a=b")
    code, out, err = command.run(*given, *options, stdin=(images / "error_dialog.png").read_bytes())
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line.pop("file") for line in lines] == [str(one) for one in given]
    results = {}
    for job_id in job_ids(client):
        job = client.get(f"{JOBS}/{job_id}", include="results")
        assert job["metadata"] == {"order": "4711", "note": "a=b"}
        results |= {image["name"] or image["source_url"]: image["result"] for image in job["images"]}
    assert lines == [results[name] for name in ("dialog_light.png", address, "stdin")]
    assert command.run(address, *options, "--format", "txt", "--out", "read")[0] == 0
    assert written(command.folder / "read") == {"a b.txt"}
    code, out, err = command.run(address, *options, "--format", "pdf")
    assert (code, out[:5], err) == (0, "%PDF-", "")


def test_documents_of_a_list_and_jobs_picked_up_later(command: Command, client: Client, images: Path) -> None:
    """`--no-wait` prints the job, the same command without it writes the documents, all from a list on stdin."""
    make_pictures(images, command.folder / "shots", 3)
    named = b"shots/shot00.png\nshots/shot01.png\r\n\nshots/shot02.png\n"
    words = ("--from-file", "-", "--detail-level", "fast", "--format", "pdf", "--out", "read")
    code, out, err = command.run(*words, "--no-wait", stdin=named)
    assert (code, err, out.split()) == (0, "", job_ids(client))
    assert written(command.folder / "read") == set()
    assert command.run(*words, stdin=named) == (0, "", "")
    assert len(job_ids(client)) == 1
    for number in range(3):
        document = pypdfium2.PdfDocument(command.folder / "read" / f"shot{number:02}.pdf")
        assert "Save changes" in document[0].get_textpage().get_text_range()
        document.close()
    code, out, _ = command.run("shots/shot00.png", "--detail-level", "fast", "--format", "hocr")
    assert (code, "class='ocr_page'" in out or 'class="ocr_page"' in out) == (0, True)


def test_what_the_service_refuses(command: Command, images: Path) -> None:
    """One line that says what to mend, and an exit code that tells set-up from refusal; stdout stays empty."""
    right = dict(command.environment)
    for change, words, code, told in REFUSALS:
        command.environment = right | change
        ended, out, err = command.run(images / "chat.png", *words)
        assert (ended, out, len(err.splitlines())) == (code, "", 1), err
        assert told in err
