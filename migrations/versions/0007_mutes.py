"""Which time interval holds an incident's page back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("incidents", sa.Column("muted_by", sa.Text()))


def downgrade() -> None:
    op.drop_column("incidents", "muted_by")
