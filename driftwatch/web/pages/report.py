"""The report of one week, as it was written then."""

from __future__ import annotations

import difflib
from typing import Any

from driftwatch.notify.numbers import clean
from driftwatch.report.document import SCHEMA_VERSION
from driftwatch.report.forms import as_html_body
from driftwatch.web.page import Link, NotFound, Page, View, Visit
from driftwatch.web.pages.reports import report_path, week_title

PATH = "/reports/{week}"
_NEAR = 5


def load(visit: Visit) -> View:
    """The report of the path's week; raises NotFound: there is none, with weeks near it."""
    name = visit.path["week"]
    weeks = sorted(week for week, _ in visit.store.kept_reports())
    document = visit.store.report(name) if name in weeks else None
    if document is None:
        close = difflib.get_close_matches(name, weeks, n=_NEAR, cutoff=0.5) or weeks[-_NEAR:]
        near = tuple(Link(text=week_title(one), path=report_path(one)) for one in close)
        raise NotFound(f"There is no report of week {clean(name)[:40]}.", near)
    at = weeks.index(name)
    # one that another version wrote may lack what this one draws
    is_drawn = document.get("schema_version") == SCHEMA_VERSION
    other = "another version of driftwatch wrote this report; its JSON has all of it"
    return View.of(
        week_title(name),
        week=name,
        summary=clean(str(document.get("summary") or "no summary")),
        reason=None if is_drawn else other,
        document=document,
        before=_link(weeks[at - 1]) if at else None,
        after=_link(weeks[at + 1]) if at + 1 < len(weeks) else None,
    )


def _link(week: str) -> Link:
    return Link(text=week_title(week), path=report_path(week))


def drawn(view: Any) -> dict[str, str]:
    """The report itself, which is drawn as its file is."""
    return {} if view.reason else {"report": as_html_body(view.document)}


PAGE = Page(PATH, "Report of a week", "report.html", load, plots=drawn, api=PATH)
