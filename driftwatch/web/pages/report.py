"""The weekly reports that the service wrote: the list of them, and one as it was written then."""

from __future__ import annotations

import difflib
from typing import Any

from driftwatch.errors import UsageError
from driftwatch.numbers import clean
from driftwatch.report.document import SCHEMA_VERSION
from driftwatch.report.forms import as_html_body
from driftwatch.report.week import week_named
from driftwatch.web.page import Link, NotFound, Page, Paged, View, Visit, part_of

PATH = "/reports"
_NEAR = 5


def load_list(visit: Visit) -> View:
    """The weeks of one part."""
    kept_weeks = visit.store.kept_reports()
    listed, part = part_of(kept_weeks, visit.query, PATH)
    newest = visit.store.report(kept_weeks[0][0]) if kept_weeks else None
    return View.of(
        "Reports",
        rows=[
            {"week": name, "title": link.text, "path": link.path, "made_at": made_at}
            for name, made_at in listed
            for link in (_link(name),)
        ],
        part=part,
        newest=None if newest is None else clean(str(newest.get("summary") or "")),
    )


def load(visit: Visit) -> View:
    """The report of the path's week; raises NotFound: there is none, with weeks near it."""
    name = visit.path["week"]
    weeks = sorted(week for week, _ in visit.store.kept_reports())
    document = visit.store.report(name) if name in weeks else None
    if document is None:
        close = difflib.get_close_matches(name, weeks, n=_NEAR, cutoff=0.5) or weeks[-_NEAR:]
        raise NotFound(f"There is no report of week {clean(name)[:40]}.", tuple(map(_link, close)))
    at = weeks.index(name)
    # one that another version wrote may lack what this one draws
    is_drawn = document.get("schema_version") == SCHEMA_VERSION
    other = "another version of driftwatch wrote this report; its JSON has all of it"
    return View.of(
        _link(name).text,
        week=name,
        summary=clean(str(document.get("summary") or "no summary")),
        reason=None if is_drawn else other,
        document=document,
        before=_link(weeks[at - 1]) if at else None,
        after=_link(weeks[at + 1]) if at + 1 < len(weeks) else None,
    )


def _link(week: str) -> Link:
    try:
        text = week_named(week).title
    except UsageError:
        text = clean(week)
    return Link(text, f"{PATH}/{week}")


def drawn(view: Any) -> dict[str, str]:
    """The report itself, which is drawn as its file is."""
    return {} if view.reason else {"report": as_html_body(view.document)}


WEEK = f"{PATH}/{{week}}"
LIST = Page(PATH, "Reports", "reports.html", load_list, Paged, is_placed=True, api=PATH)
PAGE = Page(
    f"{PATH}/{{week}}", "Report of a week", "report.html", load, plots=drawn, api=f"{PATH}/{{week}}"
)
