"""What runs inside a stage subprocess: its bounds, and one image from bytes to a result and a question to a model."""

import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from arachne import logs
from arachne.actors.assembly import is_deferred, to_reading
from arachne.actors.confinement import confine
from arachne.bodies import Reading, decompress
from arachne.errors import ArachneError, ImageError, OutOfMemory, ReadFailed
from arachne.pipeline import ReadRequest, prepare_description, undescribed
from arachne.schemas.result import Result
from arachne.stages.describe import DescribeRequest

log = logging.getLogger(__name__)
Read = Callable[[bytes, ReadRequest], Result]

# One thread a subprocess: Tesseract, OpenCV and BLAS each start one a core otherwise, and are slower for it.
THREAD_LIMITS = dict.fromkeys(
    ("OMP_THREAD_LIMIT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Task:
    """What to do with an image: read it, or take the compressed result `base`, and then prepare a question to `model`.

    The question's picture goes into the file at `png_path`, since pipes would carry it slower. The log names `ids`.
    """

    path: str
    png_path: str
    request: ReadRequest
    model: str | None = None
    base: bytes | None = None
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """A reading, and the question that is to be asked about it, without its picture."""

    reading: Reading
    question: DescribeRequest | None = None


def prepare(parent_pid: int, memory_bytes: int, _read: Read, form: logs.LogForm | None) -> None:
    """Bind this process to its parent, its memory and its log.

    `_read` comes along so that its modules are loaded by now.
    """
    logs.follow(form, quotes=False)
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(1)
    confine(parent_pid, memory_bytes)


def run(read: Read, task: Task) -> Done:
    """The image in the file at `path`, read.

    Raises:
        ImageError: it can't be read.
    """
    with logs.bound(**task.ids):
        return _run(read, task)


def _run(read: Read, task: Task) -> Done:
    try:
        data = Path(task.path).read_bytes()
        result = read(data, task.request) if task.base is None else Result.model_validate_json(decompress(task.base))
        return _with_question(result, data, task) if is_deferred(result) else Done(to_reading(result))
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


def _with_question(result: Result, data: bytes, task: Task) -> Done:
    """The reading and what to ask about it; without a question it is honest about what it lacks."""
    if task.model is None:
        return Done(to_reading(undescribed(result, "no model was asked", 0.0)))
    try:
        shown = result.pages[0] if result.pages else result  # of several pages the first is asked about
        question = prepare_description(data, shown.text or "", task.request, task.model)
        Path(task.png_path).write_bytes(question.png)
    except Exception as error:  # what was read is worth more than the description
        log.warning("a question could not be prepared", exc_info=True)
        _release_frames(error)
        told = f"the picture could not be prepared ({type(error).__name__})"
        return Done(to_reading(undescribed(result, told, 0.0)))
    return Done(to_reading(result), replace(question, png=b""))
