"""The weekly reports that the service wrote."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select

from driftwatch.store.database import Database
from driftwatch.store.tables import reports

_MOST_WEEKS = 1000


class KeptReports(Database):
    """Part of the web's store: the archive of reports."""

    def kept_reports(self) -> list[tuple[str, datetime]]:
        """(week, when its report was made), the newest week first; at most 1,000."""
        query = select(reports.c.week, reports.c.made_at).order_by(reports.c.week.desc())
        with self._reading() as connection:
            return [(row[0], row[1]) for row in connection.execute(query.limit(_MOST_WEEKS))]
