"""What a command noted of its earlier runs: kept through any end, given up where it no longer holds."""

import errno
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from arachne.cli.extract_folder import Folder
from arachne.cli.extract_inputs import Input
from arachne.cli.extract_journal import KEPT_S, Journal, open_journal
from arachne.cli.extract_parcels import Shipment, pack, resume
from arachne.client.chunks import MAX_IMAGES
from arachne.errors import SetupError
from tests.machines.waiting import eventually

COMMAND = {"names": ["a.png"]}
HOLD = """
import sys
from arachne.cli.extract_journal import open_journal
with open_journal({"names": ["a.png"]}) as journal:
    journal.plan([("a.png", "1")])
    print("held", flush=True)
    sys.stdin.read()
"""


pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where notes go."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "arachne" / "extract"


def make_images(folder: Path, names: Sequence[str]) -> list[Input]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return [Input(str(folder / name)) for name in names]


def begin(journal: Journal, images: Sequence[Input]) -> tuple[list[Shipment], list[Shipment]]:
    """What a run would go on with, and what it would send anew."""
    identities = [one.identify() for one in images]
    numbers = {identity: number for number, identity in enumerate(identities) if identity is not None}
    resumed = resume(journal, numbers, numbers.values())
    left = set(numbers.values()) - {number for one in resumed for number in one.wanted.values()}
    return resumed, pack(journal, images, identities, sorted(left))


def test_notes_outlive_an_end_in_the_middle_of_a_line(tmp_path: Path, state: Path) -> None:
    """What stands in whole lines holds; a torn one says nothing, and further notes are read after it."""
    images = make_images(tmp_path, ["a.png", "b.png", "c.png"])
    with open_journal(COMMAND) as journal:
        (sent,) = begin(journal, images)[1]
        journal.accept(sent.parcel, {0: ("job_1", 0), 1: ("job_1", 1)})
        journal.fail(sent.parcel, 1)
    (notes,) = state.iterdir()
    with notes.open("a") as file:
        file.write('{"failed":"extr')
    with open_journal(COMMAND) as journal:
        resumed, anew = begin(journal, images)
        assert [(one.parcel.key, dict(one.wanted), one.parcel.jobs) for one in resumed] == [
            (sent.parcel.key, {0: 0, 2: 2}, {"job_1": {0: 0, 1: 1}})
        ]
        assert [dict(one.wanted) for one in anew] == [{0: 1}]
        key = anew[0].parcel.key
    with open_journal(COMMAND) as journal:
        assert list(journal.parcels) == [sent.parcel.key, key]


def test_a_parcel_that_was_not_accepted_goes_again_as_it_was_or_not_at_all(tmp_path: Path) -> None:
    """With an image that changed meanwhile it would be another request under the same key."""
    images = make_images(tmp_path, ["a.png", "b.png"])
    with open_journal(COMMAND) as journal:
        (sent,) = begin(journal, images)[1]
        assert begin(journal, images) == ([sent], [])
        (tmp_path / "b.png").write_text("another")
        resumed, anew = begin(journal, images)
        assert (resumed, [dict(one.wanted) for one in anew]) == ([], [{0: 0, 1: 1}])
        assert list(journal.parcels) == [anew[0].parcel.key]


def test_keys_are_not_used_longer_than_services_know_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not accepted within that time is sent under another; jobs are gone on with."""
    images = make_images(tmp_path, ["a.png", "b.png"])
    with open_journal(COMMAND) as journal:
        identities = [one.identify() for one in images]
        accepted, lost = (pack(journal, images, identities, [number])[0] for number in (0, 1))
        journal.accept(accepted.parcel, {0: ("job_1", 0)})
        later = time.time() + KEPT_S
        monkeypatch.setattr(time, "time", lambda: later)
        resumed, anew = begin(journal, images)
        assert resumed == [accepted]
        assert [dict(one.wanted) for one in anew] == [{0: 1}]
        assert anew[0].parcel.key != lost.parcel.key


def test_notes_end_with_their_day_or_when_that_is_asked_for(state: Path) -> None:
    """Another command's are not touched before that, and are tidied away long after."""
    other = {"names": ["other"]}
    for told in (COMMAND, other):
        with open_journal(told) as journal:
            journal.plan([("a.png", "1")])
    with open_journal(COMMAND, anew=True) as journal:
        assert journal.parcels == {}
    with open_journal(other) as journal:
        assert len(journal.parcels) == 1
    for path in state.iterdir():
        os.utime(path, (0, time.time() - KEPT_S - 60))
    with open_journal(other) as journal:
        assert journal.parcels == {}
    assert len(list(state.iterdir())) == 2
    for path in state.iterdir():
        os.utime(path, (0, time.time() - 3 * KEPT_S))
    with open_journal(COMMAND):
        assert len(list(state.iterdir())) == 1


def test_where_nothing_can_be_noted_the_command_runs_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with open_journal(COMMAND) as journal:
        assert not journal.is_kept
        assert journal.plan([("a.png", "1")]).is_new
    assert "XDG_STATE_HOME" in capsys.readouterr().err


class Full(io.BytesIO):
    """A file on a disk that has room for so many bytes."""

    def __init__(self, room_bytes: int) -> None:
        super().__init__()
        self.room_bytes = room_bytes

    def write(self, data: Any) -> int:
        """As much of it as there is room for."""
        if not (taken := bytes(data)[: self.room_bytes]):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room_bytes -= len(taken)
        return super().write(taken)


def test_where_no_more_can_be_noted_the_command_goes_on_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Once, however much there is to note; what stands in whole lines holds the next time."""
    disk = Full(150)
    journal = Journal(disk)
    first = journal.plan([("a.png", "1")])
    second = journal.plan([("b.png", "1")])
    journal.accept(second, {0: ("job_1", 0)})
    assert (list(journal.parcels), second.is_sent, journal.is_kept) == ([first.key, second.key], True, False)
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert list(Journal(disk).parcels) == [first.key]


@pytest.mark.processes
def test_the_same_command_twice_at_once_waits(state: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The second goes on with what the first, ended by `kill -9`, left behind; nothing is held after that."""
    line, pipe = [sys.executable, "-c", HOLD], subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        second = subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True)
        with second:
            eventually(lambda: "running already" in (told.append(capfd.readouterr().err) or "".join(told)))
            first.send_signal(signal.SIGKILL)
            assert second.stdout is not None
            assert second.stdout.readline() == "held\n"
            second.kill()
    with open_journal(COMMAND) as journal:
        assert len(journal.parcels) == 2


told: list[str] = []


def test_parcels_are_bounded_and_keep_the_order(tmp_path: Path) -> None:
    images = make_images(tmp_path, [f"{number:03}.png" for number in range(2 * MAX_IMAGES + 1)])
    with open_journal(COMMAND) as journal:
        sent = begin(journal, images)[1]
    assert [number for one in sent for number in one.wanted.values()] == list(range(len(images)))
    assert [len(one.wanted) for one in sent] == [MAX_IMAGES, MAX_IMAGES, 1]


def test_names_are_the_same_in_another_run(tmp_path: Path) -> None:
    """Inputs of one name; one written, one not, strange files between, and drafts that `kill -9` left."""
    images = make_images(tmp_path, ["x/a.png", "y/a.png", "z/a.png"])
    out = tmp_path / "out"
    with open_journal(COMMAND) as journal:
        first = Folder(out, "txt", images, overwrite=False, journal=journal)
        first.take(2, images[2], b"third")
        assert [first.has(number) for number in range(3)] == [False, False, True]
    (out / ".a.txt.part.12345").write_text("half")
    (out / "a-2.txt").write_text("somebody's")
    with open_journal(COMMAND) as journal:
        again = Folder(out, "txt", images, overwrite=False, journal=journal)
        assert [again.has(number) for number in range(3)] == [False, False, True]
        for number, text in enumerate([b"first", b"second"]):
            again.take(number, images[number], text)
    assert {path.name: path.read_text() for path in out.iterdir()} == {
        "a.txt": "first",
        "a-2.txt": "somebody's",
        "a-3.txt": "third",
        "a-4.txt": "second",
    }


@pytest.mark.parametrize("refused", ["access", "stat"])
def test_a_folder_that_can_not_be_written_to_is_told_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """Or that can't even be looked into."""
    images, folder = make_images(tmp_path, ["in/a.png"]), tmp_path / "out"
    folder.mkdir()
    look = os.stat

    def refuse(path: str, **options: bool) -> os.stat_result:
        if Path(os.fspath(path)).parent == folder:
            raise PermissionError(13, "Permission denied", path)
        return look(path, **options)

    monkeypatch.setattr(os, refused, refuse if refused == "stat" else lambda *_: False)
    with pytest.raises(SetupError, match="Permission denied"):
        Folder(folder, "txt", images, overwrite=False)


def test_what_was_written_is_kept_under_overwrite_and_made_again_where_it_is_gone(tmp_path: Path) -> None:
    """A file whose image changed is replaced."""
    images = make_images(tmp_path, ["a.png", "b.png"])
    out = tmp_path / "out"
    with open_journal(COMMAND) as journal:
        first = Folder(out, "txt", images, overwrite=True, journal=journal)
        for number in range(2):
            first.take(number, images[number], b"old")
    (out / "b.txt").unlink()
    with open_journal(COMMAND) as journal:
        again = Folder(out, "txt", images, overwrite=True, journal=journal)
        assert [again.has(number) for number in range(2)] == [True, False]
        again.take(1, images[1], b"again")
    (tmp_path / "a.png").write_text("another picture")
    with open_journal(COMMAND) as journal:
        changed = Folder(out, "txt", images, overwrite=True, journal=journal)
        assert [changed.has(number) for number in range(2)] == [False, True]
        changed.take(0, images[0], b"new")
    assert {path.name: path.read_text() for path in out.iterdir()} == {"a.txt": "new", "b.txt": "again"}


def test_commands_that_write_into_one_folder_lose_nothing_to_each_other(tmp_path: Path) -> None:
    """Two that chose the same name before either wrote: the slower one takes another, and knows it again."""
    (first,), (second,) = make_images(tmp_path, ["x/a.png"]), make_images(tmp_path, ["y/a.png"])
    out = tmp_path / "out"
    with open_journal({"names": ["x/a.png"]}) as one, open_journal({"names": ["y/a.png"]}) as other:
        folders = [
            Folder(out, "txt", [image], overwrite=False, journal=journal)
            for image, journal in ((first, one), (second, other))
        ]
        folders[0].take(0, first, b"first")
        folders[1].take(0, second, b"second")
        assert {path.name: path.read_text() for path in out.iterdir()} == {"a.txt": "first", "a-2.txt": "second"}
        assert (out / "a-2.txt").stat().st_nlink == 1
        assert Folder(out, "txt", [second], overwrite=False, journal=other).has(0)


@pytest.mark.parametrize(
    ("address", "stem"),
    [
        ("https://h.example/a/b%20c.png?x=1", "b c"),
        ("https://h.example/", "h.example"),
        ("https://h.example/a/%2e%2e%2fetc%2fpasswd", "passwd"),
        ("https://h.example/..", "h.example"),
        ("https://h.example/a%0Ab.png", "a_b"),
        ("https://[::1/a.png", "image"),
    ],
)
def test_addresses_make_names_of_files(address: str, stem: str) -> None:
    assert Input(address).stem == stem


def test_what_is_told_of_a_dropped_parcel_is_no_fault(tmp_path: Path) -> None:
    """Of its two jobs one may be gone and the other have an image that failed."""
    images = make_images(tmp_path, ["a.png"])
    with open_journal(COMMAND) as journal:
        (sent,) = begin(journal, images)[1]
        journal.drop(sent.parcel)
        journal.fail(sent.parcel, 0)
        journal.accept(sent.parcel, {0: ("job_1", 0)})
        assert journal.parcels == {}
