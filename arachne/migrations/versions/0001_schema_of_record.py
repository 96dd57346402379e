"""The schema of record."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from arachne.schemas.tables.columns import Xid8

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_usage_log",
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=True),
        sa.Column("subject", sa.String(), nullable=True),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("route", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("ms", sa.Float(), nullable=False),
        sa.Column("bytes_in", sa.BigInteger(), nullable=False),
        sa.Column("bytes_out", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("at", "request_id"),
        postgresql_partition_by="RANGE (at)",
    )
    op.create_index("ix_api_usage_log_account", "api_usage_log", ["account_id", "at"], unique=False)
    op.create_table(
        "audit_log",
        sa.Column("audit_id", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("account_id", sa.String(), nullable=True),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("detail", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("audit_id"),
    )
    op.create_index(op.f("ix_audit_log_account_id"), "audit_log", ["account_id"], unique=False)
    op.create_table(
        "blob",
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("format", sa.String(), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("sha256"),
    )
    op.create_table(
        "flight",
        sa.Column("cache_key", sa.LargeBinary(), nullable=False),
        sa.Column("image_id", sa.String(), nullable=False),
        sa.Column("worker_id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("cache_key"),
    )
    op.create_index(op.f("ix_flight_worker_id"), "flight", ["worker_id"], unique=False)
    op.create_table(
        "idempotency_key",
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=True),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("holder", sa.Uuid(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "key"),
    )
    op.create_index(op.f("ix_idempotency_key_expires_at"), "idempotency_key", ["expires_at"], unique=False)
    op.create_table(
        "image_result",
        sa.Column("result_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("cache_key", sa.LargeBinary(), nullable=True),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("model_version", sa.String(), nullable=False),
        sa.Column("pipeline_version", sa.String(), nullable=False),
        sa.Column("options_hash", sa.String(), nullable=False),
        sa.Column("units", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("result_id"),
        sa.UniqueConstraint("cache_key"),
    )
    op.create_index(op.f("ix_image_result_account_id"), "image_result", ["account_id"], unique=False)
    op.create_table(
        "plan",
        sa.Column("plan_id", sa.String(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("price_image", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("price_cached", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("price_vlm", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("monthly_images", sa.Integer(), nullable=True),
        sa.Column("rates", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("plan_id"),
    )
    op.create_table(
        "publication",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "revoked_token",
        sa.Column("jti", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("jti"),
    )
    op.create_index(op.f("ix_revoked_token_expires_at"), "revoked_token", ["expires_at"], unique=False)
    op.create_table(
        "signing_key",
        sa.Column("kid", sa.String(), nullable=False),
        sa.Column("private", sa.LargeBinary(), nullable=False),
        sa.Column("public", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("kid"),
    )
    op.create_table(
        "usage_entry",
        sa.Column("entry_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("image_id", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("cached", sa.Boolean(), nullable=False),
        sa.Column("degraded", sa.Boolean(), nullable=False),
        sa.Column("model_version", sa.String(), nullable=False),
        sa.Column("units", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("cpu_s", sa.Float(), nullable=False),
        sa.Column("gpu_s", sa.Float(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("amount", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("entry_id"),
        sa.UniqueConstraint("image_id"),
    )
    op.create_index("ix_usage_entry_account", "usage_entry", ["account_id", "at"], unique=False)
    op.create_table(
        "webhook_attempt",
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("endpoint_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
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
        sa.Column("txid", Xid8(), server_default=sa.text("pg_current_xact_id()"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("message_id"),
    )
    op.create_index("ix_webhook_message_created", "webhook_message", ["created_at"], unique=False)
    op.create_index("ix_webhook_message_feed", "webhook_message", ["account_id", "txid", "message_id"], unique=False)
    op.create_index("ix_webhook_message_job", "webhook_message", ["job_id"], unique=False)
    op.create_index(
        "uq_webhook_message_terminal",
        "webhook_message",
        ["job_id"],
        unique=True,
        postgresql_where=sa.text("type IN ('job.completed', 'job.partial', 'job.failed', 'job.cancelled')"),
    )
    op.create_table(
        "worker",
        sa.Column("worker_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("languages", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("beat_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("worker_id"),
    )
    op.create_index(op.f("ix_worker_beat_at"), "worker", ["beat_at"], unique=False)
    op.create_table(
        "account",
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("plan_id", sa.String(), nullable=False),
        sa.Column("issuer", sa.String(), nullable=True),
        sa.Column("claim", sa.String(), nullable=True),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("max_in_flight", sa.Integer(), nullable=False),
        sa.Column("webhook_secret", sa.LargeBinary(), nullable=True),
        sa.Column("webhook_secret_old", sa.LargeBinary(), nullable=True),
        sa.Column("webhook_secret_old_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["plan_id"],
            ["plan.plan_id"],
        ),
        sa.PrimaryKeyConstraint("account_id"),
        sa.UniqueConstraint("issuer", "claim", name="uq_account_identity"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "api_client",
        sa.Column("client_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("scopes", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("secret_hash", sa.String(), nullable=False),
        sa.Column("secret_hash_old", sa.String(), nullable=True),
        sa.Column("secret_old_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["account.account_id"],
        ),
        sa.PrimaryKeyConstraint("client_id"),
    )
    op.create_index(op.f("ix_api_client_account_id"), "api_client", ["account_id"], unique=False)
    op.create_table(
        "job",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("single", sa.Boolean(), nullable=False),
        sa.Column("options", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("labels", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("completed", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("cancelled", sa.Integer(), nullable=False),
        sa.Column("cached", sa.Integer(), nullable=False),
        sa.Column("degraded", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("retry_of", sa.String(), nullable=True),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("webhook_endpoint_id", sa.String(), nullable=True),
        sa.Column("webhook_events", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('queued', 'processing', 'completed', 'partial', 'failed', 'cancelled')", name="ck_job_state"
        ),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["account.account_id"],
        ),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("ix_job_account", "job", ["account_id", sa.literal_column("job_id DESC")], unique=False)
    op.create_index(
        "ix_job_deadline", "job", ["deadline_at"], unique=False, postgresql_where=sa.text("finished_at IS NULL")
    )
    op.create_index(
        "ix_job_expires", "job", ["expires_at"], unique=False, postgresql_where=sa.text("expires_at IS NOT NULL")
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
        sa.Column("secret_old", sa.LargeBinary(), nullable=True),
        sa.Column("secret_old_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("max_in_flight", sa.Integer(), nullable=False),
        sa.Column("first_failure_at", sa.DateTime(timezone=True), nullable=True),
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
        "image",
        sa.Column("image_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("source_url", sa.String(), nullable=True),
        sa.Column("sha256", sa.String(), nullable=True),
        sa.Column("format", sa.String(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("units", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claim_id", sa.Uuid(), nullable=True),
        sa.Column("worker_id", sa.String(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("lost_leases", sa.Integer(), nullable=False),
        sa.Column("cached", sa.Boolean(), nullable=False),
        sa.Column("degraded", sa.Boolean(), nullable=False),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("error_message", sa.String(), nullable=True),
        sa.Column("error_stage", sa.String(), nullable=True),
        sa.Column("model_version", sa.String(), nullable=True),
        sa.Column("cache_key", sa.LargeBinary(), nullable=True),
        sa.Column("result_id", sa.String(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('fetching', 'queued', 'parked', 'running', 'completed', 'failed', 'cancelled')",
            name="ck_image_state",
        ),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.job_id"],
        ),
        sa.ForeignKeyConstraint(
            ["result_id"],
            ["image_result.result_id"],
        ),
        sa.PrimaryKeyConstraint("image_id"),
        sa.UniqueConstraint("job_id", "index", name="uq_image_index"),
    )
    op.create_index(
        "ix_image_parked", "image", ["cache_key"], unique=False, postgresql_where=sa.text("state = 'parked'")
    )
    op.create_index(
        "ix_image_parked_account",
        "image",
        ["account_id"],
        unique=False,
        postgresql_where=sa.text("state = 'parked'"),
    )
    op.create_index(
        "ix_image_queued",
        "image",
        ["account_id", "due_at", "image_id"],
        unique=False,
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.create_index("ix_image_result", "image", ["result_id"], unique=False)
    op.create_index(
        "ix_image_running", "image", ["account_id"], unique=False, postgresql_where=sa.text("state = 'running'")
    )
    op.create_index("ix_image_sha256", "image", ["sha256"], unique=False)
    op.create_index(
        "ix_image_worker", "image", ["worker_id"], unique=False, postgresql_where=sa.text("state = 'running'")
    )
    op.create_table(
        "webhook_delivery",
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("endpoint_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("claim_id", sa.Uuid(), nullable=True),
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

    # Results are compressed already, and are read whole.
    op.execute("ALTER TABLE image_result ALTER COLUMN body SET STORAGE EXTERNAL")
    op.execute("ALTER TABLE webhook_message ALTER COLUMN body SET STORAGE EXTERNAL")
    # Queue-like tables: every row is updated a few times, so they are vacuumed early.
    for table in ("image", "job", "webhook_delivery"):
        op.execute(f"ALTER TABLE {table} SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)")
    # A row always finds a partition, even when the daily ones could not be made in time.
    for table in ("api_usage_log", "webhook_attempt"):
        op.execute(f"CREATE TABLE {table}_rest PARTITION OF {table} DEFAULT")
    op.execute(
        "INSERT INTO plan (plan_id, currency, price_image, price_cached, price_vlm, rates) "
        "VALUES ('default', 'USD', 0, 0, 0, '{}')"
    )


def downgrade() -> None:
    op.drop_index("ix_webhook_delivery_endpoint", table_name="webhook_delivery")
    op.drop_index(
        "ix_webhook_delivery_sending",
        table_name="webhook_delivery",
        postgresql_where=sa.text("claim_id IS NOT NULL"),
    )
    op.drop_index(
        "ix_webhook_delivery_due", table_name="webhook_delivery", postgresql_where=sa.text("state = 'pending'")
    )
    op.drop_table("webhook_delivery")
    op.drop_index("ix_image_worker", table_name="image", postgresql_where=sa.text("state = 'running'"))
    op.drop_index("ix_image_sha256", table_name="image")
    op.drop_index("ix_image_running", table_name="image", postgresql_where=sa.text("state = 'running'"))
    op.drop_index("ix_image_result", table_name="image")
    op.drop_index("ix_image_queued", table_name="image", postgresql_where=sa.text("state = 'queued'"))
    op.drop_index("ix_image_parked_account", table_name="image", postgresql_where=sa.text("state = 'parked'"))
    op.drop_index("ix_image_parked", table_name="image", postgresql_where=sa.text("state = 'parked'"))
    op.drop_table("image")
    op.drop_index("uq_webhook_endpoint_hidden", table_name="webhook_endpoint", postgresql_where=sa.text("hidden"))
    op.drop_index("ix_webhook_endpoint_account", table_name="webhook_endpoint")
    op.drop_table("webhook_endpoint")
    op.drop_index("ix_job_expires", table_name="job", postgresql_where=sa.text("expires_at IS NOT NULL"))
    op.drop_index("ix_job_deadline", table_name="job", postgresql_where=sa.text("finished_at IS NULL"))
    op.drop_index("ix_job_account", table_name="job")
    op.drop_table("job")
    op.drop_index(op.f("ix_api_client_account_id"), table_name="api_client")
    op.drop_table("api_client")
    op.drop_table("account")
    op.drop_index(op.f("ix_worker_beat_at"), table_name="worker")
    op.drop_table("worker")
    op.drop_index(
        "uq_webhook_message_terminal",
        table_name="webhook_message",
        postgresql_where=sa.text("type IN ('job.completed', 'job.partial', 'job.failed', 'job.cancelled')"),
    )
    op.drop_index("ix_webhook_message_job", table_name="webhook_message")
    op.drop_index("ix_webhook_message_feed", table_name="webhook_message")
    op.drop_index("ix_webhook_message_created", table_name="webhook_message")
    op.drop_table("webhook_message")
    op.drop_index("ix_webhook_attempt_delivery", table_name="webhook_attempt")
    op.drop_table("webhook_attempt")
    op.drop_index("ix_usage_entry_account", table_name="usage_entry")
    op.drop_table("usage_entry")
    op.drop_table("signing_key")
    op.drop_index(op.f("ix_revoked_token_expires_at"), table_name="revoked_token")
    op.drop_table("revoked_token")
    op.drop_table("publication")
    op.drop_table("plan")
    op.drop_index(op.f("ix_image_result_account_id"), table_name="image_result")
    op.drop_table("image_result")
    op.drop_index(op.f("ix_idempotency_key_expires_at"), table_name="idempotency_key")
    op.drop_table("idempotency_key")
    op.drop_index(op.f("ix_flight_worker_id"), table_name="flight")
    op.drop_table("flight")
    op.drop_table("blob")
    op.drop_index(op.f("ix_audit_log_account_id"), table_name="audit_log")
    op.drop_table("audit_log")
    op.drop_index("ix_api_usage_log_account", table_name="api_usage_log")
    op.drop_table("api_usage_log")
