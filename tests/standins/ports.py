"""Free ports of loopback."""

import socket
from contextlib import ExitStack


def free_ports(number: int) -> list[int]:
    """So many ports that nobody listens on; others may take one before it is used."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def free_port() -> int:
    """One such port."""
    return free_ports(1)[0]
