"""The incidents: open ones first, filtered in the URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from driftwatch.model import Incident
from driftwatch.notify.headline import opening
from driftwatch.notify.numbers import clean, cut
from driftwatch.web.database import Wanted
from driftwatch.web.page import Page, Paged, View, Visit, sliced
from driftwatch.web.pages.incident import incident_path, state_of, target_text

PATH = "/incidents"
_MOST_POOLS, _LONGEST = 200, 160
State = Literal[
    "open", "firing", "taken", "silenced", "ticket", "notice", "pending", "resolved", ""
]
STATES: tuple[State, ...] = State.__args__[:-1]  # type: ignore[attr-defined]


class IncidentsQuery(Paged):
    """Which incidents are listed."""

    q: Annotated[
        str, Field(max_length=200, description="words of the alert, target, labels or id")
    ] = ""
    pool: Annotated[str, Field(max_length=300)] = ""
    alert: Annotated[str, Field(max_length=200, description="name of the rule's alert")] = ""
    rule: Annotated[str, Field(max_length=400, description="id of a rule, its labels too")] = ""
    severity: Literal["page", "ticket", "notice", ""] = ""
    state: State = ""


def load(visit: Visit) -> View:
    """The part that the query names; one behind the last is the last."""
    query: IncidentsQuery = visit.query
    wanted = Wanted(query.state, query.severity, query.alert, query.rule, query.pool, query.q)
    first = (query.page - 1) * query.size
    incidents, count = visit.store.listed_incidents(wanted, query.size, first)
    part = sliced(count, query, PATH)
    if part.page != query.page:
        first = (part.page - 1) * query.size
        incidents, _ = visit.store.listed_incidents(wanted, query.size, first)
    pools = {*visit.web.fleet.current(visit.store).pools, query.pool} - {""}
    alerts = {*visit.store.alerts_of_incidents(), query.alert} - {""}
    return View.of(
        "Incidents",
        rows=[_row(one) for one in incidents],
        part=part,
        query=query,
        is_narrowed=query.model_copy(update={"page": 1, "size": 50}) != IncidentsQuery(),
        states=STATES,
        alerts=sorted(alerts),
        pools=sorted(pools)[:_MOST_POOLS],
    )


def _row(incident: Incident) -> dict[str, Any]:
    """One incident of the list; null: its rule groups by other labels, it has not fired, …"""
    return {
        "incident_id": incident.id,
        "path": incident_path(incident.id),
        "state": state_of(incident),
        "severity": incident.severity,
        "alert": incident.alert,
        "target": target_text(incident),
        "pool": incident.target.get("pool"),
        "headline": _headline(incident.page),
        "started_at": incident.started_at,
        "resolved_at": incident.resolved_at,
        "taken_by": incident.acknowledged_by,
    }


def _headline(page: Mapping[str, Any] | None) -> str | None:
    """Line 1 without the state of when it was sent."""
    if page is None:
        return None
    return cut(clean(page["summary"].removeprefix(opening(page)).lstrip()), _LONGEST)


PAGE = Page(PATH, "Incidents", "incidents.html", load, IncidentsQuery, is_placed=True, api=PATH)
