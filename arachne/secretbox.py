"""Authenticated encryption of secrets at rest, and the key it starts from.

A sealed value is `version(1) | key id(4) | nonce(12) | ciphertext and tag`, AES-256-GCM. The header and a purpose are
bound in as associated data, so a value can't be moved to where another kind of secret is expected.
"""

import logging
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import text

from arachne.database import Database, Transaction
from arachne.errors import SetupError, Unavailable
from arachne.settings import Settings

log = logging.getLogger(__name__)

MIN_KEY_BYTES = 16
_VERSION = b"\x01"
_ID_BYTES = 4
_NONCE_BYTES = 12
_HEADER_BYTES = len(_VERSION) + _ID_BYTES

SIGNING_KEY = "signing-key"  # the purpose of sealed signing keys
_HAS_TABLES = text("SELECT to_regclass('signing_key') IS NOT NULL")
_NEWEST = text("SELECT private FROM signing_key WHERE retired_at IS NULL ORDER BY created_at DESC LIMIT 1")
_HOLDS_SECRETS = text("""
SELECT EXISTS (SELECT 1 FROM signing_key) OR EXISTS (SELECT 1 FROM account WHERE webhook_secret IS NOT NULL)
    OR EXISTS (SELECT 1 FROM webhook_endpoint WHERE secret IS NOT NULL)
""")
_OTHER_KEY = (
    "This database's secrets were encrypted with another key. Set ARACHNE_SECRET_KEY to that key on every machine, "
    "or copy DATA_DIR/secret.key from the machine that made it."
)


class SecretBox:
    """Seals with the first key, opens what any of the keys sealed."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < MIN_KEY_BYTES for key in keys):
            raise SetupError(f"A secret key has at least {MIN_KEY_BYTES} bytes; set a longer ARACHNE_SECRET_KEY.")
        self._ciphers = {_derive(key, b"id", _ID_BYTES): AESGCM(_derive(key, b"aes-256-gcm", 32)) for key in keys}
        self._current = next(iter(self._ciphers))

    def encrypt(self, secret: bytes, purpose: str) -> bytes:
        """`secret` sealed with the current key, to be opened for the same purpose only."""
        header, nonce = _VERSION + self._current, secrets.token_bytes(_NONCE_BYTES)
        sealed = self._ciphers[self._current].encrypt(nonce, secret, header + purpose.encode())
        return header + nonce + sealed

    def decrypt(self, sealed: bytes, purpose: str) -> bytes:
        """The secret.

        Raises:
            SetupError: sealed with a key that is not among ours, for another purpose, or damaged.
        """
        header, rest = sealed[:_HEADER_BYTES], sealed[_HEADER_BYTES:]
        cipher = self._ciphers.get(header[len(_VERSION) :])
        if not header.startswith(_VERSION) or cipher is None:
            raise SetupError("A stored secret was encrypted with another key. Add that key to ARACHNE_SECRET_KEY.")
        try:
            return cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], header + purpose.encode())
        except (InvalidTag, ValueError):
            raise SetupError(f"A stored secret ({purpose}) is damaged. Rotate it to replace it.") from None


def _derive(key: bytes, context: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=b"arachne/secretbox/1/" + context).derive(key)


def open_secret_box(settings: Settings) -> SecretBox:
    """The box for these settings, able to open what the database holds; creates DATA_DIR/secret.key on a new database.

    Raises:
        SetupError: no usable key, or another one than the database's secrets were encrypted with.
    """
    database = Database(settings.database_url, pool_size=1) if settings.database_url else None
    try:
        if database is not None and settings.secret_key is None and not key_file(settings).exists():
            _refuse_second_key(database, settings)
        box = SecretBox(load_secret_keys(settings))
        if database is not None:
            _check(database, box)
    finally:
        if database is not None:
            database.close()
    return box


def check_box(transaction: Transaction, box: SecretBox) -> None:
    """Nothing, where the box opens the signing key in use.

    Raises:
        SetupError: this machine has another key than the one that encrypted it.
    """
    session = transaction.session
    if not session.scalar(_HAS_TABLES):
        return
    sealed = session.scalar(_NEWEST)
    if sealed is None:
        return
    try:
        box.decrypt(bytes(sealed), SIGNING_KEY)
    except SetupError:
        raise SetupError(_OTHER_KEY) from None


def _check(database: Database, box: SecretBox) -> None:
    try:
        database.run(check_box, box)
    except Unavailable as error:
        log.warning("whether this machine has the database's secret key can't be told yet: %s", error.message)


def _refuse_second_key(database: Database, settings: Settings) -> None:
    """Nothing, where a new key would lock nobody out.

    Raises:
        SetupError: the database holds secrets of another key, or can't be asked.
    """
    try:
        holds = database.run(lambda tx: tx.session.scalar(_HAS_TABLES) and tx.session.scalar(_HOLDS_SECRETS))
    except Unavailable as error:
        raise SetupError(
            f"{key_file(settings)} is missing, and whether the database needs an existing one can't be told: "
            f"{error.message} Set ARACHNE_SECRET_KEY, or start the database first."
        ) from None
    if holds and not key_file(settings).exists():  # else a process beside us has made it, and then used it, just now
        raise SetupError(f"{key_file(settings)} is missing. {_OTHER_KEY}")


def key_file(settings: Settings) -> Path:
    """Where the key lies when no setting gives it."""
    return settings.data_dir / "secret.key"


def load_secret_keys(settings: Settings) -> list[bytes]:
    """All keys, the current one first: ARACHNE_SECRET_KEY split at commas, else the lines of DATA_DIR/secret.key.

    Raises:
        SetupError: no usable key.
    """
    if settings.secret_key is not None:
        keys = [part.strip().encode() for part in settings.secret_key.get_secret_value().split(",")]
        source = "ARACHNE_SECRET_KEY"
    else:
        path = key_file(settings)
        keys = [line.strip() for line in _read_or_create(path).splitlines()]
        source = str(path)
    if not keys or any(len(key) < MIN_KEY_BYTES for key in keys):
        raise SetupError(f"{source} needs keys of at least {MIN_KEY_BYTES} characters, separated by commas or lines.")
    return keys


def _read_or_create(path: Path) -> bytes:
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path)
        if path.stat().st_mode & 0o077:
            raise SetupError(f"{path} can be read by others. Run: chmod 600 {path}")
        return path.read_bytes()
    except OSError as error:
        raise SetupError(f"{path} can't be used: {error.strerror}. Set ARACHNE_SECRET_KEY or mend the file.") from error


def _create(path: Path) -> None:
    """A new key appears at `path` whole or not at all; of several writers the first wins."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_urlsafe(32).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(draft)
    except FileExistsError:
        return
    finally:
        draft.unlink()
