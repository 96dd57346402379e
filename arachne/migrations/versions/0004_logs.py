"""What was used, by whom, and what operators did."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Erasing an account forgets who sent its images; whatever else would change the ledger fails.
KEEP_LEDGER = """
CREATE FUNCTION keep_ledger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        OLD.subject := '';
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'usage_entry is append-only' USING ERRCODE = 'restrict_violation';
END $$
"""
KEEP_AUDIT = """
CREATE FUNCTION keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit_log is append-only' USING ERRCODE = 'restrict_violation';
END $$
"""


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
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("os_user", sa.String(), nullable=True),
        sa.Column("command", sa.String(), nullable=True),
        sa.Column("actor_account_id", sa.String(), nullable=True),
        sa.Column("subject", sa.String(), nullable=True),
        sa.Column("client_id", sa.String(), nullable=True),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=True),
        sa.Column("target", sa.String(), nullable=True),
        sa.Column("detail", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("audit_id"),
    )
    op.create_index("ix_audit_log_action", "audit_log", ["action", "audit_id"], unique=False)
    op.create_index(op.f("ix_audit_log_account_id"), "audit_log", ["account_id"], unique=False)
    op.execute(KEEP_AUDIT)
    op.execute(
        "CREATE TRIGGER audit_log_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log "
        "FOR EACH STATEMENT EXECUTE FUNCTION keep_audit()"
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
        sa.Column("plan_id", sa.String(), nullable=False),
        sa.Column("unit_price", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("vlm_price", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("amount", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.CheckConstraint("amount = units * unit_price + vlm_price", name="ck_usage_entry_amount"),
        sa.PrimaryKeyConstraint("entry_id"),
        sa.UniqueConstraint("image_id"),
    )
    op.create_index(
        "ix_usage_entry_account", "usage_entry", ["account_id", "at"], unique=False, postgresql_include=["units"]
    )
    op.execute(KEEP_LEDGER)
    op.execute(
        "CREATE TRIGGER usage_entry_kept BEFORE UPDATE OR DELETE ON usage_entry "
        "FOR EACH ROW EXECUTE FUNCTION keep_ledger()"
    )
    op.execute(
        "CREATE TRIGGER usage_entry_kept_whole BEFORE TRUNCATE ON usage_entry "
        "FOR EACH STATEMENT EXECUTE FUNCTION keep_ledger()"
    )
    # A row always finds a partition, even when the daily ones could not be made in time.
    op.execute("CREATE TABLE api_usage_log_rest PARTITION OF api_usage_log DEFAULT")


def downgrade() -> None:
    for table in ("usage_entry", "audit_log", "api_usage_log"):
        op.drop_table(table)
    op.execute("DROP FUNCTION keep_ledger()")
    op.execute("DROP FUNCTION keep_audit()")
