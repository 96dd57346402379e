"""What a result depends on: the facts workers publish, and the key made of them. Light: loads no database library."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from hashlib import sha256
from typing import Literal

SHARED = "shared"
NO_MODEL = "none"


@dataclass(frozen=True, slots=True)
class Published:
    """`model_versions` maps a model's name to the name with its digest; a name that is missing has no digest yet."""

    pipeline_version: str
    languages: tuple[str, ...]
    model_versions: Mapping[str, str] = field(default_factory=dict)

    def model_version(self, model: str | None) -> str:
        """The version results of `model` carry; `none` without one."""
        return NO_MODEL if model is None else self.model_versions.get(model, model)


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
