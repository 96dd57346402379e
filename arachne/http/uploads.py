"""How many bodies with images are taken at once: each holds some memory and a temporary file until it is stored."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from arachne.errors import Unavailable

MAX_UPLOADS = 256
RETRY_S = 2


class Uploads:
    """Counts the uploads under way; one account may have half of what there is room for."""

    def __init__(self, max_uploads: int = MAX_UPLOADS) -> None:
        self._max_uploads = max_uploads
        self._open: Counter[str] = Counter()

    @contextmanager
    def place(self, account_id: str) -> Iterator[None]:
        """A place for one upload.

        Raises:
            Unavailable: all are taken, or the account has its share.
        """
        if self._open.total() >= self._max_uploads or self._open[account_id] >= max(1, self._max_uploads // 2):
            raise Unavailable("Many uploads are under way; try again in a moment.", retry_after_s=RETRY_S)
        self._open[account_id] += 1
        try:
            yield
        finally:
            self._open[account_id] -= 1
            if not self._open[account_id]:
                del self._open[account_id]
