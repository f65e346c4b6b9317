"""What detection remembers: minutes, days, the detectors' memory, and pinned baselines."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# as UtcTime of that day: a migration stays what it was when the code moves on
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "minute_batches",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("since", _TIME, nullable=False),
        sa.Column("until", _TIME, nullable=False),
        sa.Column("seconds", sa.Integer(), nullable=False),
        sa.Column("packed", sa.Integer(), nullable=False),
        sa.Column("first_instance", sa.Text(), nullable=False),
        sa.Column("last_instance", sa.Text(), nullable=False),
        sa.Column("frame", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_minute_batches")),
    )
    op.create_index("ix_minute_batches_until", "minute_batches", ["until"], unique=False)
    op.create_table(
        "day_batches",
        sa.Column("day", _TIME, nullable=False),
        sa.Column("frame", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_day_batches")),
    )
    op.create_table(
        "checkpoint",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("frame", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_checkpoint")),
    )
    op.create_table(
        "pins",
        sa.Column("id", sa.String(length=12), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("instance", sa.Text(), nullable=True),
        sa.Column("engine", sa.Text(), nullable=True),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("accepted_at", _TIME, nullable=False),
        sa.Column("accepted_by", sa.Text(), nullable=False),
        sa.Column("retired_at", _TIME, nullable=True),
        sa.Column("document", sa.Text(), nullable=False),
        sa.CheckConstraint("scope IN ('target', 'pool')", name=op.f("ck_pins_scope")),
        sa.CheckConstraint(
            "(scope = 'target') = (instance IS NOT NULL)", name=op.f("ck_pins_instance")
        ),
        sa.CheckConstraint(
            "(scope = 'target') = (engine IS NOT NULL)", name=op.f("ck_pins_engine")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pins")),
    )
    op.create_index("ix_pins_accepted_at", "pins", ["accepted_at"], unique=False)
    # by which alert an incident is kept from firing
    op.add_column("incidents", sa.Column("inhibited_by", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("incidents", "inhibited_by")
    op.drop_index("ix_pins_accepted_at", table_name="pins")
    op.drop_table("pins")
    op.drop_table("checkpoint")
    op.drop_table("day_batches")
    op.drop_index("ix_minute_batches_until", table_name="minute_batches")
    op.drop_table("minute_batches")
