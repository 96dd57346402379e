"""What a result depends on: the facts workers publish, and the key made of them. Light: loads no database library."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """Whose cache, which image bytes, read by what, with which options. Hashes are lower-case hex.

    `reading_hash` is no part of the key: it stands for the options that stages 1 to 7 depend on, where all of them run.
    """

    scope: str
    sha256: str
    model_version: str
    pipeline_version: str
    options_hash: str
    reading_hash: str | None = field(default=None, compare=False)

    @property
    def parts(self) -> tuple[str, str, str, str, str]:
        """What makes two keys the same."""
        return self.scope, self.sha256, self.model_version, self.pipeline_version, self.options_hash

    @property
    def digest(self) -> bytes:
        """The 32 bytes the key goes by in PostgreSQL: each part with its length, so that none runs into the next."""
        parts = (part.encode() for part in self.parts)
        return sha256(b"".join(len(part).to_bytes(4) + part for part in parts)).digest()

    @property
    def reading(self) -> "CacheKey | None":
        """The key the image's reading goes by, whatever model and prompt; None where stages 1 to 7 don't all run.

        It equals the key of a request that wants the reading and no description.
        """
        if self.reading_hash is None:
            return None
        return CacheKey(
            self.scope, self.sha256, NO_MODEL, self.pipeline_version, self.reading_hash, reading_hash=self.reading_hash
        )


def scope_of(cache_scope: Literal["account", "shared"], account_id: str) -> str:
    """The scope of an account's results under the setting CACHE_SCOPE."""
    return SHARED if cache_scope == SHARED else account_id
