"""Images on their way to the store: one temporary file however many they are, none while they are small.

The files have no names, so that nothing is left of a process that is killed.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from threading import Lock

from arachne.errors import Unavailable
from arachne.metrics import SPOOL_BYTES

MEMORY_BYTES = 256 * 1024  # of one spool; what is more goes to disk
RETRY_S = 10


class SpoolBudget:
    """Bytes that all spools of a process may hold together; one account may have half of them. For any thread."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._held: Counter[str] = Counter()

    @property
    def held_bytes(self) -> int:
        """What is held just now."""
        with self._lock:
            return self._held.total()

    def take(self, account_id: str, size_bytes: int) -> None:
        """So many bytes more are held.

        Raises:
            Unavailable: there are not so many left, for this account or for all.
        """
        with self._lock:
            mine, all_held = self._held[account_id] + size_bytes, self._held.total() + size_bytes
            if all_held > self._max_bytes or mine > max(1, self._max_bytes // 2):
                raise Unavailable("Many images are on their way; try again in a moment.", retry_after_s=RETRY_S)
            self._held[account_id] = mine
            SPOOL_BYTES.inc(size_bytes)

    def give_back(self, account_id: str, size_bytes: int) -> None:
        """So many bytes are held no more."""
        with self._lock:
            self._held[account_id] -= size_bytes
            SPOOL_BYTES.dec(size_bytes)
            if not self._held[account_id]:
                del self._held[account_id]


class Spool:
    """Bytes in the order they were added; a range of them is read again by its offset.

    With a `budget` they count as the account's until `close`.
    """

    def __init__(
        self, memory_bytes: int = MEMORY_BYTES, *, budget: SpoolBudget | None = None, account_id: str = ""
    ) -> None:
        self._file = SpooledTemporaryFile[bytes](max_size=memory_bytes)
        self._budget, self._account_id = budget, account_id
        self._taken_bytes = 0
        self.size_bytes = 0

    def add(self, data: bytes | memoryview) -> None:
        """Put bytes at the end.

        Raises:
            Unavailable: the folder of temporary files is full or can't be used, or the budget is used up.
        """
        if self._budget is not None:
            self._budget.take(self._account_id, len(data))
            self._taken_bytes += len(data)
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
        if self._budget is not None:
            self._budget.give_back(self._account_id, self._taken_bytes)
            self._taken_bytes = 0
        with unavailable_when_full():
            self._file.close()


@contextmanager
def unavailable_when_full() -> Iterator[None]:
    """What the system says of temporary files (no space, no folder, no more open files) becomes `Unavailable`."""
    try:
        yield
    except OSError as error:
        raise Unavailable("The upload can't be kept just now; try again in a moment.", retry_after_s=RETRY_S) from error
