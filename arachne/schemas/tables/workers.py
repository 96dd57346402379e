"""Which workers live, and what they publish about themselves."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from arachne.schemas.tables.columns import Json, Moment, created_now


class Worker(SQLModel, table=True):
    """A process that claims images. Dead when `beat_at` is older than the lease, by the database's clock."""

    worker_id: str = Field(primary_key=True)
    kind: str
    host: str
    pid: int
    started_at: datetime = created_now()
    beat_at: datetime = Field(sa_type=Moment, index=True)


class Publication(SQLModel, table=True):
    """A fact workers publish for the API: `pipeline_version`, `languages`, a model's digest. Kept when they die."""

    name: str = Field(primary_key=True)
    value: dict[str, object] = Field(sa_type=Json)
    published_at: datetime = created_now()
