"""A week's material → its report. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from driftwatch.notify.page import web_address
from driftwatch.report.costs import gpu_hours_lost, with_unanswered
from driftwatch.report.decisions import decisions
from driftwatch.report.material import Material
from driftwatch.report.moved import moved_rows
from driftwatch.report.pools import pool_rows
from driftwatch.report.report import Links, Report, Span
from driftwatch.report.tallies import blind, pages, record
from driftwatch.report.words import message_lines, summary


def report_of(material: Material) -> Report:
    """The whole report of a week."""
    material = replace(material, cells=with_unanswered(material.cells))
    week, until = material.week, material.until.replace(microsecond=0)
    first, last = material.span or (week.start, until)
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
            command=f"driftwatch report --week {week.name}",
        ),
        servers=material.cells.select("instance", "engine").n_unique(),
        for_you=decisions(material),
        moved=moved_rows(material),
        pages=pages(material),
        advice=record(material),
        blind=blind(material),
        gpu_hours_lost=gpu_hours_lost(material, material.cells),
        pools=pool_rows(material),
    )
    report = Report.model_validate(_rounded(report.model_dump()))
    lines = tuple({"label": label, "text": text} for label, text in message_lines(report))
    return report.model_copy(update={"summary": summary(report), "lines": lines})


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
