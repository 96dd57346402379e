"""Images in portions that the service takes in one request, and requests made of them."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from arachne.client.sources import Item
from arachne.errors import ArachneError, SourceChanged

# Well below a request's limits, so that little is sent again after a cut, and a slow line is done within minutes.
MAX_IMAGES, MAX_BYTES = 50, 16 * 1024 * 1024
T = TypeVar("T")
_TERMS = ("options", "webhook", "metadata")


@dataclass(frozen=True)
class Chunk:
    """Images that are sent together: all of them files or all of them URLs. `number` tells it from the run's others."""

    number: str
    items: tuple[Item, ...]

    @property
    def by_url(self) -> bool:
        """Whether the service fetches these images."""
        return self.items[0].url is not None

    def split(self) -> tuple["Chunk", "Chunk"]:
        """Its halves."""
        middle = len(self.items) // 2
        return Chunk(f"{self.number}.0", self.items[:middle]), Chunk(f"{self.number}.1", self.items[middle:])

    def make_key(self, run_key: str, terms: Mapping[str, object], digests: Sequence[str]) -> str:
        """The `Idempotency-Key`: the same whenever the same is sent in the same place of the same run."""
        images = [[item.sent_name, item.url or digest] for item, digest in zip(self.items, digests, strict=True)]
        told = json.dumps([run_key, self.number, terms, images], sort_keys=True)
        return f"run-{hashlib.sha256(told.encode('utf-8', 'surrogatepass')).hexdigest()}"

    def make_body(self, terms: Mapping[str, object], opened: ExitStack) -> dict[str, Any]:
        """The request's body, as httpx2 takes it; files are read while it is sent, and closed by `opened`."""
        if self.by_url:
            return {"json": {"images": [{"url": item.url} for item in self.items], **terms}}
        streams = [opened.enter_context(_open(item)) for item in self.items]
        files = [
            ("files", (item.sent_name, stream, "application/octet-stream"))
            for item, stream in zip(self.items, streams, strict=True)
        ]
        return {"files": files, "data": {name: json.dumps(terms[name]) for name in _TERMS if name in terms}}


def plan_chunks(items: Sequence[Item]) -> list[Chunk]:
    """The images in portions, without those that have an error already."""
    usable = [item for item in items if item.error is None]
    here = portions((item for item in usable if item.url is None), lambda item: item.size_bytes)
    elsewhere = portions((item for item in usable if item.url is not None), lambda item: item.size_bytes)
    found = sorted([*here, *elsewhere], key=lambda portion: portion[0].index)
    return [Chunk(str(number), tuple(portion)) for number, portion in enumerate(found)]


def hash_items(items: Sequence[Item]) -> tuple[list[str], dict[int, ArachneError]]:
    """The digest of each image, and by its place in the call why one has none; call it in a thread."""
    digests, faults = [], {}
    for item in items:
        try:
            digests.append(item.hash() if item.url is None else "")
        except ArachneError as error:
            faults[item.index] = error
    return digests, faults


def portions(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """The items in order, so many at a time as go together by number and `size_of`, bytes."""
    portion: list[T] = []
    size_bytes = 0
    for item in items:
        if portion and (len(portion) == MAX_IMAGES or size_bytes + size_of(item) > MAX_BYTES):
            yield portion
            portion, size_bytes = [], 0
        portion.append(item)
        size_bytes += size_of(item)
    if portion:
        yield portion


def _open(item: Item) -> io.RawIOBase | io.BytesIO:
    return io.BytesIO(item.data or b"") if item.path is None else _LazyFile(item)


class _LazyFile(io.RawIOBase):
    """A file that is open only while it is read, so that many may be sent at once."""

    def __init__(self, item: Item) -> None:
        assert item.path is not None
        self._item, self._path = item, item.path
        self._file: io.FileIO | None = None
        try:
            self._size_bytes = self._left_bytes = item.path.stat().st_size
        except OSError as error:
            raise self._changed() from error

    def tell(self) -> int:
        return 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """The size where the end is sought, since that is what it is sought for."""
        return self._size_bytes if whence == os.SEEK_END else offset

    def read(self, size: int = -1) -> bytes:
        """The next bytes; the file is closed at its end.

        Raises:
            SourceChanged: there are more or fewer than there were said to be, or none can be read any more.
        """
        try:
            if self._file is None:
                self._file = io.FileIO(self._path)
            part = self._file.read(size) or b""
        except OSError as error:
            raise self._changed() from error
        self._left_bytes -= len(part)
        if self._left_bytes < 0 or (not part and self._left_bytes):
            raise self._changed()
        if not part:
            self.close()
        return part

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        super().close()

    def _changed(self) -> SourceChanged:
        self.close()
        return SourceChanged(f"{self._item.name} changed while it was sent. Send it again.", index=self._item.index)
