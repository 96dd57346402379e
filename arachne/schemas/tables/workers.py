"""Which workers live, and what they publish about themselves."""

from datetime import datetime

from sqlalchemy import Text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlmodel import Field, SQLModel

from arachne.schemas.tables.columns import Json, Moment, created_now


class Worker(SQLModel, table=True):
    """A process that claims images. Dead when `beat_at` is older than the lease, by the database's clock.

    It has beaten without a gap since `steady_since`.

    `languages` are those it can read, `vlm` how it finds the vision-language model; None where it doesn't say.
    """

    worker_id: str = Field(primary_key=True)
    kind: str
    host: str
    pid: int
    languages: list[str] | None = Field(default=None, sa_type=ARRAY(Text))
    vlm: dict[str, object] | None = Field(default=None, sa_type=Json)
    started_at: datetime = created_now()
    beat_at: datetime = Field(sa_type=Moment, index=True)
    steady_since: datetime = Field(sa_type=Moment)


class Publication(SQLModel, table=True):
    """A fact workers publish for the API: `pipeline_version`, `languages`, a model's digest. Kept when they die."""

    name: str = Field(primary_key=True)
    value: dict[str, object] = Field(sa_type=Json)
    published_at: datetime = created_now()


class Gate(SQLModel, table=True):
    """The gate to one server of models: whose turn it is there, and which images each worker has for it.

    Its slots are advisory locks, see `arachne.jobs.slots`.
    """

    backend: str = Field(primary_key=True)
    turn: dict[str, object] = Field(sa_type=Json)
    lines: dict[str, object] = Field(sa_type=Json)
