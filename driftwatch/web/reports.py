"""The weekly reports that the service wrote: their list, and each as it was written."""

from __future__ import annotations

from typing import Any

from driftwatch.numbers import clean
from driftwatch.report.html import as_html_body
from driftwatch.report.report import Report
from driftwatch.report.week import week_named, week_of
from driftwatch.web.page import Link, NotFound, Page, Paged, Shown, Visit, paged

PATH, WEEK = "/reports", "/reports/{week}"


def load_list(visit: Visit) -> Shown:
    """One part of the weeks, the newest first."""
    end, reach = visit.store.newest_minute(), visit.store.minutes_reach()
    week = week_of(end or visit.now).name
    rows, part = paged(visit.query, PATH, visit.store.kept_reports)
    return {
        "title": "Reports",
        "end": end,
        "rows": [(week, week_named(week).title, made_at) for week, made_at in rows],
        "part": part,
        "weeks": [*dict.fromkeys(week_of(at).name for at in reach or ())],  # first and last stored
        "make": visit.web.command("report", "--week", week, "--html", f"report-{week}.html"),
    }


def load(visit: Visit) -> Shown:
    """The page of the path's week."""
    stored = stored_report(visit)
    # another version's report may lack what this version draws
    is_drawn = stored.get("schema_version") == Report.model_fields["schema_version"].default
    return {
        "title": week_named(visit.path["week"]).title,
        "summary": clean(str(stored.get("summary") or "no summary")),
        # its template escapes every text
        "report": as_html_body(Report.model_validate(stored)) if is_drawn else None,
    }


def stored_report(visit: Visit) -> dict[str, Any]:
    """The stored report of the path's week.

    Raises NotFound: there is none.
    """
    name = visit.path["week"]
    if (stored := visit.store.report(name)) is None:
        message = f"There is no report of week {clean(name)[:40]}."
        raise NotFound(message, Link("Every report", PATH))
    return stored


LIST = Page(PATH, "Reports", "reports.html", load_list, Paged)
PAGE = Page(WEEK, "Report of a week", "report.html", load)
