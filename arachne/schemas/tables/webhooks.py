"""Endpoints, events with frozen bodies, their deliveries, and every attempt."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, LargeBinary, text
from sqlmodel import Field, SQLModel

from arachne.schemas.tables.columns import (
    BytesList,
    Moment,
    MomentList,
    TextList,
    Xid8,
    created_now,
    moment,
    nothing_yet,
    unset,
)

DELIVERY_STATES = ("pending", "succeeded", "failed", "cancelled")


class WebhookEndpoint(SQLModel, table=True):
    """Where an account's events go. Hidden ones belong to jobs' `webhook` option and sign with the default secret.

    `secrets_old` sign beside `secret`, each until its time. `half_open`: it was disabled, and is enabled again without
    having taken anything since.
    """

    __tablename__ = "webhook_endpoint"
    __table_args__ = (
        Index("ix_webhook_endpoint_account", "account_id", "endpoint_id"),
        Index("uq_webhook_endpoint_hidden", "account_id", "url", unique=True, postgresql_where=text("hidden")),
    )

    endpoint_id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="account.account_id")
    url: str
    events: list[str] = Field(sa_type=TextList)
    description: str | None = None
    enabled: bool = True
    hidden: bool = False
    secret: bytes | None = Field(default=None, sa_type=LargeBinary)
    secrets_old: list[bytes] = nothing_yet(BytesList)
    secrets_old_until: list[datetime] = nothing_yet(MomentList)
    max_in_flight: int = 10
    first_failure_at: datetime | None = moment()
    half_open: bool = unset()
    disabled_at: datetime | None = moment()
    disabled_reason: str | None = None
    created_at: datetime = created_now()
    deleted_at: datetime | None = moment()


class WebhookMessage(SQLModel, table=True):
    """An event: its body is frozen when it happens and sent byte for byte in every attempt."""

    __tablename__ = "webhook_message"
    __table_args__ = (
        Index("ix_webhook_message_feed", "account_id", "txid", "message_id"),
        Index("ix_webhook_message_job", "job_id", "sequence"),
        Index("ix_webhook_message_created", "created_at"),
        # A job's terminal event exists once, whatever raced.
        Index(
            "uq_webhook_message_terminal",
            "job_id",
            unique=True,
            postgresql_where=text("type IN ('job.completed', 'job.partial', 'job.failed', 'job.cancelled')"),
        ),
    )

    message_id: str = Field(primary_key=True)
    account_id: str
    job_id: str | None = None
    type: str
    sequence: int | None = None
    body: bytes = Field(sa_type=LargeBinary)
    redacted: bool = unset()
    txid: int | None = Field(
        default=None,
        sa_column=Column(Xid8, nullable=False, server_default=text("pg_current_xact_id()")),
    )
    created_at: datetime = created_now()


class WebhookDelivery(SQLModel, table=True):
    """One event on its way to one endpoint. `claim_id` and `lease_until` fence the sender.

    `worker_id` is the worker it was claimed by last; where that one is lost, the claim is worth nothing.
    `cause` is why it is sent: the event itself, a test, or the wish to have what was missed. `attempts` were made in
    all, `charged` of them on the retry schedule. A `redelivery` is made beside that; `retry_at` keeps its next time.
    """

    __tablename__ = "webhook_delivery"
    __table_args__ = (
        CheckConstraint(f"state IN {DELIVERY_STATES!r}", name="ck_webhook_delivery_state"),
        Index(
            "ix_webhook_delivery_due",
            "endpoint_id",
            "next_attempt_at",
            "message_id",
            postgresql_where=text("state = 'pending'"),
        ),
        Index("ix_webhook_delivery_sending", "endpoint_id", postgresql_where=text("claim_id IS NOT NULL")),
        Index("ix_webhook_delivery_endpoint", "endpoint_id", text("message_id DESC")),
    )

    message_id: str = Field(primary_key=True, foreign_key="webhook_message.message_id")
    endpoint_id: str = Field(primary_key=True, foreign_key="webhook_endpoint.endpoint_id")
    account_id: str
    state: str = "pending"
    attempts: int = 0
    charged: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    cause: str = Field(default="event", nullable=False, sa_column_kwargs={"server_default": text("'event'")})
    redelivery: bool = unset()
    next_attempt_at: datetime | None = moment()
    retry_at: datetime | None = moment()
    claim_id: UUID | None = None
    worker_id: str | None = None
    lease_until: datetime | None = moment()
    reason: str | None = None
    created_at: datetime = created_now()
    finished_at: datetime | None = moment()


class WebhookAttempt(SQLModel, table=True):
    """One request to an endpoint and what came of it (append-only, one partition a day)."""

    __tablename__ = "webhook_attempt"
    __table_args__ = (
        Index("ix_webhook_attempt_delivery", "message_id", "endpoint_id"),
        {"postgresql_partition_by": "RANGE (at)"},
    )

    at: datetime = Field(sa_type=Moment, primary_key=True)
    attempt_id: str = Field(primary_key=True)
    message_id: str
    endpoint_id: str
    account_id: str
    number: int
    cause: str
    status_code: int | None = None
    ms: int = Field(sa_type=BigInteger)
    failure: str | None = None
    response: str | None = None
