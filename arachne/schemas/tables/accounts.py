"""Who may call: plans, accounts, their clients, and the keys tokens are signed with."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import CheckConstraint, LargeBinary, Numeric, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from arachne.schemas.tables.columns import (
    BytesList,
    Json,
    Moment,
    MomentList,
    TextList,
    created_now,
    moment,
    nothing_yet,
)

PRICE = Numeric(18, 6)


class Plan(SQLModel, table=True):
    """Prices per image in `currency`, the monthly quota (None: unlimited), and rates that override the settings'.

    `rates` are by policy: those of a user, and with `account_` before the name caps for all users of an account.

    `priority`, `weight` and `max_in_flight` are each account's share of the workers: by weight, and each priority
    counts four times the one below, so that none has all. An account is never given more than `max_in_flight` images.
    """

    __table_args__ = (
        CheckConstraint("priority BETWEEN 0 AND 3", name="ck_plan_priority"),
        CheckConstraint("weight > 0 AND max_in_flight > 0", name="ck_plan_share"),
        CheckConstraint("least(price_image, price_cached, price_vlm) >= 0", name="ck_plan_price"),
    )

    plan_id: str = Field(primary_key=True)
    currency: str = "USD"
    price_image: Decimal = Field(default=Decimal(0), sa_type=PRICE)
    price_cached: Decimal = Field(default=Decimal(0), sa_type=PRICE)
    price_vlm: Decimal = Field(default=Decimal(0), sa_type=PRICE)
    monthly_images: int | None = None
    rates: dict[str, str] = Field(default_factory=dict, sa_type=Json)
    priority: int = Field(default=0, nullable=False, sa_column_kwargs={"server_default": text("0")})
    weight: float = Field(default=1.0, nullable=False, sa_column_kwargs={"server_default": text("1")})
    max_in_flight: int = Field(default=1000, nullable=False, sa_column_kwargs={"server_default": text("1000")})
    created_at: datetime = created_now()


class Account(SQLModel, table=True):
    """A tenant. `priority`, `weight` and `max_in_flight`, where set, are in the place of its plan's."""

    __table_args__ = (
        UniqueConstraint("issuer", "claim", name="uq_account_identity"),
        CheckConstraint("priority BETWEEN 0 AND 3", name="ck_account_priority"),
        CheckConstraint("weight > 0 AND max_in_flight > 0", name="ck_account_share"),
    )

    account_id: str = Field(primary_key=True)
    name: str = Field(unique=True)
    plan_id: str = Field(default="default", foreign_key="plan.plan_id")
    issuer: str | None = None
    claim: str | None = None
    priority: int | None = None
    weight: float | None = None
    max_in_flight: int | None = None
    webhook_secret: bytes | None = Field(default=None, sa_type=LargeBinary)
    webhook_secrets_old: list[bytes] = nothing_yet(BytesList)
    webhook_secrets_old_until: list[datetime] = nothing_yet(MomentList)
    created_at: datetime = created_now()
    disabled_at: datetime | None = moment()


class ApiClient(SQLModel, table=True):
    """An OAuth client of an account; only hashes of its secrets are kept."""

    __tablename__ = "api_client"

    client_id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="account.account_id", index=True)
    name: str
    scopes: list[str] = Field(sa_type=TextList)
    secret_hash: str
    secret_hash_old: str | None = None
    secret_old_until: datetime | None = moment()
    created_at: datetime = created_now()
    disabled_at: datetime | None = moment()


class SigningKey(SQLModel, table=True):
    """An Ed25519 key; `private` is encrypted, `public` is its JWK."""

    __tablename__ = "signing_key"

    kid: str = Field(primary_key=True)
    private: bytes = Field(sa_type=LargeBinary)
    public: dict[str, str] = Field(sa_type=Json)
    created_at: datetime = created_now()
    retired_at: datetime | None = moment()


class RevokedToken(SQLModel, table=True):
    """A token that is refused although it verifies; forgotten once it has expired anyway."""

    __tablename__ = "revoked_token"

    issuer: str = Field(primary_key=True)  # two issuers may use the same ids
    jti: str = Field(primary_key=True)
    expires_at: datetime = Field(sa_type=Moment, index=True)
