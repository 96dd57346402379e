"""Whether the API is ready is asked again and again, and no answer does harm."""

import io
import socket
from threading import Thread

import pytest

from arachne.cli.readiness import Readiness
from arachne.embedded.journal import Echo


@pytest.mark.parametrize("answer", [b"junk\r\n\r\n", b"HTTP/1.1 503 Away\r\nContent-Length: 99\r\n\r\nhalf", b""])
def test_half_an_answer_of_the_api_ends_nobody(answer: bytes) -> None:
    """An API that dies while it answers the question whether it is ready is not ready, and that is all."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reply() -> None:
            link, _ = listener.accept()
            with link:
                link.recv(1000)
                link.sendall(answer)

        server = Thread(target=reply)
        server.start()
        readiness = Readiness(f"http://127.0.0.1:{listener.getsockname()[1]}", Echo(io.StringIO()))
        readiness.probe()
        server.join()
    assert not readiness._ready
