"""How other commands find what `arachne up` runs: DATA_DIR/service.json, readable by its owner only."""

import json
import os
import shlex
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from arachne.embedded.datadir import is_held
from arachne.errors import SetupError
from arachne.settings import Settings

_FILE = "service.json"


@dataclass(frozen=True, slots=True)
class Instance:
    """A running `arachne up`: where this machine reaches its API, and the URL it tells clients."""

    pid: int
    api_url: str
    public_url: str
    database_url: str
    redis_url: str


@contextmanager
def announce(data_dir: Path, instance: Instance) -> Iterator[None]:
    """Other commands find `instance` until the block ends."""
    handle, draft = tempfile.mkstemp(dir=data_dir, prefix=f".{_FILE}.")  # mode 0600
    with os.fdopen(handle, "w") as file:
        json.dump(asdict(instance), file)
    target = data_dir / _FILE
    Path(draft).replace(target)
    try:
        yield
    finally:
        target.unlink(missing_ok=True)


def find(data_dir: Path) -> Instance:
    """The instance running on `data_dir`.

    Raises:
        SetupError: none is running, or its file belongs to somebody else.
    """
    instance = _read(data_dir)
    if instance is None:
        raise SetupError(
            f"Nothing runs on {data_dir}. Start `arachne up --data-dir {shlex.quote(str(data_dir))}`, "
            "or set ARACHNE_DATABASE_URL and ARACHNE_REDIS_URL."
        )
    return instance


def attach(settings: Settings, *, needs: Collection[str] = ("database_url", "redis_url")) -> Settings:
    """`settings` with the server URLs and the public URL of the running instance where they are not set.

    Raises:
        SetupError: one that `needs` names is not set and nothing runs on the data folder.
    """
    missing = {name for name in ("database_url", "redis_url", "public_url") if getattr(settings, name) is None}
    if not missing:
        return settings
    instance = find(settings.data_dir) if missing & set(needs) else _read(settings.data_dir)
    if instance is None:
        return settings
    return settings.model_copy(update={name: getattr(instance, name) for name in missing})


def public_url(settings: Settings) -> str | None:
    """The URL clients reach the API by, as it is set or as what runs on the data folder says; None where neither does.

    Raises:
        SetupError: what runs there belongs to somebody else.
    """
    return attach(settings, needs=()).public_url


def _read(data_dir: Path) -> Instance | None:
    try:
        text = (data_dir / _FILE).read_text()
    except FileNotFoundError:
        return None
    except PermissionError:
        raise SetupError(f"{data_dir / _FILE} belongs to another user. Run this as the user of `arachne up`.") from None
    return Instance(**json.loads(text)) if is_held(data_dir) else None  # without a holder a killed one left it
