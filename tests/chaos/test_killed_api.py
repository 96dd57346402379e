"""The API killed in mid-upload, and between commit and answer: nothing half-done, nothing done twice."""

import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.chaos.api_process import Api, api_process
from tests.chaos.test_killed_worker import assert_finished_once
from tests.http.pictures import png

pytestmark = pytest.mark.chaos
ONE = "/api/extract/image"
KEY = {"Idempotency-Key": "once"}


def begin_upload(api: Api) -> socket.socket:
    """The connection of an upload of which the last bytes are missing; more has come than is kept in memory."""
    body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n' + png() + bytes(600_000)
    head = (
        f"POST {ONE} HTTP/1.1\r\nHost: a\r\nAuthorization: {api.client.headers['authorization']}\r\n"
        "Idempotency-Key: once\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        f"Content-Length: {2 * len(body)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", api.port))
    connection.sendall(head.encode() + body)
    return connection


def test_killed_api_leaves_nothing_half_done(service, worker_process, eventually, tmp_path) -> None:
    """Killed while an image comes in, it has accepted nothing; killed before it could answer, it has accepted once."""
    files, temporary = {"file": ("a.png", png())}, tmp_path / "temporary"
    temporary.mkdir()
    with api_process(service, TMPDIR=str(temporary)) as api, begin_upload(api):
        eventually(lambda: service.scalar("SELECT count(*) FROM idempotency_key") == 1)
        api.kill()
    assert [service.scalar(f"SELECT count(*) FROM {table}") for table in ("job", "image", "blob")] == [0, 0, 0]
    assert list(temporary.iterdir()) == []
    with api_process(service) as api, ThreadPoolExecutor(1) as threads:
        service.scalar("UPDATE idempotency_key SET lease_until = now() + interval '1 hour'")
        assert api.client.post(ONE, files=files, headers=KEY).json()["code"] == "idempotency_key_in_use"
        service.scalar("UPDATE idempotency_key SET lease_until = now() - interval '1 s'")
        waiting = threads.submit(api.client.post, ONE, files=files, headers=KEY | {"Prefer": "wait=60"})
        eventually(lambda: service.scalar("SELECT count(*) FROM job") == 1)
        api.kill()
        with pytest.raises(httpx.TransportError):
            waiting.result(60)
    with api_process(service) as api:
        again = api.client.post(ONE, files=files, headers=KEY)
        assert (again.status_code, again.headers["idempotent-replayed"]) == (202, "true")
        with worker_process("wordy_image"):
            assert_finished_once(service, again.json()["job_id"], 1)
        assert service.scalar("SELECT count(*) FROM job") == 1
        assert api.client.post(ONE, files=files, headers=KEY).json()["status"] == "completed"
