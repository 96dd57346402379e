"""Who may call: plans, accounts, clients, and the keys tokens are signed with."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "plan",
        sa.Column("plan_id", sa.String(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("price_image", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("price_cached", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("price_vlm", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("monthly_images", sa.Integer(), nullable=True),
        sa.Column("rates", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("priority", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("weight", sa.Float(), server_default=sa.text("1"), nullable=False),
        sa.Column("max_in_flight", sa.Integer(), server_default=sa.text("1000"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("priority BETWEEN 0 AND 3", name="ck_plan_priority"),
        sa.CheckConstraint("weight > 0 AND max_in_flight > 0", name="ck_plan_share"),
        sa.CheckConstraint("least(price_image, price_cached, price_vlm) >= 0", name="ck_plan_price"),
        sa.PrimaryKeyConstraint("plan_id"),
    )
    op.create_table(
        "revoked_token",
        sa.Column("issuer", sa.String(), nullable=False),
        sa.Column("jti", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("issuer", "jti"),
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
        "account",
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("plan_id", sa.String(), nullable=False),
        sa.Column("issuer", sa.String(), nullable=True),
        sa.Column("claim", sa.String(), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=True),
        sa.Column("weight", sa.Float(), nullable=True),
        sa.Column("max_in_flight", sa.Integer(), nullable=True),
        sa.Column("webhook_secret", sa.LargeBinary(), nullable=True),
        sa.Column("webhook_secrets_old", sa.ARRAY(sa.LargeBinary()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column(
            "webhook_secrets_old_until",
            sa.ARRAY(sa.DateTime(timezone=True)),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("priority BETWEEN 0 AND 3", name="ck_account_priority"),
        sa.CheckConstraint("weight > 0 AND max_in_flight > 0", name="ck_account_share"),
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
    op.execute(
        "INSERT INTO plan (plan_id, currency, price_image, price_cached, price_vlm, rates) "
        "VALUES ('default', 'USD', 0, 0, 0, '{}')"
    )
    # A view, so that claims and estimates mean the same share.
    op.execute(
        "CREATE VIEW account_share AS SELECT account_id, "
        "coalesce(account.weight, plan.weight) * power(4, coalesce(account.priority, plan.priority)) AS weight, "
        "coalesce(account.max_in_flight, plan.max_in_flight) AS max_in_flight "
        "FROM account JOIN plan USING (plan_id)"
    )


def downgrade() -> None:
    op.execute("DROP VIEW account_share")
    for table in ("api_client", "account", "signing_key", "revoked_token", "plan"):
        op.drop_table(table)
