"""Originals by their SHA-256: the same bytes are stored once, on this machine's disk or in an S3 bucket."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, ObjectStore, from_url

from arachne.errors import ArachneError, Gone, SetupError, Unavailable
from arachne.settings import Settings

if TYPE_CHECKING:
    from obstore import BytesStream
    from obstore.store import ClientConfig, RetryConfig

log = logging.getLogger(__name__)
_PROBE = "probe"
_PROBE_DATA = os.urandom(64 * 1024)  # a full disk still takes an empty file, one that packs takes zeros
RETRY_S = 5
TIMEOUT_S = 30.0  # of one call, or of one chunk
CHUNK_BYTES = 256 * 1024
PROVE_S = 10.0
_RETRIES: "RetryConfig" = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}


def _gone() -> ArachneError:
    return Gone("The original is no longer kept.")


def _unavailable() -> ArachneError:
    return Unavailable("The object store can't be reached; try again in a moment.", retry_after_s=RETRY_S)


@dataclass(frozen=True)
class Original:
    """An original that is read as it is passed on."""

    size_bytes: int
    chunks: AsyncIterator[bytes]


class Storage:
    """An object store of originals. Writes are atomic: a reader sees all of an object or none of it."""

    def __init__(self, store: ObjectStore, *, folder: Path | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """`folder` is where the store is on this machine, if it is."""
        self._store = store
        self._folder = folder
        self._timeout_s = timeout_s

    def read(self, sha256: str) -> bytes:
        """The original's bytes.

        Raises:
            Gone: it is no longer kept.
            Unavailable: the store can't be reached.
        """
        with self._translated():
            return bytes(self._store.get(_key(sha256)).bytes())

    async def read_async(self, sha256: str) -> bytes:
        """The original's bytes.

        Raises:
            Gone: it is no longer kept.
            Unavailable: the store can't be reached.
        """
        async with self._timely():
            found = await self._store.get_async(_key(sha256))
            return bytes(await found.bytes_async())

    async def open_async(self, sha256: str) -> Original:
        """The original, of which little is in memory at a time.

        Raises:
            Gone: it is no longer kept.
            Unavailable: the store can't be reached; also while it is read.
        """
        async with self._timely():
            found = await self._store.get_async(_key(sha256))
            return Original(found.meta["size"], self._chunks(found.stream(min_chunk_size=CHUNK_BYTES)))

    async def _chunks(self, stream: "BytesStream") -> AsyncIterator[bytes]:
        chunks = aiter(stream)
        while True:
            async with self._timely():
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield bytes(chunk)

    async def write_async(self, sha256: str, data: bytes) -> None:
        """Nothing; the object is stored, whether or not it was there before.

        Raises:
            Unavailable: it can't be stored.
        """
        await self._put(_key(sha256), data)

    async def has_async(self, sha256: str) -> bool:
        """Whether the original is stored.

        Raises:
            Unavailable: the store can't be reached.
        """
        try:
            async with self._timely():
                await self._store.head_async(_key(sha256))
        except Gone:
            return False
        return True

    def delete(self, sha256: str) -> None:
        """Nothing; the original is gone, whether or not it was there.

        Raises:
            Unavailable: the store can't be reached.
        """
        with suppress(Gone), self._translated():
            self._store.delete(_key(sha256))

    async def delete_async(self, sha256: str) -> None:
        """Nothing; the original is gone, whether or not it was there.

        Raises:
            Unavailable: the store can't be reached.
        """
        with suppress(Gone):
            async with self._timely():
                await self._store.delete_async(_key(sha256))

    async def check_async(self) -> None:
        """Nothing; an object of the size of a small image could be written.

        Raises:
            Unavailable: it could not.
        """
        await self._put(_PROBE, _PROBE_DATA)

    async def prove_async(self) -> None:
        """Nothing; an object could be written.

        Raises:
            SetupError: it could not, and won't be until somebody mends something; says what.
            Unavailable: it could not just now.
        """
        try:
            async with asyncio.timeout(PROVE_S):
                await self.check_async()
        except TimeoutError as error:
            raise _unavailable() from error
        except Unavailable as error:
            cause = error.__cause__
            if isinstance(cause, NotFoundError | FileNotFoundError):
                raise SetupError(f"There is no such {self._kind}. Make it, or mend ARACHNE_STORAGE_URL.") from cause
            if isinstance(cause, PermissionDeniedError | UnauthenticatedError | PermissionError):
                raise SetupError(f"Writing to the {self._kind} is refused. Mend {self._keys}.") from cause
            raise

    @property
    def _kind(self) -> str:
        return "bucket" if self._folder is None else f"folder {self._folder}"

    @property
    def _keys(self) -> str:
        if self._folder is not None:
            return "its permissions, or choose another"
        return "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what they are allowed to do"

    async def _put(self, name: str, data: bytes) -> None:
        async with self._timely(_unavailable):
            # The library would make a folder that is gone anew; on a disk that isn't mounted that is another folder.
            if self._folder is not None and not await asyncio.to_thread(self._folder.is_dir):
                raise FileNotFoundError(self._folder)
            await self._store.put_async(name, data)

    @asynccontextmanager
    async def _timely(self, missing: Callable[[], ArachneError] = _gone) -> AsyncIterator[None]:
        with self._translated(missing):
            async with asyncio.timeout(self._timeout_s):
                yield

    @contextmanager
    def _translated(self, missing: Callable[[], ArachneError] = _gone) -> Iterator[None]:
        """What the store raises, as our own errors; `missing` makes the one for what is not there."""
        try:
            yield
        except (NotFoundError, FileNotFoundError) as error:
            raise (missing() if self._is_there(error) else _unavailable()) from error
        except (BaseError, OSError) as error:  # a TimeoutError is an OSError
            raise _unavailable() from error

    def _is_there(self, error: Exception) -> bool:
        """Whether an object is missing, and not all of them: a disk not mounted, a bucket that was deleted."""
        return "NoSuchBucket" not in str(error) if self._folder is None else self._folder.is_dir()


async def start_storage(settings: Settings) -> Storage:
    """The store STORAGE_URL names, in which an object could be written unless it is away just now.

    Raises:
        SetupError: it can't be used until somebody mends something; says what.
    """
    storage = open_storage(settings)
    try:
        await storage.prove_async()
    except Unavailable as error:
        log.warning("the object store can't be reached yet: %s", error.__cause__)
    return storage


def open_storage(settings: Settings) -> Storage:
    """The store STORAGE_URL names, DATA_DIR/storage when unset.

    Raises:
        SetupError: the folder can't be made or the URL not used.
    """
    url = settings.storage_url
    try:
        if url is None or url.startswith("file://"):
            folder = Path(url.removeprefix("file://")) if url else settings.data_dir / "storage"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return Storage(LocalStore(folder.absolute()), folder=folder.absolute())
        return Storage(from_url(url, client_options=_client_options(), retry_config=_RETRIES))
    except (BaseError, OSError, ValueError) as error:
        raise SetupError(
            f"The object store can't be used: {error}. Mend ARACHNE_STORAGE_URL, file:// or s3://."
        ) from error


def _key(sha256: str) -> str:
    return f"originals/{sha256[:2]}/{sha256}"


def _client_options() -> "ClientConfig":
    """Bounds of one request. Options given here replace those of the environment, so its one is taken over."""
    allow_http = os.environ.get("AWS_ALLOW_HTTP", "").lower() in {"1", "true", "yes", "on"}
    return {"connect_timeout": "5s", "read_timeout": "15s", "timeout": "300s", "allow_http": allow_http}
