"""The report of one week, as it was written then."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from driftwatch.notify.numbers import clean, plural
from driftwatch.plots.plot import Plot
from driftwatch.report.figures import plots_of
from driftwatch.report.sections import below
from driftwatch.report.text import HEADER, MOVED, drift_cells, part_text, sections
from driftwatch.web.page import Link, NotFound, Page, Part, View, Visit
from driftwatch.web.pages.reports import report_path, week_title

PATH = "/reports/{week}"
_MOST_ROWS, _NEAR = 400, 5
# what a document of another version raises
_UNDRAWABLE = (KeyError, TypeError, ValueError, AttributeError)


class ReportLine(Part):
    """Lines of the top screen under one label."""

    label: str
    texts: tuple[str, ...]


class ReportTable(Part):
    """A section of the report."""

    key: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int = Field(description="rows that are left out here; the document has them")
    numeric: tuple[int, ...]
    notes: tuple[str, ...]


class ReportView(View):
    """One week's report: its texts, and the document that they are made of."""

    week: str
    fleet: str
    until: str | None = Field(description="where the week was not over")
    top: tuple[ReportLine, ...]
    drift: ReportTable | None
    sections: tuple[ReportTable, ...]
    reason: str | None = Field(description="why there are no sections")
    document: dict[str, Any] = Field(description="as driftwatch report --json prints it")
    before: Link | None
    after: Link | None


def load(visit: Visit) -> ReportView:
    """The report of the path's week; raises NotFound: there is none, with weeks near it."""
    name = visit.path["week"]
    weeks = sorted(week for week, _ in visit.store.kept_reports())
    document = visit.store.report(name) if name in weeks else None
    if document is None:
        close = difflib.get_close_matches(name, weeks, n=_NEAR, cutoff=0.5) or weeks[-_NEAR:]
        near = tuple(Link(text=week_title(one), path=report_path(one)) for one in close)
        raise NotFound(f"There is no report of week {clean(name)[:40]}.", near)
    at = weeks.index(name)
    try:
        drawn_parts, reason = _parts(document), None
    except _UNDRAWABLE:
        # one that another version wrote may lack what this one draws
        drawn_parts = _bare(document)
        reason = "another version of driftwatch wrote this report; its JSON has all of it"
    return ReportView(
        title=week_title(name),
        week=name,
        reason=reason,
        document=document,
        before=_link(weeks[at - 1]) if at else None,
        after=_link(weeks[at + 1]) if at + 1 < len(weeks) else None,
        **drawn_parts,
    )


def _link(week: str) -> Link:
    return Link(text=week_title(week), path=report_path(week))


def _parts(document: Mapping[str, Any]) -> dict[str, Any]:
    """The texts of the report, as every form of it has them."""
    fleet = document["fleet"]
    drift = None
    if document["drift"]:
        rows = tuple(tuple(map(clean, row)) for row in drift_cells(document))
        drift = _table("moved", MOVED, tuple(name.capitalize() for name in HEADER), rows)
    tables = [
        _table(
            one.key, one.title, one.header, one.rows, notes=one.notes, numeric=sorted(one.numeric)
        )
        for one in below(document)
    ]
    return {
        "fleet": f"{plural(fleet['pools'], 'pool')}, {plural(fleet['servers'], 'server')}",
        "until": part_text(document) or None,
        "top": tuple(
            ReportLine(label=label, texts=tuple(map(clean, texts)))
            for label, texts in sections(document)
        ),
        "drift": drift,
        "sections": tuple(tables),
    }


def plots(view: ReportView) -> dict[str, Plot]:
    """The drawings of the report: key of the section, a dash, a number."""
    if view.reason is not None:
        return {}
    try:
        by_section = plots_of(view.document)
    except _UNDRAWABLE:
        return {}
    return {
        f"{key}-{number}": one
        for key, several in by_section.items()
        for number, one in enumerate(several)
    }


def _bare(document: Mapping[str, Any]) -> dict[str, Any]:
    """What every version wrote: the summary."""
    summary = clean(str(document.get("summary") or "no summary"))
    return {
        "fleet": "",
        "until": None,
        "top": (ReportLine(label="Summary", texts=(summary,)),),
        "drift": None,
        "sections": (),
    }


def _table(
    key: str,
    title: str,
    header: tuple[str, ...],
    rows: tuple[tuple[str, ...], ...],
    *,
    notes: tuple[str, ...] = (),
    numeric: list[int] | None = None,
) -> ReportTable:
    return ReportTable(
        key=key,
        title=title,
        header=tuple(name or "notes" for name in header),
        rows=rows[:_MOST_ROWS],
        more=max(0, len(rows) - _MOST_ROWS),
        numeric=tuple(numeric or ()),
        notes=notes,
    )


PAGE = Page(PATH, "Report of a week", "report.html", ReportView, load, plots=plots, api=PATH)
