"""The pages of a backtest: leaf and line 1 as the live pipeline writes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Severity
from driftwatch.notify.page import Page


@dataclass(frozen=True, slots=True)
class PastPage:
    """One incident that would have been sent, from its first page to its end."""

    id: str  # of the incident, as the live service would have called it
    rule: str  # rule id
    alert: str  # alert name
    severity: Severity
    pool: str
    where: str  # its only server, else the pool
    started_at: datetime  # when the condition became true
    fired_at: datetime
    resolved_at: datetime | None = None  # None = it fires still at the end of the history
    closed: str | None = None  # why it ended although its condition was not false, else None
    leaf: str | None = None  # where its diagnosis ended, None without one
    headline: str = ""  # line 1 of its first page
    servers: tuple[str, ...] = ()  # the first of those that its first page is about

    @classmethod
    def of(cls, incident: Incident) -> PastPage:
        """A page without what it says."""
        return cls(
            id=incident.id,
            rule=incident.rule,
            alert=incident.alert,
            severity=incident.severity,
            pool=incident.pool,
            where=incident.name,
            started_at=incident.started_at,
            fired_at=incident.firing_at or incident.started_at,
            resolved_at=incident.resolved_at,
        )


def past_pages(transitions: Iterable[Transition]) -> list[PastPage]:
    """What fired, in order; each with its end."""
    pages: dict[str, PastPage] = {}
    for transition in transitions:
        incident, page = transition.incident, transition.incident.page
        if transition.event == "firing":
            pages[incident.id] = _fired(incident, page)
        elif incident.id not in pages:
            continue
        elif transition.event == "resolved":
            pages[incident.id] = replace(
                pages[incident.id], resolved_at=transition.at, closed=transition.reason
            )
    return list(pages.values())


def _fired(incident: Incident, page: Page | None) -> PastPage:
    if page is None:
        return PastPage.of(incident)
    return replace(
        PastPage.of(incident),
        leaf=page.leaf,
        headline=page.summary.partition(". No advice:")[0],
        servers=page.servers.first,
    )
