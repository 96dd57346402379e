"""Jobs and their images: the truth that queues and caches only point at."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Index, LargeBinary, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from arachne.schemas.tables.columns import Json, Moment, created_now, moment, one_unit, unset

JOB_STATES = ("queued", "processing", "completed", "partial", "failed", "cancelled")
# `fetching`: its URL is being read. `parked`: the same image is being read right now for somebody; this one waits.
IMAGE_STATES = ("fetching", "queued", "parked", "running", "completed", "failed", "cancelled")


def _in(column: str, states: tuple[str, ...]) -> str:
    return f"{column} IN ({', '.join(repr(state) for state in states)})"


class Job(SQLModel, table=True):
    """One submission. Counters are kept by the transactions that finish its images.

    With `deleted_at` it is a tombstone, which nobody is shown; `erasing` while something of it is still to be erased.
    """

    __table_args__ = (
        CheckConstraint(_in("state", JOB_STATES), name="ck_job_state"),
        Index("ix_job_account", "account_id", text("job_id DESC")),
        Index("ix_job_deadline", "deadline_at", postgresql_where=text("finished_at IS NULL")),
        Index("ix_job_expires", "expires_at", postgresql_where=text("expires_at IS NOT NULL AND deleted_at IS NULL")),
        Index("ix_job_deleted", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL")),
        Index("ix_job_erasing", "job_id", postgresql_where=text("erasing")),
    )

    job_id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="account.account_id")
    subject: str
    state: str = "queued"
    single: bool = False
    options: dict[str, object] = Field(sa_type=Json)
    # Called `labels` here because SQLModel owns the name `metadata`.
    labels: dict[str, str] = Field(default_factory=dict, sa_type=Json)
    total: int
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    cached: int = 0
    degraded: int = 0
    sequence: int = 0
    retry_of: str | None = None
    request_id: str | None = None
    traceparent: str | None = None
    webhook_endpoint_id: str | None = None
    webhook_events: list[str] | None = Field(default=None, sa_type=Json)
    created_at: datetime = created_now()
    started_at: datetime | None = moment()
    finished_at: datetime | None = moment()
    deadline_at: datetime = Field(sa_type=Moment)
    expires_at: datetime | None = moment()
    cancel_requested_at: datetime | None = moment()
    deleted_at: datetime | None = moment()
    erasing: bool = unset()


class Image(SQLModel, table=True):
    """One image of a job. `claim_id` is the fence: only its holder may finish the row.

    `units` is what it counts as for quota and price: its frames, where all are read. `model` is the vision-language
    model that will describe it, as far as was known when it came in. `fetch_at` is when its URL may be asked next;
    while that is done, `claim_id` and `worker_id` are the fetcher's.
    """

    __table_args__ = (
        CheckConstraint(_in("state", IMAGE_STATES), name="ck_image_state"),
        UniqueConstraint("job_id", "index", name="uq_image_index"),
        Index("ix_image_queued", "account_id", "due_at", "image_id", postgresql_where=text("state = 'queued'")),
        Index(
            "ix_image_queued_model",
            text("coalesce(model, '')"),
            "account_id",
            "due_at",
            "image_id",
            postgresql_where=text("state = 'queued'"),
        ),
        Index(
            "ix_image_read",
            "finished_at",
            postgresql_where=text("state IN ('completed', 'failed') AND NOT cached AND started_at IS NOT NULL"),
        ),
        Index("ix_image_running", "account_id", postgresql_where=text("state = 'running'")),
        Index("ix_image_worker", "worker_id", postgresql_where=text("state = 'running'")),
        Index(
            "ix_image_fetching",
            "account_id",
            "source_host",
            "fetch_at",
            "image_id",
            postgresql_where=text("state = 'fetching'"),
        ),
        Index(
            "ix_image_fetcher",
            "worker_id",
            postgresql_where=text("state = 'fetching' AND worker_id IS NOT NULL"),
        ),
        Index("ix_image_parked", "cache_key", postgresql_where=text("state = 'parked'")),
        Index("ix_image_parked_account", "account_id", postgresql_where=text("state = 'parked'")),
        Index("ix_image_sha256", "sha256"),
        Index("ix_image_result", "result_id"),
    )

    image_id: str = Field(primary_key=True)
    job_id: str = Field(foreign_key="job.job_id")
    account_id: str
    index: int
    name: str | None = None
    source_url: str | None = None
    source_host: str | None = None
    fetch_at: datetime | None = moment()
    fetch_attempts: int = Field(default=0, nullable=False, sa_column_kwargs={"server_default": text("0")})
    sha256: str | None = None
    format: str | None = None
    size_bytes: int | None = Field(default=None, sa_type=BigInteger)
    units: int = one_unit()
    model: str | None = None
    state: str = "queued"
    due_at: datetime = Field(sa_type=Moment)
    claim_id: UUID | None = None
    worker_id: str | None = None
    attempts: int = 0
    lost_leases: int = 0
    cached: bool = False
    degraded: bool = False
    error_code: str | None = None
    error_message: str | None = None
    error_stage: str | None = None
    model_version: str | None = None
    cache_key: bytes | None = Field(default=None, sa_type=LargeBinary)
    result_id: str | None = Field(default=None, foreign_key="image_result.result_id")
    started_at: datetime | None = moment()
    finished_at: datetime | None = moment()


class ImageResult(SQLModel, table=True):
    """A result, written once and never changed: zlib-compressed JSON.

    `cache_key` (None: not reusable) makes it the cache's second level; a refreshed result takes the key over, while
    older jobs keep pointing at what they got. `reading_key` (None: incomplete) says that it has the reading of that
    key in it, whatever its description. Both are digests of the other columns, so that a row proves what it answers.
    `units` is what each image with this result counts as.
    """

    __tablename__ = "image_result"
    __table_args__ = (
        Index("ix_image_result_reading", "reading_key", postgresql_where=text("reading_key IS NOT NULL")),
        Index("ix_image_result_sha256", "sha256"),
        Index("ix_image_result_created", "created_at"),
    )

    result_id: str = Field(primary_key=True)
    account_id: str = Field(index=True)
    cache_key: bytes | None = Field(default=None, sa_type=LargeBinary, unique=True)
    reading_key: bytes | None = Field(default=None, sa_type=LargeBinary)
    scope: str
    sha256: str
    model_version: str
    pipeline_version: str
    options_hash: str
    reading_hash: str | None = None
    units: int = one_unit()
    body: bytes = Field(sa_type=LargeBinary)
    created_at: datetime = created_now()


class ErasedResult(SQLModel, table=True):
    """A result that was erased just now: machines that have a copy in their file drop it."""

    __tablename__ = "erased_result"

    result_id: str = Field(primary_key=True)
    erased_at: datetime = Field(
        default=None, sa_type=Moment, nullable=False, index=True, sa_column_kwargs={"server_default": text("now()")}
    )


class IdempotencyKey(SQLModel, table=True):
    """A remembered submission; `job_id` is None while the first request is still being accepted."""

    __tablename__ = "idempotency_key"

    account_id: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    fingerprint: bytes | None = Field(default=None, sa_type=LargeBinary)
    job_id: str | None = None
    holder: UUID
    lease_until: datetime = Field(sa_type=Moment)
    expires_at: datetime = Field(sa_type=Moment, index=True)


class Blob(SQLModel, table=True):
    """A stored original, content-addressed; locked by submit (share) and sweeper (update)."""

    sha256: str = Field(primary_key=True)
    size_bytes: int = Field(sa_type=BigInteger)
    format: str
    stored_at: datetime = created_now()


class Flight(SQLModel, table=True):
    """A reading under way: whoever holds the row for a cache key computes it, the others park."""

    cache_key: bytes = Field(primary_key=True, sa_type=LargeBinary)
    image_id: str
    worker_id: str = Field(index=True)
    created_at: datetime = created_now()


class Served(SQLModel, table=True):
    """The tag of the image last handed out for an account, by which claims take turns: the lowest is next."""

    account_id: str = Field(primary_key=True, foreign_key="account.account_id", ondelete="CASCADE")
    tag: float = Field(index=True)
