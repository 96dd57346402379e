"""Cache files: written as `docs/cache-format.md` says, and never taken unless whole."""

import gzip
import json
import os
import resource
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from arachne.cache import portable
from arachne.cache.entries import Blob, OriginalEntry, Real, ResultEntry
from arachne.cache.portable import reading, writing
from arachne.errors import FileRejected, SetupError

IMAGE = sha256(b"image").hexdigest()
RESULT = ResultEntry(
    scope="acc_1", sha256=IMAGE, model_version="small@1", pipeline_version="p1", options_hash="o1", reading_hash="r1",
    complete=True, has_reading=True, account_id="acc_1", units=1, created_at=datetime(2026, 1, 31, 12, tzinfo=UTC),
    hits=3, result=json.dumps({"image": {"sha256": IMAGE}, "text": "สวัสดี \u0000 \n"}, ensure_ascii=False),
)  # fmt: skip
ORIGINAL = OriginalEntry(
    sha256="x", result_json=Blob(type="blob", base64="AAE="), model_version=None, created_at=1.5, hits=2
)


def write(path: Path, *entries: ResultEntry | OriginalEntry) -> Path:
    return write_all(path, entries)


def write_all(path: Path, entries: Iterable[ResultEntry | OriginalEntry]) -> Path:
    with writing(path) as writer:
        for entry in entries:
            writer.add(entry)
    return path


def read(path: Path) -> list[ResultEntry | OriginalEntry]:
    with reading(path) as file:
        return list(file.entries())


def line(entry: object) -> bytes:
    payload = entry if isinstance(entry, bytes) else json.dumps(entry).encode()
    return b'{"sha256":"' + sha256(payload).hexdigest().encode() + b'","entry":' + payload + b"}\n"


def by_hand(path: Path, *lines: bytes, header: object = None, end: object = None, after: bytes = b"") -> Path:
    """A file put together from the description of the format alone."""
    told = {"format": "arachne-vision-cache", "version": 1, "created_at": "2026-01-31T12:00:00Z", "by": "hand"}
    head = json.dumps(told | (header or {})).encode() + b"\n" + b"".join(lines)
    tail = {"end": {"entries": len(lines), "sha256": sha256(head).hexdigest()} | (end or {})}
    path.write_bytes(head + json.dumps(tail, separators=(",", ":")).encode() + b"\n" + after)
    return path


@pytest.mark.parametrize("name", ["cache.jsonl", "cache.jsonl.gz"])
def test_what_was_written_is_read(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, RESULT, ORIGINAL, RESULT)
    assert read(path) == [RESULT, ORIGINAL, RESULT]
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_file_follows_its_description(tmp_path: Path) -> None:
    """Anybody can read it with a JSON parser and SHA-256, line by line."""
    lines = write(tmp_path / "f", RESULT, ORIGINAL).read_bytes().splitlines(keepends=True)
    header, first, second, end = (json.loads(one) for one in lines)
    assert (header["format"], header["version"]) == ("arachne-vision-cache", 1)
    assert first["entry"]["result"] == RESULT.result
    assert first["entry"]["created_at"] == "2026-01-31T12:00:00Z"
    assert second["entry"] == {
        "kind": "original", "sha256": "x", "result_json": {"type": "blob", "base64": "AAE="}, "model_version": None,
        "created_at": 1.5, "hits": 2,
    }  # fmt: skip
    assert first["sha256"] == sha256(lines[1].partition(b'"entry":')[2][:-2]).hexdigest()
    assert end == {"end": {"entries": 2, "sha256": sha256(b"".join(lines[:3])).hexdigest()}}


def test_file_made_by_hand_is_read(tmp_path: Path) -> None:
    told = json.loads(RESULT.model_dump_json())
    assert read(by_hand(tmp_path / "f", line(told))) == [RESULT]
    assert read(by_hand(tmp_path / "empty")) == []


@pytest.mark.parametrize("name", ["cache.jsonl", "cache.jsonl.gz"])
def test_file_cut_anywhere_is_refused(tmp_path: Path, name: str) -> None:
    """At every single byte."""
    whole = write(tmp_path / name, RESULT, ORIGINAL).read_bytes()
    cut = tmp_path / f"cut-{name}"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(FileRejected):
            read(cut)


def test_file_with_any_byte_changed_is_refused(tmp_path: Path) -> None:
    """Every byte counts, the header's remarks too; every third is tried."""
    whole = bytearray(write(tmp_path / "f", RESULT).read_bytes())
    for at in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(FileRejected):
            read(tmp_path / "damaged")


def test_damage_is_told_by_line(tmp_path: Path) -> None:
    path = write(tmp_path / "f", RESULT, RESULT)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b"acc_1", b"acc_2"), *lines[3:]]))
    with pytest.raises(FileRejected, match=r"line 3: an entry that doesn't fit its digest"):
        read(path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"header": {"format": "other"}}, "no cache file"),
        ({"header": {"version": 2}}, "format version 2"),
        ({"header": {"by": "x" * 5000}}, "no cache file"),
        ({"end": {"entries": 7}}, "end"),
        ({"end": {"sha256": "0" * 64}}, "end"),
        ({"after": b"\n"}, "follows"),
        ({"after": b"x"}, "follows"),
    ],
)
def test_foreign_and_forged_frames_are_refused(tmp_path: Path, change: dict, told: str) -> None:
    with pytest.raises(FileRejected, match=told):
        read(by_hand(tmp_path / "f", line(json.loads(RESULT.model_dump_json())), **change))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"more": 1},
        {"scope": "acc_2"},
        {"scope": "a\x00b", "account_id": "a\x00b"},
        {"sha256": "A" * 64},
        {"sha256": "0" * 64},
        {"units": 0},
        {"units": 2**40},
        {"hits": -1},
        {"created_at": "yesterday"},
        {"created_at": "2026-01-31T12:00:00"},
        {"complete": False, "has_reading": False},
        {"reading_hash": None},
        {"result": "{"},
        {"result": "[]"},
        {"result": "[" * 100_000},
        {"result": '{"image": {"sha256": "' + IMAGE + '"}, "x": NaN}'},
        {"result": '{"image": {"sha256": "' + IMAGE + '"}, "x": "\\ud800"}'},
        {"result": RESULT.result + ', "x": 1'},
    ],
)
def test_entries_that_could_not_answer_are_refused(tmp_path: Path, change: dict) -> None:
    """Their digests are right, but what they say is not."""
    told = json.loads(RESULT.model_dump_json()) | change
    with pytest.raises(FileRejected, match="line 2"):
        read(by_hand(tmp_path / "f", line(told)))


@pytest.mark.parametrize("value", [{"type": "blob", "base64": "?"}, 2**63, True, [], {"real": "nan"}])
def test_original_values_sqlite_never_had_are_refused(tmp_path: Path, value: object) -> None:
    told = json.loads(ORIGINAL.model_dump_json()) | {"hits": value}
    with pytest.raises(FileRejected, match="line 2"):
        read(by_hand(tmp_path / "f", line(told)))


def test_every_kind_of_original_value_comes_back(tmp_path: Path) -> None:
    values = [
        0,
        -(2**63),
        2**63 - 1,
        1e300,
        -0.0,
        "",
        "\x00",
        None,
        Real(real="-inf"),
        Blob(type="text", base64="/w=="),
    ]
    entries = [ORIGINAL.model_copy(update={"created_at": value}) for value in values]
    found = [entry.created_at for entry in read(write(tmp_path / "f.gz", *entries))]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in values]


def test_lines_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is read or written beyond the bound, whatever it unpacks to."""
    monkeypatch.setattr(portable, "MAX_LINE_BYTES", 10_000)
    with pytest.raises(FileRejected, match="more than 10000"), writing(tmp_path / "f") as writer:
        writer.add(RESULT.model_copy(update={"result": "x" * 10_000}))
    for content in (line({"x": "y" * 20_000}), b"0" * 20_000_000):
        bomb = by_hand(tmp_path / "plain", content)
        packed = tmp_path / "bomb.gz"
        packed.write_bytes(gzip.compress(bomb.read_bytes()))
        for path in (bomb, packed):
            with pytest.raises(FileRejected, match="line 2: a line of more than 10000 bytes"):
                read(path)
    (tmp_path / "zeros.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(FileRejected, match="no cache file"):
        read(tmp_path / "zeros.gz")


def test_second_stream_after_the_first_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "f.gz", RESULT)
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(FileRejected, match="follows"):
        read(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A missing one, a folder, and a pipe nobody writes to, which would hang."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "pipe"):
        with pytest.raises(FileRejected, match="no file"), reading(path):
            pass


def test_name_is_taken_by_a_whole_file_only(tmp_path: Path) -> None:
    """So that a process killed under way leaves nothing of that name, and what lies there instead is refused."""
    path = tmp_path / "f"
    with writing(path) as writer:
        for _ in range(1000):
            writer.add(RESULT)
        (draft,) = tmp_path.iterdir()
        left_behind = shutil.copy(draft, tmp_path / "killed")
        assert not path.exists()
    assert len(read(path)) == 1000
    with pytest.raises(FileRejected, match="cut short"):
        read(left_behind)


@pytest.mark.parametrize("name", ["cache.jsonl", "cache.jsonl.gz"])
def test_interrupted_export_leaves_what_was_there(tmp_path: Path, name: str) -> None:
    """The former file stays, and nothing half-written lies beside it."""
    path = write(tmp_path / name, RESULT)

    def interrupted() -> Iterator[ResultEntry]:
        yield RESULT
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_all(path, interrupted())
    assert read(path) == [RESULT]
    assert list(tmp_path.iterdir()) == [path]


def test_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    """A limit on file sizes stands in for the disk; what was written goes again."""
    path = write(tmp_path / "f", RESULT)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(SetupError, match="can't be written: File too large"):
            write(path, *[RESULT] * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read(path) == [RESULT]
    assert list(tmp_path.iterdir()) == [path]


def test_places_no_file_can_be_are_told(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "f", Path("/dev/null")):
        with pytest.raises(SetupError), writing(path):
            pass
