"""The weekly reports that the service wrote: the list of them, and one as it was written then."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from driftwatch.errors import UsageError
from driftwatch.numbers import clean
from driftwatch.report.html import as_html_body
from driftwatch.report.report import Report
from driftwatch.report.week import week_named, week_of
from driftwatch.web.page import Api, Link, NotFound, Page, Paged, Shown, Slice, Visit, paged

PATH, WEEK = "/reports", "/reports/{week}"
_MOST_WEEKS = 8  # without a report, that are offered


def load_list(visit: Visit) -> Shown:
    """The weeks of one part."""
    weeks = visit.store.kept_reports()
    listed, part = _part(visit)
    newest = visit.store.report(weeks[0][0]) if weeks else None
    return {
        "title": "Reports",
        "rows": [(_link(name), made_at) for name, made_at in listed],
        "part": part,
        "makeable": [*_makeable(visit, {week for week, _ in weeks})],
        "newest": None if newest is None else clean(str(newest.get("summary") or "")),
    }


def _part(visit: Visit) -> tuple[Sequence[tuple[str, datetime]], Slice]:
    weeks = visit.store.kept_reports()
    return paged(visit.query, PATH, lambda size, at: (weeks[at : at + size], len(weeks)))


def _makeable(visit: Visit, made: Collection[str]) -> Iterator[tuple[str, str, bool]]:
    """Title, command and whether it is over, of weeks with minutes and no report; newest first."""
    if (reach := visit.store.minutes_reach()) is None:
        return
    week, first = week_of(reach[1] - timedelta(minutes=1)), week_of(reach[0])
    for _ in range(_MOST_WEEKS):
        if week.name not in made:
            file = f"report-{week.name}.html"
            command = visit.web.command("report", "--week", week.name, "--html", file)
            yield week.title, command, week.end <= visit.now
        if week == first:
            return
        week = week.before


def load(visit: Visit) -> Shown:
    """The report of the path's week; raises NotFound: there is none."""
    name, stored = visit.path["week"], document(visit)
    weeks = sorted(week for week, _ in visit.store.kept_reports())
    at = weeks.index(name)
    # one that another version wrote may lack what this one draws
    is_drawn = stored.get("schema_version") == Report.model_fields["schema_version"].default
    return {
        "title": _link(name).text,
        "summary": clean(str(stored.get("summary") or "no summary")),
        # its template escapes every text
        "report": as_html_body(Report.model_validate(stored)) if is_drawn else None,
        "before": _link(weeks[at - 1]) if at else None,
        "after": _link(weeks[at + 1]) if at + 1 < len(weeks) else None,
    }


def documents(visit: Visit) -> Mapping[str, Any]:
    """The weeks that have a report, and when it was made."""
    listed, part = _part(visit)
    return {"rows": [{"week": week, "made_at": at} for week, at in listed], "part": part}


def document(visit: Visit) -> Mapping[str, Any]:
    """The report as it is stored."""
    name = visit.path["week"]
    found = visit.store.report(name)
    if found is None:
        raise NotFound(
            f"There is no report of week {clean(name)[:40]}.", Link("Every report", PATH)
        )
    return found


def _link(week: str) -> Link:
    try:
        text = week_named(week).title
    except UsageError:
        text = clean(week)
    return Link(text, f"{PATH}/{week}")


LIST = Page(PATH, "Reports", "reports.html", load_list, Paged, is_placed=True)
PAGE = Page(WEEK, "Report of a week", "report.html", load)
APIS = (Api(PATH, documents, Paged), Api(WEEK, document))
