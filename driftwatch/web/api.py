"""``/api/v1/``: the stored documents of targets, incidents and reports as JSON, for scripts.

Errors are those of a page, as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from starlette.responses import Response

from driftwatch.web.fleet import FleetQuery, listed_servers
from driftwatch.web.incidents import LIST_PATH, IncidentsQuery, incident_named, listed_incidents
from driftwatch.web.page import Page, Paged, Shown, Visit, paged
from driftwatch.web.reports import stored_report

ROOT = "/api/v1"
_SCHEMA_VERSION = 4
_JSON: TypeAdapter[Any] = TypeAdapter(Any)


def _targets(visit: Visit) -> Shown:
    """Servers as their newest minute left them, worst first."""
    listed = listed_servers(visit, ROOT + "/targets", visit.store.open_now(visit.now))
    return {"end": visit.store.newest_minute(), "rows": listed["rows"], "part": listed["part"]}


def _incidents(visit: Visit) -> Shown:
    """Incidents with their pages, open ones first."""
    rows, part, _ = listed_incidents(visit, ROOT + LIST_PATH)
    return {"rows": [one.document() for one in rows], "part": part}


def _incident(visit: Visit) -> Shown:
    """The incident whose id begins so."""
    return incident_named(visit.store, visit.path["incident_id"]).document()


def _reports(visit: Visit) -> Shown:
    """The weeks that have a report, and when it was made."""
    rows, part = paged(visit.query, ROOT + "/reports", visit.store.kept_reports)
    return {"rows": [{"week": week, "made_at": at} for week, at in rows], "part": part}


PAGES = (
    Page(ROOT + "/targets", "", "", _targets, FleetQuery),
    Page(ROOT + "/incidents", "", "", _incidents, IncidentsQuery),
    Page(ROOT + "/incidents/{incident_id}", "", "", _incident),
    Page(ROOT + "/reports", "", "", _reports, Paged),
    Page(ROOT + "/reports/{week}", "", "", stored_report),
)


def json_response(parts: Mapping[str, Any], status: int = 200) -> Response:
    """An answer; a document's own ``schema_version`` stands before the API's."""
    body = _JSON.dump_json({"schema_version": _SCHEMA_VERSION, **parts})
    return Response(body, status, media_type="application/json")
