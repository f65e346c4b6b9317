"""The archive of weekly reports."""

from __future__ import annotations

from driftwatch.errors import UsageError
from driftwatch.notify.numbers import clean
from driftwatch.report.week import week_named
from driftwatch.web.page import Page, View, Visit
from driftwatch.web.paging import Paged, part_of

PATH = "/reports"


def load(visit: Visit) -> View:
    """The weeks of one part."""
    kept_weeks = visit.store.kept_reports()
    listed, part = part_of(kept_weeks, visit.query, PATH)
    newest = visit.store.report(kept_weeks[0][0]) if kept_weeks else None
    return View.of(
        "Reports",
        rows=[
            {"week": name, "title": week_title(name), "path": report_path(name), "made_at": made_at}
            for name, made_at in listed
        ],
        part=part,
        newest=None if newest is None else clean(str(newest.get("summary") or "")),
    )


def week_title(name: str) -> str:
    """How people read a week's name."""
    try:
        return week_named(name).title
    except UsageError:
        return clean(name)


def report_path(week: str) -> str:
    """Where the report of a week is."""
    return f"{PATH}/{week}"


PAGE = Page(PATH, "Reports", "reports.html", load, Paged, place=3, api=PATH)
