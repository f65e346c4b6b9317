"""How often rules fired, and what people said of their pages."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import case, func, literal_column, or_, select

from driftwatch.store.database import Database
from driftwatch.store.tables import incidents, marks

_COLUMN = incidents.c
_MOST_ROWS = 10_000


class RuleCount(NamedTuple):
    """Incidents of one rule that are alike."""

    rule: str
    severity: str
    is_quiet: bool  # a silence or a time interval held the page back
    mark: str | None  # useful, not useful, None = nobody marked it
    incidents: int
    last_firing_at: datetime


class RuleCounts(Database):
    """Part of the web's store: what rules fired."""

    def rule_counts(self, since: datetime) -> list[RuleCount]:
        """Incidents that fired since then, counted by rule, severity, quiet and mark."""
        quiet = or_(_COLUMN.silenced_by.is_not(None), _COLUMN.muted_by.is_not(None))
        # no bound values: PostgreSQL takes two of them for two expressions, and groups by one
        is_quiet = case((quiet, literal_column("1")), else_=literal_column("0"))
        kinds = (_COLUMN.rule, _COLUMN.severity, is_quiet, marks.c.mark)
        query = (
            select(*kinds, func.count(), func.max(_COLUMN.firing_at))
            .outerjoin(marks, marks.c.incident_id == _COLUMN.id)
            .where(_COLUMN.firing_at >= since)
            .group_by(*kinds)
            .order_by(*kinds)
            .limit(_MOST_ROWS)
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return [RuleCount(row[0], row[1], bool(row[2]), *row[3:]) for row in rows]

    def firing_rules(self) -> dict[str, int]:
        """Rule → how many of its incidents fire now."""
        query = select(_COLUMN.rule, func.count()).where(_COLUMN.state == "firing")
        with self._reading() as connection:
            return {row[0]: row[1] for row in connection.execute(query.group_by(_COLUMN.rule))}
