"""Endpoints, events with frozen bodies, deliveries and attempts."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from arachne.schemas.tables.columns import Xid8

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhook_attempt",
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("endpoint_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("cause", sa.String(), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("ms", sa.BigInteger(), nullable=False),
        sa.Column("failure", sa.String(), nullable=True),
        sa.Column("response", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("at", "attempt_id"),
        postgresql_partition_by="RANGE (at)",
    )
    op.create_index("ix_webhook_attempt_delivery", "webhook_attempt", ["message_id", "endpoint_id"], unique=False)
    op.create_table(
        "webhook_message",
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("redacted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("txid", Xid8(), server_default=sa.text("pg_current_xact_id()"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("message_id"),
    )
    op.create_index("ix_webhook_message_created", "webhook_message", ["created_at"], unique=False)
    op.create_index("ix_webhook_message_feed", "webhook_message", ["account_id", "txid", "message_id"], unique=False)
    op.create_index("ix_webhook_message_job", "webhook_message", ["job_id", "sequence"], unique=False)
    op.create_index(
        "uq_webhook_message_terminal",
        "webhook_message",
        ["job_id"],
        unique=True,
        postgresql_where=sa.text("type IN ('job.completed', 'job.partial', 'job.failed', 'job.cancelled')"),
    )
    op.create_table(
        "webhook_endpoint",
        sa.Column("endpoint_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("events", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("hidden", sa.Boolean(), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=True),
        sa.Column("secrets_old", sa.ARRAY(sa.LargeBinary()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column(
            "secrets_old_until", sa.ARRAY(sa.DateTime(timezone=True)), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column("max_in_flight", sa.Integer(), nullable=False),
        sa.Column("first_failure_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("half_open", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("disabled_reason", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["account.account_id"],
        ),
        sa.PrimaryKeyConstraint("endpoint_id"),
    )
    op.create_index("ix_webhook_endpoint_account", "webhook_endpoint", ["account_id", "endpoint_id"], unique=False)
    op.create_index(
        "uq_webhook_endpoint_hidden",
        "webhook_endpoint",
        ["account_id", "url"],
        unique=True,
        postgresql_where=sa.text("hidden"),
    )
    op.create_table(
        "webhook_delivery",
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("endpoint_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("charged", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("cause", sa.String(), server_default=sa.text("'event'"), nullable=False),
        sa.Column("redelivery", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("claim_id", sa.Uuid(), nullable=True),
        sa.Column("worker_id", sa.String(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('pending', 'succeeded', 'failed', 'cancelled')", name="ck_webhook_delivery_state"
        ),
        sa.ForeignKeyConstraint(
            ["endpoint_id"],
            ["webhook_endpoint.endpoint_id"],
        ),
        sa.ForeignKeyConstraint(
            ["message_id"],
            ["webhook_message.message_id"],
        ),
        sa.PrimaryKeyConstraint("message_id", "endpoint_id"),
    )
    op.create_index(
        "ix_webhook_delivery_due",
        "webhook_delivery",
        ["endpoint_id", "next_attempt_at", "message_id"],
        unique=False,
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index(
        "ix_webhook_delivery_sending",
        "webhook_delivery",
        ["endpoint_id"],
        unique=False,
        postgresql_where=sa.text("claim_id IS NOT NULL"),
    )
    op.create_index(
        "ix_webhook_delivery_endpoint",
        "webhook_delivery",
        ["endpoint_id", sa.literal_column("message_id DESC")],
        unique=False,
    )
    # A queue: every row is updated a few times, so it is vacuumed early.
    op.execute("ALTER TABLE webhook_delivery SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)")
    # A row always finds a partition, even when the daily ones could not be made in time.
    op.execute("CREATE TABLE webhook_attempt_rest PARTITION OF webhook_attempt DEFAULT")


def downgrade() -> None:
    for table in ("webhook_delivery", "webhook_endpoint", "webhook_message", "webhook_attempt"):
        op.drop_table(table)
