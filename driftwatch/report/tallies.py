"""PAGES, ADVICE and BLIND: how loud, how right, and where nothing could be seen. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import polars as pl

from driftwatch.model import Incident
from driftwatch.report.cells import MINUTE_SECONDS, REASONS
from driftwatch.report.incidents import fired_in, targets_of
from driftwatch.report.material import Material
from driftwatch.verify.verification import track_record

TRACK_WEEKS = 8
VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE")
_MONTH_DAYS = 365.25 / 12
_CELL = timedelta(minutes=10)
# a doubling of lengths is what the reports promise to show
DOUBLED = 2.0


def pages(material: Material) -> dict[str, Any]:
    """How many incidents paged in the week and in the one before, and the noise budget.

    A page that a silence held back is counted apart: nobody was woken. One that nobody marked is
    neither useful nor not: where that is so of every page, how many were not useful is unknown.
    """
    before = material.since - timedelta(days=7)
    now = fired_in(material, material.since, material.until)
    last = fired_in(material, before, material.since)
    servers = len(targets_of(material))
    days = (material.until - material.since) / timedelta(days=1)
    budget = material.false_episodes_per_server_month * servers * days / _MONTH_DAYS
    by_severity = _by_severity(now)
    return {
        "pages": by_severity["page"],
        "pages_last_week": _by_severity(last)["page"],
        "tickets": by_severity["ticket"],
        "tickets_last_week": _by_severity(last)["ticket"],
        "notices": by_severity["notice"],
        "silenced": sum(1 for one in now if one.silenced_by is not None),
        "budget_false_episodes": budget,
        "false_episodes_per_server_month": material.false_episodes_per_server_month,
        **_marked(material, now),
    }


def _marked(material: Material, fired: Iterable[Incident]) -> dict[str, Any]:
    """Of the pages that woke somebody: how many somebody marked, and how many as not useful."""
    paged = [one for one in fired if one.severity == "page" and one.silenced_by is None]
    marks = [material.marks[one.id] for one in paged if one.id in material.marks]
    reason = "nobody marked one of them" if paged else "no page to mark"
    return {
        "marked": len(marks),
        "marked_not_useful": sum(1 for one in marks if not one.useful) if marks else None,
        "marked_not_useful_reason": None if marks else reason,
    }


def _by_severity(incidents: Iterable[Incident]) -> Counter[str]:
    return Counter(one.severity for one in incidents if one.silenced_by is None)


def advice_record(material: Material) -> dict[str, Any]:
    """Verdicts on changes of eight weeks, and how far the forecasts were off."""
    since = material.until - timedelta(weeks=TRACK_WEEKS)
    closed = [
        one
        for one in material.verifications
        if one.closed_at is not None and since <= one.closed_at < material.until
    ]
    record = track_record(closed)
    counts = Counter(one.name for one in record.forecasts)
    return {
        "weeks": TRACK_WEEKS,
        "verdicts": {name: record.advised[name] for name in VERDICTS},
        "changes_not_advised": sum(record.others.values()),
        "open": sum(
            1
            for one in material.verifications
            if one.opened_at < material.until
            and (one.closed_at is None or one.closed_at >= material.until)
        ),
        "forecast_errors": {
            name: {
                "median_ratio": error,
                "median_signed_ratio": record.median_signed_error[name],
                "n": counts[name],
            }
            for name, error in sorted(record.median_error.items())
        },
    }


def blind(material: Material) -> dict[str, Any]:
    """Server-minutes without a verdict on the engine, by reason; who cannot show a doubling."""
    cells = material.cells
    seconds = {r: float(cells[f"{r.replace(' ', '_')}_seconds"].sum()) for r in REASONS}
    missed = _nobody_watched(material)
    seconds["no data"] += missed
    total = float(cells["seconds"].sum()) + missed
    cannot = _cannot_show(cells)
    return {
        "server_minutes": total / MINUTE_SECONDS,
        "without_verdict_ratio": sum(seconds.values()) / total if total else None,
        "without_verdict_reason": None if total else "no minute of the week is kept",
        "by_reason": {r: s / total if total else None for r, s in seconds.items()},
        "cannot_show_doubled_lengths": cannot,
        "servers": len(targets_of(material)),
        "longest_gap_hours": max((b - a for a, b in _gaps(material)), default=timedelta(0))
        / timedelta(hours=1),
    }


def _gaps(material: Material) -> list[tuple[datetime, datetime]]:
    """Stretches of whole cells of which no target has a row: nobody watched."""
    ends = material.cells["end"].unique().sort().to_list()
    return [(a, b - _CELL) for a, b in pairwise(ends) if b - a > _CELL]


def _nobody_watched(material: Material) -> float:
    """Server-seconds of those stretches, of the servers that were there before and after."""
    spans = material.cells.group_by("instance", "engine").agg(
        first=pl.col("end").min(), last=pl.col("end").max()
    )
    total = 0.0
    for began, ended in _gaps(material):
        there = spans.filter((pl.col("first") <= began) & (pl.col("last") > ended)).height
        total += there * (ended - began).total_seconds()
    return total


def _cannot_show(cells: pl.DataFrame) -> dict[str, int]:
    """Servers whose lengths would not show a doubling, or of which that is not known."""
    stems = ("prompt_tokens", "generation_tokens")
    least = (pl.col(f"{s}_smallest_detectable_ratio").drop_nulls().last().alias(s) for s in stems)
    # what is not known cannot be shown
    cannot = (
        cells.group_by("instance", "engine")
        .agg(*least)
        .select((pl.col(s) > DOUBLED).fill_null(True) for s in stems)
        .with_columns(either=pl.any_horizontal(stems))
    )
    return {name: int(cannot[name].sum()) for name in cannot.columns}


def suppressed(material: Material) -> dict[str, Any]:
    """What was held back, and where no answer was given and why."""
    fired = fired_in(material, material.since, material.until)
    abstained: Counter[str] = Counter()
    for one in fired:
        diagnosis = (one.page or {}).get("diagnosis") or {}
        if diagnosis.get("leaf") == "undetermined":
            missing: Mapping[str, Any] | list[str] = diagnosis.get("missing") or []
            abstained[f"no leaf: {', '.join(missing) or 'its inputs'} unknown"] += 1
    for advice in material.advice:
        if material.since <= advice.at < material.until:
            recommendation = advice.recommendation
            if recommendation.get("action") == "insufficient":
                abstained[f"no advice: {recommendation.get('reason') or 'no reason given'}"] += 1
    silenced = [one for one in fired if one.silenced_by is not None]
    waiting = [
        one
        for one in material.incidents
        if one.inhibited_by is not None
        and one.firing_at is None
        and material.since <= one.started_at < material.until
    ]
    return {
        "silenced": [
            {"alert": one.alert, "silence": one.silenced_by, "id": one.id} for one in silenced
        ],
        "silences": [
            {"id": s.id, "matchers": s.matchers, "by": s.by, "comment": s.comment}
            for s in material.silences
        ],
        "inhibited_now": [
            {"alert": one.alert, "by": one.inhibited_by, "id": one.id} for one in waiting
        ],
        "abstained": [
            {"reason": reason, "times": times}
            for reason, times in sorted(abstained.items(), key=lambda pair: (-pair[1], pair[0]))
        ],
    }
