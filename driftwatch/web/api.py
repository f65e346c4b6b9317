"""``/api/v1/``: the stored documents of targets, incidents and reports as JSON, for scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from starlette.responses import Response

from driftwatch.web.fleet import FleetQuery, listed_servers
from driftwatch.web.incidents import IncidentsQuery, incident_named
from driftwatch.web.page import Paged, Query, Visit, paged
from driftwatch.web.reports import stored_report

ROOT = "/api/v1"
_SCHEMA_VERSION = 4
Size = Annotated[int, Field(ge=1, le=200)]
_JSON: TypeAdapter[Any] = TypeAdapter(Any)


@dataclass(frozen=True, slots=True)
class Resource:
    """One address below :data:`ROOT`; errors are those of a page, as JSON."""

    path: str
    load: Callable[[Visit], Mapping[str, Any]]
    query: type[Query] = Query


def _targets(visit: Visit) -> Mapping[str, Any]:
    """Servers as their newest minute left them, worst first."""
    listed = listed_servers(visit, ROOT + "/targets", visit.store.open_now())
    return {"end": visit.store.newest_minute(), "rows": listed["rows"], "part": listed["part"]}


def _incidents(visit: Visit) -> Mapping[str, Any]:
    """Incidents with their pages, open ones first."""
    query: IncidentsQuery = visit.query
    read = partial(visit.store.listed_incidents, state=query.state, text=query.q)
    rows, part = paged(query, ROOT + "/incidents", read)
    return {"rows": [one.document() for one in rows], "part": part}


def _incident(visit: Visit) -> Mapping[str, Any]:
    """The incident whose id begins so."""
    return incident_named(visit.store, visit.path["incident_id"]).document()


def _reports(visit: Visit) -> Mapping[str, Any]:
    """The weeks that have a report, and when it was made."""
    weeks = visit.store.kept_reports()
    rows, part = paged(
        visit.query, ROOT + "/reports", lambda size, at: (weeks[at : at + size], len(weeks))
    )
    return {"rows": [{"week": week, "made_at": at} for week, at in rows], "part": part}


class _TargetsQuery(FleetQuery):
    size: Size = 50


class _IncidentsQuery(IncidentsQuery):
    size: Size = 50


RESOURCES = (
    Resource("/targets", _targets, _TargetsQuery),
    Resource("/incidents", _incidents, _IncidentsQuery),
    Resource("/incidents/{incident_id}", _incident),
    Resource("/reports", _reports, Paged),
    Resource("/reports/{week}", stored_report),
)


def json_response(parts: Mapping[str, Any], status: int = 200) -> Response:
    """An answer; a document's own ``schema_version`` stands before the API's."""
    body = _JSON.dump_json({"schema_version": _SCHEMA_VERSION, **parts})
    return Response(body, status, media_type="application/json")
