"""PAGES, ADVICE and BLIND: how loud, how right, and where nothing could be seen. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

import polars as pl

from driftwatch.incidents.incident import Incident
from driftwatch.model import TargetKey
from driftwatch.report.cells import CELL_LENGTH, MINUTE_SECONDS, REASONS
from driftwatch.report.incidents import fired_in, short_names, targets_of
from driftwatch.report.material import Material
from driftwatch.verify.figures import IN_TARGET
from driftwatch.verify.verification import Verification

TRACK_WEEKS = 8
VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE")
_MONTH_DAYS = 365.25 / 12


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
    marks = _marked(material, now)
    # where nobody judged a page, each of them may have been a false one
    not_useful = marks["marked_not_useful"]
    false_pages = by_severity["page"] if not_useful is None else not_useful
    return {
        "pages": by_severity["page"],
        "pages_last_week": _by_severity(last)["page"],
        "tickets": by_severity["ticket"],
        "tickets_last_week": _by_severity(last)["ticket"],
        "notices": by_severity["notice"],
        "silenced": sum(1 for one in now if one.silenced_by is not None),
        "budget_false_episodes": budget,
        "over_budget": bool(servers) and false_pages > budget,
        "false_episodes_per_server_month": material.false_episodes_per_server_month,
        **marks,
    }


def _marked(material: Material, fired: Iterable[Incident]) -> dict[str, Any]:
    """Of the pages that woke somebody: how many somebody marked, and how many as not useful."""
    paged = [
        one for one in fired if one.severity == "page" and not one.is_quiet and one.part_of is None
    ]
    marks = [material.marks[one.id] for one in paged if one.id in material.marks]
    reason = "nobody marked one of them" if paged else "no page to mark"
    return {
        "marked": len(marks),
        "marked_not_useful": sum(1 for one in marks if not one.useful) if marks else None,
        "marked_not_useful_reason": None if marks else reason,
    }


def _by_severity(incidents: Iterable[Incident]) -> Counter[str]:
    """Incidents of which somebody was sent a page: no silence held it, no other spoke for it."""
    return Counter(one.severity for one in incidents if not one.is_quiet and one.part_of is None)


def advice_record(material: Material) -> dict[str, Any]:
    """Verdicts on changes of eight weeks, and how far the forecasts were off."""
    since = material.until - timedelta(weeks=TRACK_WEEKS)
    closed = [
        one
        for one in material.verifications
        if one.closed_at is not None and since <= one.closed_at < material.until
    ]
    advised = Counter(str(one.verdict) for one in closed if one.forecast is not None)
    return {
        "weeks": TRACK_WEEKS,
        "verdicts": {name: advised[name] for name in VERDICTS},
        "changes_not_advised": sum(one.forecast is None for one in closed),
        "open": sum(
            1
            for one in material.verifications
            if one.opened_at < material.until
            and (one.closed_at is None or one.closed_at >= material.until)
        ),
        "forecast_errors": {
            name: {
                "median_ratio": median(map(abs, errors)),
                "median_signed_ratio": median(errors),
                "n": len(errors),
            }
            for name, errors in sorted(_forecast_errors(closed).items())
        },
    }


def _forecast_errors(verifications: Iterable[Verification]) -> dict[str, list[float]]:
    """Figure → by how much each forecast missed what was measured.

    Measured / forecast - 1; of a share of requests measured - forecast, in its unit. Above 0 where
    the forecast was too low.
    """
    errors: dict[str, list[float]] = {}
    for effect in (one for verification in verifications for one in verification.effects):
        promise, is_share = effect.forecast, effect.name == IN_TARGET
        if promise is not None and (promise > 0 or is_share):
            error = effect.after - promise if is_share else effect.after / promise - 1
            errors.setdefault(effect.name, []).append(error)
    return errors


# a doubling of lengths is what the reports promise to show
DOUBLED = 2.0
MOST_SERVERS = 20
_STEMS = ("prompt_tokens", "generation_tokens")


def blind(material: Material) -> dict[str, Any]:
    """Server-minutes without a verdict on the engine, by reason; who cannot show a doubling."""
    cells = material.cells
    seconds = {r: float(cells[f"{r.replace(' ', '_')}_seconds"].sum()) for r in REASONS}
    missed = _nobody_watched(material)
    seconds["no data"] += missed
    total = float(cells["seconds"].sum()) + missed
    names = short_names(targets_of(material))
    return {
        "server_minutes": total / MINUTE_SECONDS,
        "without_verdict_ratio": sum(seconds.values()) / total if total else None,
        "without_verdict_reason": None if total else "no minute of the week is kept",
        "by_reason": {r: s / total if total else None for r, s in seconds.items()},
        "cannot_show_doubled_lengths": _cannot_show(cells, names),
        "servers": len(targets_of(material)),
        "longest_gap_hours": max((b - a for a, b in _gaps(material)), default=timedelta(0))
        / timedelta(hours=1),
    }


def _gaps(material: Material) -> list[tuple[datetime, datetime]]:
    """Stretches of whole cells of which no target has a row: nobody watched."""
    ends = material.cells["end"].unique().sort().to_list()
    return [(a, b - CELL_LENGTH) for a, b in pairwise(ends) if b - a > CELL_LENGTH]


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


def _cannot_show(cells: pl.DataFrame, names: Mapping[TargetKey, str]) -> dict[str, Any]:
    """Servers whose lengths would not show a doubling, or of which that is not known."""
    least = {s: pl.col(f"{s}_usual_ratio").drop_nulls().last() for s in _STEMS}
    servers = cells.group_by("instance", "engine").agg(
        **{stem: (ratio > DOUBLED).fill_null(True) for stem, ratio in least.items()}
    )
    servers = servers.with_columns(either=pl.any_horizontal(*_STEMS)).sort("instance", "engine")
    cannot = servers.filter("either").select("instance", "engine")
    return {
        **{name: int(servers[name].sum()) for name in (*_STEMS, "either")},
        "servers": [names[TargetKey(*key)] for key in cannot.head(MOST_SERVERS).iter_rows()],
    }
