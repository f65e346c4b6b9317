"""Notes on incidents, and who did what on the web, beside acknowledgements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_BEFORE = "action IN ('acknowledge', 'unacknowledge')"
_AFTER = (
    "action IN ('acknowledge', 'unacknowledge', 'note', 'mark', 'unmark', 'silence', "
    "'extend silence', 'end silence', 'accept baseline', 'refuse baseline', 'forecast')"
)
_NAME = "ck_actions_action"
_ID = sa.String(length=12)


def upgrade() -> None:
    collation = "C" if op.get_bind().dialect.name == "postgresql" else None
    with op.batch_alter_table("actions") as batch:
        batch.add_column(sa.Column("subject", sa.Text(collation=collation)))
        batch.alter_column("incident_id", existing_type=_ID, nullable=True)
        batch.drop_constraint(op.f(_NAME), type_="check")
        batch.create_check_constraint(op.f(_NAME), _AFTER)


def downgrade() -> None:
    op.execute(f"DELETE FROM actions WHERE incident_id IS NULL OR NOT ({_BEFORE})")
    with op.batch_alter_table("actions") as batch:
        batch.drop_column("subject")
        batch.alter_column("incident_id", existing_type=_ID, nullable=False)
        batch.drop_constraint(op.f(_NAME), type_="check")
        batch.create_check_constraint(op.f(_NAME), _BEFORE)
