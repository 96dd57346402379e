"""Readers for stage subprocesses: one that answers at once, and named faults that an image asks for by its bytes."""

import ctypes
import os
import signal
import time
from hashlib import sha256
from pathlib import Path

from arachne.actors.confinement import resident_bytes
from arachne.errors import DecodeFailed
from arachne.pipeline import ReadRequest
from arachne.reading import DESCRIBE, needed_stages
from arachne.schemas.result import ImageInfo, Result, StageReport

kept: list[bytes] = []


def read_or_fail(data: bytes, request: ReadRequest, second: object = None) -> Result:
    """The bytes as text, unless they name a fault; nobody is asked for a second reading."""
    fault = FAULTS.get(data.split(b" ")[0])
    if fault is not None:
        fault()
    return answer(data, request)


def read_to_describe(data: bytes, request: ReadRequest, second: object = None) -> Result:
    """A reading that a model is still to be asked about, where the options want that."""
    result = answer(b"A dialog", request)
    if DESCRIBE not in needed_stages(request.options):
        return result
    lacking = StageReport(name=DESCRIBE, status="skipped", ms=0.0, cached=False, reason="deferred")
    return result.model_copy(update={"stages": [*result.stages, lacking]})


def slow_image(data: bytes, request: ReadRequest) -> Result:
    """The bytes as text, after a while."""
    lingering_image()
    return answer(data, request)


def wordy_image(data: bytes, request: ReadRequest, second: object = None) -> Result:
    """Fifty thousand characters about whatever the image is."""
    return answer(sha256(data).hexdigest().encode() * 800, request)


def mark_and_hang(data: bytes, request: ReadRequest, second: object = None) -> Result:
    """Nothing, ever: it makes the file that the image names, and is in native code from then on."""
    Path(data.decode()).touch()
    hanging_image()
    return answer(data, request)


def process_and_memory(data: bytes, request: ReadRequest, second: object = None) -> Result:
    """Id and resident bytes of this process; it keeps as many bytes more as the image says."""
    kept.append(b"x" * int(data))
    return answer(f"{os.getpid()} {resident_bytes()}".encode(), request)


def crashing_image() -> None:
    """Die as C code dies: by a write to address 0."""
    ctypes.memset(0, 1, 1)


def hanging_image() -> None:
    """Hang where no Python signal handler runs."""
    ctypes.CDLL(None).pause()


def memory_hungry_image() -> None:
    """Ask for more and more memory."""
    hoard = []
    while True:
        hoard.append(bytearray(64 * 1024 * 1024))


def broken_image() -> None:
    """Refuse, as a decoder does."""
    raise DecodeFailed("not one row", stage="decode")


def surprising_image() -> None:
    """Trip over a bug."""
    raise KeyError("surprise")


def lethal_image() -> None:
    """Take the whole worker down, as the kernel does where memory is short."""
    os.kill(os.getppid(), signal.SIGKILL)
    hanging_image()  # until its end, which follows the worker's


def lingering_image() -> None:
    """Take a while."""
    time.sleep(0.2)


FAULTS = {
    b"lethal": lethal_image,
    b"linger": lingering_image,
    b"crash": crashing_image,
    b"hang": hanging_image,
    b"hungry": memory_hungry_image,
    b"broken": broken_image,
    b"surprise": surprising_image,
}


def answer(data: bytes, request: ReadRequest) -> Result:
    """The least a result can be."""
    image = ImageInfo(
        sha256=sha256(data).hexdigest(), format="png", width=1, height=1, frames=1, exif_orientation=None, warnings=[]
    )
    empty = dict.fromkeys(
        ("quality", "geometry", "markdown", "blocks", "tables", "codes", "visual", "vlm", "fields", "pages")
    )
    return Result(
        image=image,
        text=data.decode(),
        languages=list(request.languages),
        confidence=1.0,
        stages=[StageReport(name="read", status="ok", ms=1.0, cached=False, reason=None)],
        degraded=False,
        model_version=request.model_version,
        pipeline_version="test",
        **empty,
    )
