"""A week's material → its report, with PAGES, ADVICE and BLIND. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from driftwatch.notify.page import web_address
from driftwatch.report.blind import blind
from driftwatch.report.changes import record
from driftwatch.report.costs import with_unanswered
from driftwatch.report.decisions import decisions
from driftwatch.report.incidents import fired_in
from driftwatch.report.material import Material
from driftwatch.report.moved import causes_of, moved_rows
from driftwatch.report.outside import outside
from driftwatch.report.pools import pool_rows
from driftwatch.report.report import Links, Pages, Report, Span
from driftwatch.report.words import message_lines, summary
from driftwatch.store.actions import USEFUL
from driftwatch.verify.verification import Verification

_WEEK = timedelta(days=7)
# a server and month: what the thresholds are made for
FALSE_PAGES = 0.25
_WEEKS_A_MONTH = 365.25 / 12 / 7


def report_of(material: Material) -> Report:
    """The whole report of a week."""
    material = replace(
        material,
        cells=with_unanswered(material.cells),
        verifications=[_as_of(one, material.until) for one in material.verifications],
    )
    week, until = material.week, material.until.replace(microsecond=0)
    first, last = material.span or (week.start, until)
    causes = causes_of(material)
    moved = moved_rows(material, causes)
    report = Report(
        week=Span(
            name=week.name,
            title=week.title,
            start=week.start,
            end=week.end,
            data_from=first,
            data_to=min(last, until),
        ),
        links=Links(
            driftwatch=web_address(material.external_url, f"/reports/{week.name}"),
            command=f"driftwatch report --week {week.name}{material.options}",
            options=material.options,
        ),
        servers=material.cells.select("instance", "engine").n_unique(),
        for_you=decisions(material, moved),
        moved=moved,
        outside=outside(material, [one.cells for one in causes]),
        pages=pages(material),
        advice=record(material),
        blind=blind(material),
        pools=pool_rows(material),
    )
    report = Report.model_validate(_rounded(report.model_dump()))
    lines = tuple({"label": label, "text": text} for label, text in message_lines(report))
    return report.model_copy(update={"summary": summary(report), "lines": lines})


def _as_of(one: Verification, until: datetime) -> Verification:
    """A verification at the week's end: without a verdict that came later."""
    if one.closed_at is not None and one.closed_at < until:
        return one
    return one.model_copy(update={"verdict": "open", "closed_at": None})


def _rounded(value: Any) -> Any:
    """Nine significant digits: a sum differs in its last ones with how many threads made it.

    >>> _rounded({"a": [0.1 + 0.2, -0.0, 3]})
    {'a': [0.3, 0.0, 3]}
    """
    if isinstance(value, float):
        return float(f"{value:.9g}") + 0.0
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def pages(material: Material) -> Pages:
    """How many incidents paged in the week and in the one before.

    A page that a silence held back is counted apart: nobody was woken. One that nobody marked is
    neither useful nor not.
    """
    fired = fired_in(material, material.since, material.until)
    sent, sent_before = (
        [one for one in several if one.severity == "page" and one.silenced_by is None]
        for several in (fired, fired_in(material, material.since - _WEEK, material.since))
    )
    marks = [material.marks[one.id] for one in sent if one.id in material.marks]
    servers = material.cells.select("instance", "engine").n_unique()
    return Pages(
        pages=len(sent),
        pages_last_week=len(sent_before) if material.knows_last_week else None,
        silenced=sum(one.silenced_by is not None for one in fired),
        marked_useful=sum(one.mark == USEFUL for one in marks),
        marked_not_useful=sum(one.mark != USEFUL for one in marks) if marks else None,
        is_sent=material.is_sent,
        budget=FALSE_PAGES * servers / _WEEKS_A_MONTH,
        notices=dict(
            Counter(
                f"{one.alert}, {one.pool}" for one in fired if one.severity == "notice"
            ).most_common()
        ),
    )
