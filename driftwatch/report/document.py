"""The report of a week as one JSON document: what every form of it is drawn from. Pure."""

from __future__ import annotations

from typing import Any

from driftwatch.numbers import utc_text
from driftwatch.report.decisions import decisions
from driftwatch.report.drift import cost, drift_rows
from driftwatch.report.incidents import incident_rows, notice_counts, targets_of
from driftwatch.report.material import Material
from driftwatch.report.pools import pool_names, pool_rows
from driftwatch.report.tallies import advice_record, blind, pages
from driftwatch.report.text import message_lines, summary
from driftwatch.report.timeline import timelines

SCHEMA_VERSION = 3


def week_document(material: Material) -> dict[str, Any]:
    """The whole report as JSON values; within a schema version fields are only added.

    Units stand in the names; null is unknown and stands beside a ``reason``. ``event`` and
    ``rule`` are there because a report goes the way of a page to its receivers.

    ``material``: of the week.
    """
    week = material.week
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "event": "report",
        "rule": "weekly report",
        "week": {
            "name": week.name,
            "title": week.title,
            "from": utc_text(week.start),
            "to": utc_text(week.end),
            "until": utc_text(material.until.replace(microsecond=0)),
            **_data_span(material),
            "whole": material.until >= week.end,
        },
        "fleet": {"pools": len(pool_names(material)), "servers": len(targets_of(material))},
        "for_you": decisions(material),
        "drift": drift_rows(material),
        "pages": pages(material),
        "advice": advice_record(material),
        "blind": blind(material),
        "cost": cost(material, "all", material.cells),
        "incidents": incident_rows(material),
        "notices": notice_counts(material),
        "pools": pool_rows(material),
        "timelines": timelines(material),
    }
    document = {name: rounded(value) for name, value in document.items()}
    document["quiet"] = is_quiet(document)
    document["summary"] = summary(document)
    document["lines"] = message_lines(document)
    return document


def _data_span(material: Material) -> dict[str, str | None]:
    """Where the week's first stored row starts, and where its last one ends."""
    if material.span is None:
        return {"data_from": None, "data_to": None}
    first, last = material.span
    until = material.until.replace(microsecond=0)
    return {"data_from": utc_text(first), "data_to": utc_text(min(last, until))}


def rounded(value: Any) -> Any:
    """Nine significant digits: a sum differs in its last ones with how many threads made it.

    >>> rounded({"a": [0.1 + 0.2, -0.0, 3]})
    {'a': [0.3, 0.0, 3]}
    """
    if isinstance(value, float):
        return float(f"{value:.9g}") + 0.0
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def is_quiet(document: dict[str, Any]) -> bool:
    """Whether the top screen says all: nobody was told, nothing drifted, nothing is to be done."""
    pages = document["pages"]
    return not (
        document["for_you"]
        or document["drift"]
        or document["incidents"]
        or pages["pages"]
        or pages["silenced"]
    )
