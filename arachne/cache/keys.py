"""What a result depends on: two images with equal keys have equal results."""

from dataclasses import astuple, dataclass
from hashlib import sha256
from typing import Literal

SHARED = "shared"


@dataclass(frozen=True, slots=True)
class CacheKey:
    """Whose cache, which image bytes, read by what, with which options. Hashes are lower-case hex."""

    scope: str
    sha256: str
    model_version: str
    pipeline_version: str
    options_hash: str

    @property
    def digest(self) -> bytes:
        """The 32 bytes the key goes by in PostgreSQL: each part with its length, so that none runs into the next."""
        parts = (part.encode() for part in astuple(self))
        return sha256(b"".join(len(part).to_bytes(4) + part for part in parts)).digest()


def scope_of(cache_scope: Literal["account", "shared"], account_id: str) -> str:
    """The scope of an account's results under the setting CACHE_SCOPE."""
    return SHARED if cache_scope == SHARED else account_id
