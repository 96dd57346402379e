"""What was used, by whom, and what operators did."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import BigInteger, CheckConstraint, Index
from sqlmodel import Field, SQLModel

from arachne.schemas.tables.accounts import PRICE
from arachne.schemas.tables.columns import Json, Moment, created_now, one_unit


class ApiUsageLog(SQLModel, table=True):
    """One API call (append-only, one partition a day)."""

    __tablename__ = "api_usage_log"
    __table_args__ = (
        Index("ix_api_usage_log_account", "account_id", "at"),
        {"postgresql_partition_by": "RANGE (at)"},
    )

    at: datetime = Field(sa_type=Moment, primary_key=True)
    request_id: str = Field(primary_key=True)
    account_id: str | None = None
    subject: str | None = None
    method: str
    route: str
    status: int
    ms: float
    bytes_in: int = Field(sa_type=BigInteger)
    bytes_out: int = Field(sa_type=BigInteger)


class UsageEntry(SQLModel, table=True):
    """The ledger: one entry an image, however often it was tried; `units` is what it counts as.

    Its plan and prices are those of the moment. Append-only, which the database sees to: an erased account's `subject`
    becomes empty, and nothing else ever changes.
    """

    __tablename__ = "usage_entry"
    __table_args__ = (
        CheckConstraint("amount = units * unit_price + vlm_price", name="ck_usage_entry_amount"),
        # The quota sums a month's units at every submission, from the index alone.
        Index("ix_usage_entry_account", "account_id", "at", postgresql_include=["units"]),
    )

    entry_id: str = Field(primary_key=True)
    account_id: str
    subject: str
    job_id: str
    image_id: str = Field(unique=True)
    at: datetime = created_now()
    cached: bool
    degraded: bool
    model_version: str
    units: int = one_unit()
    cpu_s: float
    gpu_s: float
    size_bytes: int = Field(sa_type=BigInteger)
    plan_id: str
    unit_price: Decimal = Field(sa_type=PRICE)
    vlm_price: Decimal = Field(sa_type=PRICE)
    amount: Decimal = Field(sa_type=PRICE)
    currency: str


class AuditLog(SQLModel, table=True):
    """What was done, to what of whom, and by whom. Append-only, which the database sees to.

    `actor` is an `operator` (`os_user` at a `command`), an `admin` (`subject`, `client_id` and `actor_account_id` of a
    token), or the `service`, which goes on with what one of them began.
    """

    __tablename__ = "audit_log"
    # Housekeeping asks every minute which erasures have begun, however long the record is.
    __table_args__ = (Index("ix_audit_log_action", "action", "audit_id"),)

    audit_id: str = Field(primary_key=True)
    at: datetime = created_now()
    actor: str
    os_user: str | None = None
    command: str | None = None
    actor_account_id: str | None = None
    subject: str | None = None
    client_id: str | None = None
    request_id: str | None = None
    action: str
    account_id: str | None = Field(default=None, index=True)
    target: str | None = None
    detail: dict[str, object] = Field(default_factory=dict, sa_type=Json)
