"""Scrapes are not stored any more: a minute row has all that is asked of them.

A change of the tables goes into ``driftwatch/store/tables.py`` and here; ``python -m pytest
tests/store/test_migrations.py`` upgrades the databases of 0.11 and compares them with the tables.
"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("scrape_batches")
    names = ("plateau", "alive", "seen", "traffic", "last", "silent")
    every = " OR ".join(f"name LIKE '%tick.{name}'" for name in names)
    op.execute(f"DELETE FROM memory WHERE {every}")
