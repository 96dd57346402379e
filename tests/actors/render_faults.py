"""Renderers that misbehave, run inside the real pool's subprocesses."""

import os
import resource
import signal

from arachne.errors import DecodeFailed
from arachne.formats import RenderRequest


def echo(result_json: bytes, original: bytes, request: RenderRequest) -> bytes:
    """The input, with the bound on this process's memory."""
    bound = resource.getrlimit(resource.RLIMIT_AS)[0]
    return b"|".join([result_json, original, request.format.encode(), b"%d" % bound])


def faulty(result_json: bytes, original: bytes, request: RenderRequest) -> bytes:
    """What the result's bytes ask for."""
    match result_json:
        case b"crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case b"hang":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGALRM})
            while True:
                signal.pause()
        case b"hungry":
            return bytes(8 * 1024**3)
        case b"refused":
            raise DecodeFailed("Damaged.", stage="decode")
        case b"wrong":
            raise ZeroDivisionError
    return b"done"
