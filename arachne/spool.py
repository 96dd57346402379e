"""Images on their way to the store: one temporary file however many they are, none while they are small."""

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile

from arachne.errors import Unavailable

MEMORY_BYTES = 256 * 1024  # of one spool; what is more goes to disk
RETRY_S = 10


class Spool:
    """Bytes in the order they were added; a range of them is read again by its offset."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._file = SpooledTemporaryFile[bytes](max_size=memory_bytes)
        self.size_bytes = 0

    def add(self, data: bytes | memoryview) -> None:
        """Put bytes at the end.

        Raises:
            Unavailable: the folder of temporary files is full or can't be used.
        """
        with unavailable_when_full():
            self._file.seek(self.size_bytes)
            self._file.write(data)
        self.size_bytes += len(data)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """The bytes of a range.

        Raises:
            Unavailable: the temporary file can't be read.
        """
        with unavailable_when_full():
            self._file.seek(offset)
            return self._file.read(size_bytes)

    def close(self) -> None:
        """Forget the bytes."""
        with unavailable_when_full():
            self._file.close()


@contextmanager
def unavailable_when_full() -> Iterator[None]:
    """What the system says of temporary files (no space, no folder, no more open files) becomes `Unavailable`."""
    try:
        yield
    except OSError as error:
        raise Unavailable("The upload can't be kept just now; try again in a moment.", retry_after_s=RETRY_S) from error
