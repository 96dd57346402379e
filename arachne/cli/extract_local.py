"""Images read by the pipeline in subprocesses of this command, with no server."""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from arachne import languages
from arachne.actors.pool import PoolLostError, StagePool, judge
from arachne.actors.render_pool import RenderPool
from arachne.actors.second_reader import second_reader
from arachne.actors.stage_process import THREAD_LIMITS, Done, Read
from arachne.bodies import decompress
from arachne.cli.extract_inputs import Input
from arachne.cli.extract_output import Sink
from arachne.cli.extract_progress import display
from arachne.errors import ArachneError, Unavailable
from arachne.formats import RenderRequest
from arachne.pipeline import ReadRequest, pipeline_version, read_image
from arachne.reading import settle_options
from arachne.schemas.options import Options
from arachne.schemas.queries import Format
from arachne.settings import Settings
from arachne.versions import Published

_LOOKAHEAD = 2  # files loaded and waiting, so that no subprocess waits for the disk
_TRIES = 3  # of a file whose pool broke before its turn


def extract(images: Sequence[Input], options: Options, settings: Settings, wanted: Format, sink: Sink) -> int:
    """The number of images that could not be read; each of the others is in `sink`.

    Raises:
        OptionsConflict, InvalidOptions, LanguageMissing: the options can't be carried out here.
        SetupError: something needed is missing, or the sink can't be written.
    """
    os.environ.update(THREAD_LIMITS)
    with tempfile.TemporaryDirectory(prefix="arachne-") as folder, display(len(images), "reading") as shown:
        request = _request(options, settings, Path(folder))
        workers = min(settings.cpu_workers, max(1, len(images)))
        run = _Run(images, request, settings.model_copy(update={"cpu_workers": workers}), wanted)
        failed = 0
        try:
            for number, made in run.documents():
                if isinstance(made, ArachneError):
                    failed += 1
                    shown.complain(images[number], made)
                    sink.miss(number, images[number], made)
                else:
                    sink.take(number, images[number], made)
                shown.advance("reading")
        finally:
            run.stop()
    return failed


def _request(options: Options, settings: Settings, folder: Path) -> ReadRequest:
    """What the subprocesses are asked; no model is asked for a description, whatever the settings say."""
    alone = settings.model_copy(update={"vlm_url": None})
    tessdata_dir = languages.merge(settings.tessdata_dir, folder)
    available = languages.installed(settings.tessdata_dir)
    settled = settle_options(options, alone, Published(pipeline_version(tessdata_dir), available))
    return ReadRequest(
        options=settled,
        languages=languages.resolve(options.languages, settings.languages, available),
        tessdata_dir=tessdata_dir,
        max_pixels=settings.max_image_pixels,
        max_frames=settings.max_frames,
        soft_time_limit_s=settings.soft_time_limit_s,
    )


class _Run:
    """All images through the pool of readers, and where a document is wanted through the pool that makes those."""

    def __init__(self, images: Sequence[Input], request: ReadRequest, settings: Settings, wanted: Format) -> None:
        self._images = images
        self._request = request
        self._settings = settings
        self._format = wanted
        self._slots = settings.cpu_workers + _LOOKAHEAD
        self._ended: SimpleQueue[tuple[int, Future[Done] | Future[bytes]]] = SimpleQueue()
        self._data: dict[int, bytes] = {}  # of the images in hand
        self._tries: dict[int, int] = {}
        self._reading: set[int] = set()
        self._second = ExitStack()
        read: Read = read_image
        if request.options.detail_level != "fast":
            read = partial(read_image, second=self._second.enter_context(second_reader()))
        self._pool = StagePool(read, settings)
        self._renderer = RenderPool(settings, max_pending=self._slots)

    def documents(self) -> Iterator[tuple[int, bytes | ArachneError]]:
        """Each image's number with its document, or with what went wrong, as they are done."""
        coming = iter(range(len(self._images)))
        while True:
            while len(self._data) < self._slots and (number := next(coming, None)) is not None:
                try:
                    self._data[number] = self._images[number].load(self._settings.max_image_bytes)
                except ArachneError as error:
                    yield number, error
                else:
                    self._read(number)
            if not self._data:
                return
            number, future = self._ended.get()
            made = self._next_step(number, future)
            if made is not None:
                self._data.pop(number)
                yield number, made

    def stop(self) -> None:
        """End all subprocesses."""
        self._pool.stop()
        self._second.close()
        self._renderer.stop()

    def _read(self, number: int) -> None:
        self._reading.add(number)
        self._pool.schedule(self._data[number], self._request, lambda ended, _: self._ended.put((number, ended)))

    def _next_step(self, number: int, future: "Future[Done] | Future[bytes]") -> bytes | ArachneError | None:
        """The document, or what went wrong; None where the image is on its way again."""
        if number not in self._reading:
            error = future.exception()
            return error if isinstance(error, ArachneError) else bytes(future.result())  # type: ignore[arg-type]
        self._reading.discard(number)
        try:
            attempt = judge(future)  # type: ignore[arg-type]
        except PoolLostError:
            return self._try_again(number)
        if attempt.done is None:
            return attempt.error
        return self._made_of(number, decompress(attempt.done.reading.body))

    def _try_again(self, number: int) -> ArachneError | None:
        self._tries[number] = self._tries.get(number, 0) + 1
        if self._tries[number] >= _TRIES:
            return Unavailable("The subprocesses that read images broke again and again. Run `arachne doctor`.")
        self._read(number)
        return None

    def _made_of(self, number: int, result_json: bytes) -> bytes | None:
        match self._format:
            case "json":
                return result_json
            case "md" | "txt":
                result = json.loads(result_json)
                return str(result["markdown" if self._format == "md" else "text"] or "").encode("utf-8", "replace")
            case _:
                name, limits = self._images[number].path.name, self._settings
                asked = RenderRequest(self._format, None, name, limits.max_image_pixels, limits.max_frames)
                made = self._renderer.schedule(result_json, self._data[number], asked)
                made.add_done_callback(lambda ended: self._ended.put((number, ended)))
                return None
