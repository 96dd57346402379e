"""`multipart/form-data`, read as it streams: files are hashed on the way to one spool, and everything is bounded."""

import codecs
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio.to_thread
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from arachne.errors import MalformedRequest, RequestTooLarge, TooManyImages
from arachne.http.bodies import BATCH_BYTES, batches
from arachne.spool import Spool

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_TEXT_BYTES = 256 * 1024  # of all text parts together: they are in memory
MAX_FIELDS = 20
_MAX_HEADER_BYTES = 16 * 1024


@dataclass
class FilePart:
    """A file of the form, in its spool from `offset` on. Bytes over the limit are hashed and counted but not kept."""

    part_name: str
    filename: str | None
    offset: int
    hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    size_bytes: int = 0
    kept_bytes: int = 0


@dataclass
class Form:
    """The parts of a form in their order; names of text parts are unique."""

    spool: Spool
    files: list[FilePart] = field(default_factory=list)
    texts: dict[str, bytearray] = field(default_factory=dict)


async def read_form(request: Request, spool: Spool, *, max_files: int, max_file_bytes: int) -> Form:
    """The form, its files in `spool`.

    Raises:
        MalformedRequest: it can't be parsed.
        TooManyImages: over `max_files` files.
        RequestTooLarge: the text parts are too large.
        Unavailable: the files can't be kept.
    """
    _, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary")
    if not boundary or len(boundary) > 70:
        raise MalformedRequest("The Content-Type of a form needs a boundary of 1 to 70 characters.")
    reader = _Reader(boundary, spool, max_files, max_file_bytes)
    try:
        async for batch in batches(request):
            if len(batch) < BATCH_BYTES:
                reader.feed(batch)
            else:
                await anyio.to_thread.run_sync(reader.feed, batch)
        reader.finish()
    except FormParserError:
        raise MalformedRequest("The form can't be parsed. Let an HTTP library make it.") from None
    return reader.form


class _Reader:
    """Collects what the parser finds."""

    def __init__(self, boundary: bytes, spool: Spool, max_files: int, max_file_bytes: int) -> None:
        self.form = Form(spool)
        self._max_files, self._max_file_bytes = max_files, max_file_bytes
        self._header_name, self._header_value = bytearray(), bytearray()
        self._disposition = b""
        self._text_bytes = 0
        self._part: FilePart | bytearray | None = None
        self._ended = False
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._begin,
            "on_header_field": self._on_header_field,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers,
            "on_part_data": self._on_data,
            "on_part_end": self._on_part_end,
            "on_end": self._on_end,
        }
        self._parser = MultipartParser(boundary, callbacks)

    def feed(self, data: bytes) -> None:
        """Take more of the body."""
        if data:
            self._parser.write(data)

    def finish(self) -> None:
        """The body is over.

        Raises:
            MalformedRequest: but the form is not.
        """
        self._parser.finalize()
        if not self._ended:
            raise MalformedRequest("The form ends before its last boundary.")

    def _begin(self) -> None:
        self._disposition = b""

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]
        self._check_header()

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]
        self._check_header()

    def _check_header(self) -> None:
        if len(self._header_name) + len(self._header_value) > _MAX_HEADER_BYTES:
            raise MalformedRequest("A part's header is too long.")

    def _on_header_end(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()

    def _on_headers(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = _text(options.get(b"name", b""))
        if not name:
            raise MalformedRequest("A part of the form has no name.")
        if b"filename" in options:
            self._part = self._new_file(name, _text(options[b"filename"]))
            return
        if name in self.form.texts or len(self.form.texts) >= MAX_FIELDS:
            raise MalformedRequest(f"The form has the part {name!r} twice, or too many parts.")
        self._part = self.form.texts[name] = bytearray()

    def _new_file(self, name: str, filename: str) -> FilePart:
        if len(self.form.files) >= self._max_files:
            raise TooManyImages(f"A job has at most {self._max_files:,} images. Send several jobs.")
        part = FilePart(name, filename or None, self.form.spool.size_bytes)
        self.form.files.append(part)
        return part

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        part = self._part
        if isinstance(part, FilePart):
            view = memoryview(data)[start:end]
            part.hash.update(view)
            kept = view[: max(0, self._max_file_bytes - part.size_bytes)]
            if kept:
                self.form.spool.add(kept)
            part.kept_bytes += len(kept)
            part.size_bytes += len(view)
        elif part is not None:
            part += data[start:end]
            self._text_bytes += end - start
            if self._text_bytes > MAX_TEXT_BYTES:
                raise RequestTooLarge(f"The text parts of the form are over {MAX_TEXT_BYTES:,} bytes.")

    def _on_part_end(self) -> None:
        self._part = None

    def _on_end(self) -> None:
        self._ended = True


def _text(raw: bytes) -> str:
    """A name as browsers send it: UTF-8, or bytes as they are where it is none."""
    try:
        return codecs.decode(raw, "utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")
