"""Jobs, their images and results, and the workers that hold them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
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
        sa.Column("reading_key", sa.LargeBinary(), nullable=True),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("model_version", sa.String(), nullable=False),
        sa.Column("pipeline_version", sa.String(), nullable=False),
        sa.Column("options_hash", sa.String(), nullable=False),
        sa.Column("reading_hash", sa.String(), nullable=True),
        sa.Column("units", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("result_id"),
        sa.UniqueConstraint("cache_key"),
    )
    op.create_index(op.f("ix_image_result_account_id"), "image_result", ["account_id"], unique=False)
    op.create_index("ix_image_result_created", "image_result", ["created_at"], unique=False)
    op.create_index("ix_image_result_sha256", "image_result", ["sha256"], unique=False)
    op.create_index(
        "ix_image_result_reading",
        "image_result",
        ["reading_key"],
        unique=False,
        postgresql_where=sa.text("reading_key IS NOT NULL"),
    )
    op.create_table(
        "erased_result",
        sa.Column("result_id", sa.String(), nullable=False),
        sa.Column("erased_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("result_id"),
    )
    op.create_index(op.f("ix_erased_result_erased_at"), "erased_result", ["erased_at"], unique=False)
    op.create_table(
        "publication",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "gate",
        sa.Column("backend", sa.String(), nullable=False),
        sa.Column("turn", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("lines", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("backend"),
    )
    op.create_table(
        "served",
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("tag", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.account_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("account_id"),
    )
    op.create_index(op.f("ix_served_tag"), "served", ["tag"], unique=False)
    op.create_table(
        "worker",
        sa.Column("worker_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("languages", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("vlm", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("beat_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("steady_since", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("worker_id"),
    )
    op.create_index(op.f("ix_worker_beat_at"), "worker", ["beat_at"], unique=False)
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
        sa.Column("traceparent", sa.String(), nullable=True),
        sa.Column("webhook_endpoint_id", sa.String(), nullable=True),
        sa.Column("webhook_events", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("erasing", sa.Boolean(), server_default=sa.text("false"), nullable=False),
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
    op.create_index("ix_job_erasing", "job", ["job_id"], unique=False, postgresql_where=sa.text("erasing"))
    op.create_index(
        "ix_job_deleted", "job", ["deleted_at"], unique=False, postgresql_where=sa.text("deleted_at IS NOT NULL")
    )
    op.create_index(
        "ix_job_expires",
        "job",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("expires_at IS NOT NULL AND deleted_at IS NULL"),
    )
    op.create_table(
        "image",
        sa.Column("image_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("source_url", sa.String(), nullable=True),
        sa.Column("source_host", sa.String(), nullable=True),
        sa.Column("fetch_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fetch_attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("sha256", sa.String(), nullable=True),
        sa.Column("format", sa.String(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("units", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("model", sa.String(), nullable=True),
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
        "ix_image_fetcher",
        "image",
        ["worker_id"],
        unique=False,
        postgresql_where=sa.text("state = 'fetching' AND worker_id IS NOT NULL"),
    )
    op.create_index(
        "ix_image_fetching",
        "image",
        ["account_id", "source_host", "fetch_at", "image_id"],
        unique=False,
        postgresql_where=sa.text("state = 'fetching'"),
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
    op.create_index(
        "ix_image_queued_model",
        "image",
        [sa.literal_column("coalesce(model, '')"), "account_id", "due_at", "image_id"],
        unique=False,
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.create_index(
        "ix_image_read",
        "image",
        ["finished_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('completed', 'failed') AND NOT cached AND started_at IS NOT NULL"),
    )
    op.create_index("ix_image_result", "image", ["result_id"], unique=False)
    op.create_index(
        "ix_image_running", "image", ["account_id"], unique=False, postgresql_where=sa.text("state = 'running'")
    )
    op.create_index("ix_image_sha256", "image", ["sha256"], unique=False)
    op.create_index(
        "ix_image_worker", "image", ["worker_id"], unique=False, postgresql_where=sa.text("state = 'running'")
    )
    # Results are compressed already, and are read whole.
    op.execute("ALTER TABLE image_result ALTER COLUMN body SET STORAGE EXTERNAL")
    # Queue-like tables: every row is updated a few times, so they are vacuumed early.
    for table in ("image", "job", "served"):
        op.execute(f"ALTER TABLE {table} SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)")


def downgrade() -> None:
    for table in ("image", "job", "worker", "served", "gate", "publication", "erased_result", "image_result"):
        op.drop_table(table)
    for table in ("idempotency_key", "flight", "blob"):
        op.drop_table(table)
