"""A cache with its three stores, and results to put into it."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from arachne.bodies import compress
from arachne.cache import CacheKey, VisionCache, insert_result, load_body, lookup
from arachne.cache.originals import Originals
from arachne.cache.stores import Stores
from arachne.database import Database
from arachne.schemas.tables import Account
from arachne.settings import Settings

ACCOUNT = "acc_1"
_AGE = text("UPDATE image_result SET created_at = now() - make_interval(secs => :age) WHERE result_id = :id")


def key(content: str = "a", **parts: str) -> CacheKey:
    """The key of an image with this content."""
    told = {"scope": ACCOUNT, "model_version": "small@1", "pipeline_version": "p1", "options_hash": "o1"} | parts
    return CacheKey(sha256=sha256(content.encode()).hexdigest(), reading_hash="r1", **told)


def result_of(content: str, value: str = "read") -> bytes:
    """A result's JSON for an image with this content; any script, any escape."""
    told = {"image": {"sha256": sha256(content.encode()).hexdigest()}, "text": value, "odd": 'สวัสดี "\\ \u0000 \n €'}
    return json.dumps(told, ensure_ascii=False).encode()


@dataclass
class Cache:
    """Shorthand for what tests do to the stores."""

    stores: Stores
    key = staticmethod(key)
    result_of = staticmethod(result_of)
    account_id = ACCOUNT

    def put(
        self, content: str = "a", value: str = "read", *, age_s: float = 0, local: bool = False, **facts: Any
    ) -> str:
        """Id of a new result of an image with this content, put so many seconds ago."""
        told: dict[str, Any] = {"key": key(content), "reusable": True, "has_reading": True} | facts
        with self.stores.database.transaction() as transaction:
            result_id = insert_result(
                transaction, account_id=ACCOUNT, body=compress(result_of(content, value)),
                model_version=told["key"].model_version, **told,
            )  # fmt: skip
            transaction.session.execute(_AGE, {"age": age_s, "id": result_id})
        if local:
            self.stores.cache.put(told["key"], result_id, result_of(content, value))
        return result_id

    def answers(self, *contents: str, **parts: str) -> dict[str, bytes]:
        """What the cache answers for images with these contents."""
        with self.stores.database.transaction() as transaction:
            hits = lookup(transaction, [key(content, **parts).digest for content in contents])
            return {
                content: load_body(transaction, hits[key(content, **parts).digest].result_id)
                for content in contents
                if key(content, **parts).digest in hits
            }

    def column(self, statement: str, **values: object) -> list[Any]:
        """The first column of what a statement answers."""
        with self.stores.database.transaction() as transaction:
            found = transaction.session.execute(text(statement), values)
            return list(found.scalars()) if found.returns_rows else []

    def empty(self) -> None:
        """Nothing is cached any more, anywhere."""
        self.column("DELETE FROM image_result")
        self.stores.cache.drop_unless(lambda _: set())
        self.stores.originals.drop()

    def state(self) -> object:
        """All that is stored, to be compared."""
        rows = self.column(
            "SELECT concat_ws('|', result_id, encode(cache_key, 'hex'), encode(reading_key, 'hex'), created_at, "
            "md5(body)) FROM image_result ORDER BY result_id"
        )
        return rows, list(self.stores.cache.rows()), list(self.stores.originals.entries())

    def created_at(self, content: str = "a") -> datetime:
        """When the answering result was made."""
        return self.column("SELECT created_at FROM image_result WHERE cache_key = :it", it=key(content).digest)[0]


@pytest.fixture
def stores(database: Database, tmp_path: Path):
    """Stores with one account and nothing else."""
    with database.transaction() as transaction:
        transaction.session.add(Account(account_id=ACCOUNT, name="somebody"))
    cache = VisionCache(tmp_path / "cache" / "vlm_cache.db", max_bytes=10**8)
    yield Stores(database, cache, Originals(tmp_path / "cache" / "originals.db"), Settings(data_dir=tmp_path))
    cache.close()


@pytest.fixture
def cache(stores: Stores) -> Cache:
    """The stores' shorthand."""
    return Cache(stores)


@pytest.fixture
def original_file(tmp_path: Path) -> Callable[..., Path]:
    """Makes original-format files with these rows."""

    def make(*rows: tuple[object, ...], name: str = "old/vlm_cache.db", wal: bool = False) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        connection = sqlite3.connect(path)
        if wal:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(
            "CREATE TABLE vision_cache (sha256 TEXT PRIMARY KEY, result_json TEXT, model_version TEXT, "
            "created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, hits INTEGER DEFAULT 0)"
        )
        connection.executemany("INSERT INTO vision_cache VALUES (?, ?, ?, ?, ?)", rows)
        connection.commit()
        connection.close()
        return path

    return make
