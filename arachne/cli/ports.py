"""The port the API will listen on, checked before anything is started."""

import errno
import socket

from arachne.errors import SetupError


def choose_port(host: str, port: int) -> int:
    """`port` if it can be listened on at `host`, or a free one for 0.

    Raises:
        SetupError: the port is taken or not allowed, or the host is no address of this machine.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
            return int(probe.getsockname()[1])
    except socket.gaierror:
        raise SetupError(f"{host} is no address of this machine. Choose another ARACHNE_HOST.") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SetupError(f"Port {port} is in use at {host}. Choose another with --port, or 0 for any.") from None
        raise SetupError(f"Port {port} can't be used at {host}: {error.strerror}.") from None


def local_url(host: str, port: int) -> str:
    """The URL by which this machine reaches a server that listens on `host`."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1", "localhost": "127.0.0.1"}  # noqa: S104
    name = reachable.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"
