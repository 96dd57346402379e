"""Bodies cost little while they come: one spool a request, bounded in number and time, and never a 500 for the disk."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.types import Message

from arachne.errors import MalformedRequest, RequestTooLarge, Unavailable
from arachne.http import admission, bodies
from arachne.http.multipart import read_form
from arachne.http.parts import STORING
from arachne.http.uploads import Uploads
from arachne.spool import Spool, SpoolBudget
from arachne.storage import Storage
from tests.http.conftest import Service, Start
from tests.http.pictures import png
from tests.http.sending import MANY, ONE, send, text

LARGE = png() + os.urandom(300_000)  # a picture with more after it than a spool keeps in memory


def request_of(chunks: list[bytes], content_type: str) -> Request:
    messages: list[Message] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Message:
        return messages.pop(0)

    headers = [(b"content-type", content_type.encode())]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_all_images_of_a_form_share_one_file() -> None:
    images = [bytes([number]) * 20_000 for number in range(60)]
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    body = [piece for image in images for piece in (head, image, b"\r\n")]
    before, spool = count_open_files(), Spool()
    form = await read_form(
        request_of([*body, b"--x--\r\n"], "multipart/form-data; boundary=x"), spool, max_files=60, max_file_bytes=15_000
    )
    assert count_open_files() <= before + 1
    assert [part.size_bytes for part in form.files] == [20_000] * 60
    kept = [spool.read(part.offset, part.kept_bytes) for part in form.files]
    assert kept == [image[:15_000] for image in images]
    spool.close()


async def test_no_room_for_temporary_files_is_503(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(service.settings.data_dir / "missing"))
    large_json = {"image": {"base64": text(LARGE * 5)}}
    for request in ({"files": {"file": ("a.png", LARGE)}}, {"json": large_json}):
        refused = await send(service, ONE, **request)
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert int(refused.headers["retry-after"]) >= 1
    assert (await send(service, ONE, files={"file": ("a.png", png())})).status_code == 202


async def test_large_images_of_both_forms_are_taken(service: Service) -> None:
    form = await send(service, MANY, files=[("files", ("a.png", LARGE)), ("files", ("b.png", LARGE + b"b"))])
    inline = await send(service, MANY, json={"images": [{"base64": text(LARGE)}, {"base64": text(LARGE + b"b")}]})
    hashes = [[image["sha256"] for image in answer.json()["images"]] for answer in (form, inline)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) == 2


def test_uploads_are_bounded_and_one_account_has_half() -> None:
    uploads = Uploads(4)
    with uploads.place("a"), uploads.place("a"):
        with pytest.raises(Unavailable), uploads.place("a"):
            pass
        with uploads.place("b"), uploads.place("c"), pytest.raises(Unavailable), uploads.place("d"):
            pass
        with uploads.place("d"):
            pass
    with uploads.place("a"):
        pass


@pytest.mark.parametrize(("idle_s", "total_s"), [(0.05, 60.0), (60.0, 0.05)])
async def test_a_body_that_does_not_come_is_refused(idle_s: float, total_s: float) -> None:
    async def receive() -> Message:
        if idle_s < total_s:
            await asyncio.Event().wait()
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x", "more_body": True}

    slow = bodies.bound(receive, 1000, idle_s=idle_s, total_s=total_s)

    async def read() -> None:
        while True:
            await slow()

    with pytest.raises(MalformedRequest, match="slowly"):
        await asyncio.wait_for(read(), 10)


async def test_a_large_json_value_is_decoded_behind_the_gate() -> None:
    gate = asyncio.Semaphore(1)
    body = b'"' + b"x" * 2_000_000 + b'"'
    locked = await bodies.read_json(request_of([body], "application/json"), lambda _: gate.locked(), gate)
    assert locked


@pytest.fixture
async def stuck(start: Start, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    """A service whose store takes for ever."""

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    async with start() as running:
        await running.account()
        monkeypatch.setattr(Storage, "write_async", hang)
        yield running


async def test_a_hanging_store_stops_nobody_from_being_looked_at(stuck: Service) -> None:
    waiting = [
        asyncio.create_task(send(stuck, ONE, files={"file": ("a.png", png((number, 0, 0)))})) for number in range(6)
    ]
    while not stuck.app.starlette.state.parts.storing.locked():  # noqa: ASYNC110  # nothing tells of it
        await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        refused = await send(stuck, ONE, files={"file": ("b.png", b"no image")})
    assert refused.status_code == 415
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def test_a_spool_that_was_read_goes_on_at_its_end() -> None:
    spool = Spool(memory_bytes=4)
    spool.add(b"abc")
    assert spool.read(1, 1) == b"b"
    spool.add(b"defg")
    assert (spool.read(0, 99), spool.size_bytes) == (b"abcdefg", 7)
    spool.close()


async def test_text_parts_are_bounded_together() -> None:
    head = b'--x\r\nContent-Disposition: form-data; name="%d"\r\n\r\n'
    body = [piece for number in range(4) for piece in (head % number, b"x" * 100_000, b"\r\n")]
    form = request_of([*body, b"--x--\r\n"], "multipart/form-data; boundary=x")
    with pytest.raises(RequestTooLarge), closing(Spool()) as spool:
        await read_form(form, spool, max_files=1, max_file_bytes=1)


async def test_a_store_that_hangs_keeps_nobody_waiting_for_ever(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever doesn't get a turn at it in time is told so, and has left nothing behind."""
    monkeypatch.setattr(admission, "STORE_WAIT_S", 0.05)
    parts = service.app.starlette.state.parts
    for _ in range(STORING):
        await parts.storing.acquire()
    late = await send(service, ONE, files={"file": ("a.png", png())}, headers={"Idempotency-Key": "late"})
    assert (late.status_code, late.json()["code"], late.headers["retry-after"]) == (503, "unavailable", "5")
    assert await service.count("job") == await service.count("idempotency_key") == 0
    parts.storing.release()
    assert (await send(service, ONE, files={"file": ("a.png", png())})).status_code == 202


async def test_temporary_bytes_are_bounded_and_free_again(start: Start) -> None:
    """Over the bound uploads of either form are 503; what was refused or stored counts no more."""
    async with start(max_temporary_bytes=3 * len(LARGE)) as service:
        await service.account()
        budget = service.app.starlette.state.parts.spools
        for request in (
            {"files": [("files", (f"{n}.png", LARGE + bytes([n]))) for n in range(4)]},
            {"json": {"images": [{"base64": text(LARGE)}, {"base64": text(LARGE)}]}},
        ):
            refused = await send(service, MANY, **request)
            assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
            assert int(refused.headers["retry-after"]) >= 1
            assert budget.held_bytes == 0
        for number in range(4):
            assert (await send(service, ONE, files={"file": ("a.png", LARGE + bytes([number]))})).status_code == 202
        assert budget.held_bytes == 0
        assert await service.count("job") == 4


def test_one_account_has_half_of_the_temporary_bytes() -> None:
    """The other half is there for others, however much one holds."""
    budget = SpoolBudget(1000)
    with (
        closing(Spool(budget=budget, account_id="a")) as first,
        closing(Spool(budget=budget, account_id="b")) as second,
    ):
        first.add(b"x" * 500)
        with pytest.raises(Unavailable):
            first.add(b"x")
        second.add(b"x" * 500)
        with pytest.raises(Unavailable), closing(Spool(budget=budget, account_id="c")) as third:
            third.add(b"x")
    assert budget.held_bytes == 0


def test_temporary_files_have_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So nothing is left of a process that is killed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(Spool(memory_bytes=4)) as spool:
        spool.add(b"more than that")
        assert Path(f"/proc/self/fd/{spool._file.fileno()}").readlink().is_relative_to(tmp_path)
        assert list(tmp_path.iterdir()) == []
