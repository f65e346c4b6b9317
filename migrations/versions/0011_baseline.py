"""The schema of driftwatch 0.11: the oldest that is upgraded.

A new database is made from ``driftwatch/store/tables.py``, at the newest revision. One of 0.11 is
at this revision and runs those after it. An older one is refused: 0.11 upgrades it to this.
"""

from __future__ import annotations

revision = "0011"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    raise NotImplementedError("a new database is made from the tables, not by revisions")
