"""Minutes, scrapes and days in standard formats; calibrations are part of the advice.

What earlier versions packed in a format of their own is not read any more: it is deleted.
So are verifications, whose documents have other fields now. Incidents, baselines, advice and
reports stay; the detectors learn anew.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in (
        *("scrape_batches", "gpu_batches", "minute_batches", "day_batches"),
        "verifications",
    ):
        op.execute(sa.delete(sa.table(name)))
    op.drop_index("ix_calibrations_at", table_name="calibrations")
    op.drop_table("calibrations")


def downgrade() -> None:
    op.create_table(
        "calibrations",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("instance", "engine", "at", name=op.f("pk_calibrations")),
    )
    op.create_index("ix_calibrations_at", "calibrations", ["at"])
