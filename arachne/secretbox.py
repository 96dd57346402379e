"""Authenticated encryption of secrets at rest, and the key it starts from.

A sealed value is `version(1) | key id(4) | nonce(12) | ciphertext and tag`, AES-256-GCM. The header and a purpose are
bound in as associated data, so a value can't be moved to where another kind of secret is expected.
"""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from arachne.errors import SetupError
from arachne.settings import Settings

MIN_KEY_BYTES = 16
_VERSION = b"\x01"
_ID_BYTES = 4
_NONCE_BYTES = 12
_HEADER_BYTES = len(_VERSION) + _ID_BYTES


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

    def is_current(self, sealed: bytes) -> bool:
        """Whether the first key sealed this; if not, seal it anew before that key goes."""
        return sealed[:_HEADER_BYTES] == _VERSION + self._current


def _derive(key: bytes, context: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=b"arachne/secretbox/1/" + context).derive(key)


def open_secret_box(settings: Settings) -> SecretBox:
    """The box for these settings; creates DATA_DIR/secret.key if no key is set.

    Raises:
        SetupError: no usable key.
    """
    return SecretBox(load_secret_keys(settings))


def load_secret_key(settings: Settings) -> bytes:
    """The current key, which encrypts.

    Raises:
        SetupError: no usable key.
    """
    return load_secret_keys(settings)[0]


def load_secret_keys(settings: Settings) -> list[bytes]:
    """All keys, the current one first: ARACHNE_SECRET_KEY split at commas, else the lines of DATA_DIR/secret.key.

    Raises:
        SetupError: no usable key.
    """
    if settings.secret_key is not None:
        keys = [part.strip().encode() for part in settings.secret_key.get_secret_value().split(",")]
        source = "ARACHNE_SECRET_KEY"
    else:
        path = settings.data_dir / "secret.key"
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
