"""What a command has sent and written, noted beforehand, so that the same command goes on where it was ended.

A file of JSON lines a command, under XDG_STATE_HOME, held by one process at a time. It forgets after the time for which
services remember idempotency keys. A last line that was cut off, as by `kill -9`, says nothing.
"""

import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from arachne.cli.output import say

KEPT_S = 86_400.0
_KEY_S = KEPT_S - 3600  # a submission may take long to get through
Identity = tuple[str, str]


@dataclass
class Parcel:
    """Images that are sent together under `key`; `places` says which image of which job each became, once accepted."""

    key: str
    images: list[Identity]
    planned_at: float
    places: dict[int, tuple[str, int]] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    is_new: bool = False

    @property
    def is_sent(self) -> bool:
        """Whether it is known of each image what it became."""
        return len(self.places.keys() | self.failed) == len(self.images)

    @property
    def can_be_sent(self) -> bool:
        """Whether services still know its key, should they have seen it."""
        return time.time() - self.planned_at < _KEY_S

    @property
    def jobs(self) -> dict[str, dict[int, int]]:
        """Each job's images: its own index to the place here."""
        found: dict[str, dict[int, int]] = {}
        for place, (job_id, index) in self.places.items():
            found.setdefault(job_id, {})[index] = place
        return found


class Journal:
    """The notes of one command; without a file they last as long as this process."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file
        self.parcels: dict[str, Parcel] = {}
        self.names: dict[tuple[str, Identity], str] = {}
        self.written: set[tuple[str, Identity]] = set()
        if file is not None:
            file.seek(0)
            *lines, torn = file.read().split(b"\n")
            file.truncate(file.tell() - len(torn))
            for line in lines:
                with suppress(ValueError, KeyError, TypeError):
                    self._take(json.loads(line))

    @property
    def is_kept(self) -> bool:
        """Whether the same command will find these notes."""
        return self._file is not None

    def plan(self, images: Sequence[Identity]) -> Parcel:
        """A new parcel, noted before it is sent: should that be cut off, it is sent again under the same key."""
        key = f"extract-{secrets.token_hex(16)}"
        self._note({"plan": key, "at": time.time(), "images": list(images)})
        self.parcels[key].is_new = True
        return self.parcels[key]

    def accept(self, parcel: Parcel, places: Mapping[int, tuple[str, int]]) -> None:
        """These images of it became these images of jobs."""
        self._note({"accepted": parcel.key, "places": [[place, *at] for place, at in places.items()]})

    def fail(self, parcel: Parcel, place: int) -> None:
        """This image failed: another run sends it anew."""
        self._note({"failed": parcel.key, "place": place})

    def drop(self, parcel: Parcel) -> None:
        """Its jobs are gone, or what it holds is no longer what it was."""
        self._note({"dropped": parcel.key})

    def name(self, folder: str, names: Mapping[Identity, str]) -> None:
        """What the files made of these images are called in `folder`."""
        if names:
            self._note({"folder": folder, "names": [[*image, name] for image, name in names.items()]})

    def write(self, folder: str, image: Identity) -> None:
        """Its file is about to take its name."""
        self._note({"folder": folder, "written": list(image)})

    def forget(self) -> None:
        """Start anew."""
        self.parcels, self.names, self.written = {}, {}, set()
        if self._file is not None:
            self._file.truncate(0)

    def _note(self, record: dict[str, object]) -> None:
        line = json.dumps(record, separators=(",", ":"))
        self._take(json.loads(line))
        if self._file is not None:
            try:
                _append(self._file, line.encode() + b"\n")
            except OSError as error:  # a full disk; what the command was asked for can be done all the same
                self._file = None
                say(f"arachne: No more is noted, and this command can't go on after an end: {error}. Free some space.")

    def _take(self, record: dict[str, object]) -> None:
        match record:
            case {"plan": str(key), "at": float(at), "images": list(images)}:
                self.parcels[key] = Parcel(key, [(source, version) for source, version in images], at)
            case {"accepted": str(key), "places": list(places)} if key in self.parcels:
                self.parcels[key].places |= {place: (job_id, index) for place, job_id, index in places}
            case {"failed": str(key), "place": int(place)} if key in self.parcels:
                self.parcels[key].failed.add(place)
            case {"dropped": str(key)}:
                self.parcels.pop(key, None)
            case {"folder": str(folder), "names": list(names)}:
                self.names |= {(folder, (source, version)): name for source, version, name in names}
            case {"folder": str(folder), "written": [str(source), str(version)]}:
                self.written.add((folder, (source, version)))


@contextmanager
def open_journal(command: Mapping[str, object], *, anew: bool = False) -> Iterator[Journal]:
    """The notes of this command, empty where it was not run within a day, or is to start `anew`.

    Waits for another process that runs the same command.
    """
    name = hashlib.sha256(json.dumps(command, sort_keys=True).encode()).hexdigest()[:32]
    try:
        folder = _folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _tidy(folder)
        file = _hold(folder / f"{name}.jsonl")
    except (OSError, RuntimeError) as error:  # no place to write, or no home
        say(f"arachne: Nothing is noted, and this command can't go on after an end: {error}. Set XDG_STATE_HOME.")
        yield Journal(None)
        return
    with file:
        if anew or time.time() - os.fstat(file.fileno()).st_mtime > KEPT_S:
            file.truncate(0)
        yield Journal(file)


def _append(file: IO[bytes], data: bytes) -> None:
    """All of it is in the file, which is not buffered.

    Raises:
        OSError: some is not.
    """
    while data:
        data = data[file.write(data) :]


def _folder() -> Path:
    given = os.environ.get("XDG_STATE_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".local" / "state") / "arachne" / "extract"


def _hold(path: Path) -> IO[bytes]:
    """The file, open for appending and locked by this process."""
    while True:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "a+b", 0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("arachne: The same command is running already; this one goes on when it has ended.")
            fcntl.flock(file, fcntl.LOCK_EX)
        if _is_at(file, path):
            return file
        file.close()  # another process has tidied it away meanwhile


def _tidy(folder: Path) -> None:
    """Remove notes that have expired and that nobody holds."""
    for path in folder.glob("*.jsonl"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime < 2 * KEPT_S:
                continue
            with path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
