"""What runs inside a stage subprocess: its bounds, and one image from bytes to a compressed result."""

import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from arachne.actors.confinement import confine
from arachne.bodies import Reading, compress
from arachne.errors import ArachneError, ImageError, OutOfMemory, ReadFailed
from arachne.pipeline import ReadRequest, is_read, undescribed
from arachne.schemas.result import Result, StageReport

log = logging.getLogger(__name__)
Read = Callable[[bytes, ReadRequest], Result]

# One thread a subprocess: Tesseract, OpenCV and BLAS each start one a core otherwise, and are slower for it.
THREAD_LIMITS = dict.fromkeys(
    ("OMP_THREAD_LIMIT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
_DESCRIBE, _DEFERRED = "describe", "deferred"


def prepare(parent_pid: int, memory_bytes: int, _read: Read) -> None:
    """Bind this process to its parent and its memory. `_read` comes along so that its modules are loaded by now."""
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(1)
    confine(parent_pid, memory_bytes)


def run(read: Read, path: str, request: ReadRequest) -> Reading:
    """The image in the file at `path`, read.

    Raises:
        ImageError: it can't be read.
    """
    try:
        return _to_reading(read(Path(path).read_bytes(), request))
    except Exception as error:
        told = _translate(error)
        _release_frames(error)
        raise told from None


def _translate(error: Exception) -> ImageError:
    match error:
        case MemoryError():
            return OutOfMemory("This image needs more memory than one may take. Scale it down.")
        case ImageError():
            return error
        case ArachneError():
            return ReadFailed(error.message)
        case _:
            log.error("the reader failed", exc_info=error)
            return ReadFailed(f"The reader failed on this image ({type(error).__name__}).")


def _release_frames(error: BaseException) -> None:
    """Free what the failed frames hold: the pool keeps an error until the next image's result takes its place."""
    chain: BaseException | None = error
    while chain is not None:
        traceback.clear_frames(chain.__traceback__)
        chain = chain.__cause__ or chain.__context__


def _to_reading(result: Result) -> Reading:
    # Nobody asks a model yet: a result that was promised a description is honest about lacking it.
    if any(stage.name == _DESCRIBE and stage.reason == _DEFERRED for stage in result.stages):
        result = undescribed(result, "no model was asked", 0.0)
    return Reading(
        body=compress(result.model_dump_json().encode()),
        model_version=result.model_version,
        degraded=result.degraded,
        pages=len(result.pages) if result.pages else 1,
        cpu_s=_seconds(result.stages, describing=False),
        gpu_s=_seconds(result.stages, describing=True),
        is_read=is_read(result.stages),
    )


def _seconds(stages: list[StageReport], *, describing: bool) -> float:
    return sum(stage.ms for stage in stages if (stage.name == _DESCRIBE) == describing) / 1000
