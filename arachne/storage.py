"""Originals by their SHA-256: the same bytes are stored once, on this machine's disk or in an S3 bucket."""

from pathlib import Path

from obstore.exceptions import BaseError, NotFoundError
from obstore.store import LocalStore, ObjectStore, from_url

from arachne.errors import Gone, SetupError, Unavailable
from arachne.settings import Settings

_PROBE = "probe"
RETRY_S = 5


class Storage:
    """An object store of originals. Writes are atomic: a reader sees all of an object or none of it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def read(self, sha256: str) -> bytes:
        """The original's bytes.

        Raises:
            Gone: it is no longer kept.
            Unavailable: the store can't be reached.
        """
        try:
            return bytes(self._store.get(_key(sha256)).bytes())
        except (NotFoundError, FileNotFoundError):
            raise Gone("The original is no longer kept.") from None
        except (BaseError, OSError) as error:
            raise _unavailable() from error

    async def read_async(self, sha256: str) -> bytes:
        """The original's bytes.

        Raises:
            Gone: it is no longer kept.
            Unavailable: the store can't be reached.
        """
        try:
            found = await self._store.get_async(_key(sha256))
            return bytes(await found.bytes_async())
        except (NotFoundError, FileNotFoundError):
            raise Gone("The original is no longer kept.") from None
        except (BaseError, OSError) as error:
            raise _unavailable() from error

    async def write_async(self, sha256: str, data: bytes) -> None:
        """Nothing; the object is stored, whether or not it was there before.

        Raises:
            Unavailable: it can't be stored.
        """
        try:
            await self._store.put_async(_key(sha256), data)
        except (BaseError, OSError) as error:
            raise _unavailable() from error

    async def has_async(self, sha256: str) -> bool:
        """Whether the original is stored.

        Raises:
            Unavailable: the store can't be reached.
        """
        try:
            await self._store.head_async(_key(sha256))
        except (NotFoundError, FileNotFoundError):
            return False
        except (BaseError, OSError) as error:
            raise _unavailable() from error
        return True

    def delete(self, sha256: str) -> None:
        """Nothing; the original is gone, whether or not it was there.

        Raises:
            Unavailable: the store can't be reached.
        """
        try:
            self._store.delete(_key(sha256))
        except (NotFoundError, FileNotFoundError):
            return
        except (BaseError, OSError) as error:
            raise _unavailable() from error

    async def check_async(self) -> None:
        """Nothing; an object could be written.

        Raises:
            Unavailable: it could not.
        """
        try:
            await self._store.put_async(_PROBE, b"")
        except (BaseError, OSError) as error:
            raise _unavailable() from error


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
            return Storage(LocalStore(folder.absolute()))
        return Storage(from_url(url))
    except (BaseError, OSError, ValueError) as error:
        raise SetupError(
            f"The object store can't be used: {error}. Mend ARACHNE_STORAGE_URL, file:// or s3://."
        ) from error


def _key(sha256: str) -> str:
    return f"originals/{sha256[:2]}/{sha256}"


def _unavailable() -> Unavailable:
    return Unavailable("The object store can't be reached; try again in a moment.", retry_after_s=RETRY_S)
