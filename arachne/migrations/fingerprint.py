"""Whether a database that calls itself current has the tables of this version.

A revision's number alone doesn't tell: while nothing is released, migrations are edited in place. So the schema's
fingerprint is kept as a comment on Alembic's own table.
"""

import json
import warnings
from collections.abc import Sequence
from hashlib import sha256

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import CheckConstraint, Connection, Index, Table, UniqueConstraint, text
from sqlalchemy.dialects import postgresql

from arachne.errors import SetupError
from arachne.schemas.tables import PARTITIONED_BY_DAY, metadata

_READ = text("SELECT obj_description(to_regclass('alembic_version'), 'pg_class')")


def compute_fingerprint() -> str:
    """SHA-256 in hex of what the tables are: columns, constraints and indexes."""
    told = [_tell(metadata.tables[name]) for name in sorted(metadata.tables)]
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def read_fingerprint(connection: Connection) -> str | None:
    """The fingerprint of the version that made the schema; None where none is kept, or there is no schema."""
    found = connection.scalar(_READ)
    return None if found is None else str(found)


def keep_fingerprint(connection: Connection, *, compare: bool = True) -> None:
    """The schema counts as this version's from now on; without `compare`, since this version alone has made it.

    Raises:
        SetupError: its tables are others.
    """
    differences = find_differences(connection) if compare else []
    if differences:
        raise refusal(differences[0])
    connection.execute(text(f"COMMENT ON TABLE alembic_version IS '{compute_fingerprint()}'"))


def find_differences(connection: Connection) -> list[str]:
    """What tables, columns, indexes and defaults of the database differ in from this version's, in words."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Did not recognize type 'xid8'")
        context = MigrationContext.configure(
            connection,
            opts={"target_metadata": metadata, "compare_server_default": True, "include_name": _is_ours},
        )
        return [_word(one) for one in compare_metadata(context, metadata)]


def refusal(difference: str) -> SetupError:
    """The error for a schema of another checkout."""
    return SetupError(
        f"This database was made by another state of this version ({difference}), and can't be brought over. "
        "Go on with the checkout that made it, or start with a new database: "
        "for `arachne up` another --data-dir, else another ARACHNE_DATABASE_URL."
    )


def _is_ours(name: str | None, kind: str, _: object) -> bool:
    """Whether it is compared: partitions of our logs, and other programs' tables, are not."""
    return kind != "table" or name in metadata.tables


def _tell(table: Table) -> dict[str, object]:
    return {
        "name": table.name,
        "partitioned": table.name in PARTITIONED_BY_DAY,
        "columns": sorted(
            [
                column.name,
                column.type.compile(dialect=postgresql.dialect()),  # type: ignore[no-untyped-call]
                bool(column.nullable),
                column.primary_key,
                str(getattr(column.server_default, "arg", "")),
                sorted(key.target_fullname for key in column.foreign_keys),
            ]
            for column in table.columns
        ),
        "checks": sorted(str(one.sqltext) for one in table.constraints if isinstance(one, CheckConstraint)),
        "unique": sorted(
            [column.name for column in one.columns] for one in table.constraints if isinstance(one, UniqueConstraint)
        ),
        "indexes": sorted(_tell_index(index) for index in table.indexes),
    }


def _tell_index(index: Index) -> list[object]:
    where = index.dialect_options["postgresql"]["where"]
    columns = [str(one) for one in index.expressions]
    return [str(index.name), columns, bool(index.unique), "" if where is None else str(where)]


def _word(difference: object) -> str:
    """One of Alembic's differences in a few words: what is to be done to the database, and to what."""
    one = difference[0] if isinstance(difference, list) else difference
    if not isinstance(one, Sequence):
        return str(one)
    kind, *told = one
    names = [getattr(part, "name", part) for part in told if isinstance(part, str) or hasattr(part, "name")]
    return " ".join([str(kind), *(str(name) for name in names if name)])
