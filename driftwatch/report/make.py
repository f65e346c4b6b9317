"""A week's material → its report, with PAGES, ADVICE and BLIND. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import Any

import polars as pl

from driftwatch.model import TargetKey
from driftwatch.notify.page import web_address
from driftwatch.report.cells import CELL, MINUTE_SECONDS, REASONS
from driftwatch.report.costs import gpu_hours_lost, with_unanswered
from driftwatch.report.decisions import decisions
from driftwatch.report.incidents import fired_in
from driftwatch.report.lengths import STEMS
from driftwatch.report.material import Material
from driftwatch.report.moved import moved_rows, rollout_verdict, rollouts
from driftwatch.report.pools import pool_rows
from driftwatch.report.report import Blind, ForecastError, Links, Pages, Record, Report, Span
from driftwatch.report.words import message_lines, summary
from driftwatch.verify.figures import IN_TARGET
from driftwatch.verify.verification import Verification

TRACK_WEEKS = 8
VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE")
_WEEK = timedelta(days=7)
# a server and month: what the thresholds are made for
FALSE_PAGES = 0.25
_WEEKS_A_MONTH = 365.25 / 12 / 7
# a doubling of lengths is what the reports promise to show
_DOUBLED = 2.0


def report_of(material: Material) -> Report:
    """The whole report of a week."""
    material = replace(material, cells=with_unanswered(material.cells))
    week, until = material.week, material.until.replace(microsecond=0)
    first, last = material.span or (week.start, until)
    moved = moved_rows(material)
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
        for_you=decisions(material, moved),
        moved=moved,
        pages=pages(material),
        advice=record(material),
        blind=blind(material),
        gpu_hours_lost=gpu_hours_lost(material, material.cells),
        pools=pool_rows(material, moved),
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
        marked_not_useful=sum(not one.useful for one in marks) if marks else None,
        budget=FALSE_PAGES * servers / _WEEKS_A_MONTH,
        notices=dict(
            Counter(
                f"{one.alert}, {one.pool}" for one in fired if one.severity == "notice"
            ).most_common()
        ),
    )


def record(material: Material) -> Record:
    """Verdicts on changes of eight weeks, and how far the forecasts were off."""
    since = material.until - TRACK_WEEKS * _WEEK
    known = material.known_since or material.since
    closed = [
        one
        for one in material.verifications
        if one.closed_at is not None and since <= one.closed_at < material.until
    ]
    advised = rollouts(one for one in closed if one.forecast is not None)
    verdicts = Counter(rollout_verdict(one, material.until) for one in advised)
    begun = [one for one in material.verifications if one.opened_at < material.until]
    return Record(
        since=max(since, known),
        is_whole=known <= since,
        verdicts={name: verdicts[name] for name in VERDICTS},
        open=sum(rollout_verdict(one, material.until) == "open" for one in rollouts(begun)),
        forecast_errors={
            name: ForecastError(median=median(map(abs, errors)), n=len(errors))
            for name, errors in sorted(_forecast_errors(rollouts(closed)).items())
        },
    )


def _forecast_errors(changes: Iterable[Sequence[Verification]]) -> dict[str, list[float]]:
    """Figure → by how much each forecast missed what was measured, the median of its servers.

    Measured / forecast - 1; of a share of requests measured - forecast, in its unit.
    """
    errors: dict[str, list[float]] = {}
    for servers in changes:
        own: dict[str, list[float]] = {}
        for effect in (one for verification in servers for one in verification.effects):
            promise, is_share = effect.forecast, effect.name == IN_TARGET
            if promise is not None and (promise > 0 or is_share):
                error = effect.after - promise if is_share else effect.after / promise - 1
                own.setdefault(effect.name, []).append(error)
        for name, several in own.items():
            errors.setdefault(name, []).append(median(map(abs, several)))
    return errors


def blind(material: Material) -> Blind:
    """Server-minutes without a verdict on the engine, by reason; who cannot show a doubling.

    Where nobody watched, the servers that were there before and after count.
    """
    cells = material.cells
    seconds = {reason: float(cells[reason].sum()) for reason in REASONS}
    ends = cells["end"].unique().sort().to_list()
    gaps = [(a, b - CELL) for a, b in pairwise(ends) if b - a > CELL]
    servers = cells.group_by("instance", "engine").agg(
        first=pl.col("end").min(),
        last=pl.col("end").max(),
        unseen=pl.any_horizontal(
            (pl.col(f"{stem}_usual_ratio").drop_nulls().last() > _DOUBLED).fill_null(True)
            for stem in STEMS
        ),
    )
    unwatched = sum(
        servers.filter((pl.col("first") <= a) & (pl.col("last") > b)).height
        * (b - a).total_seconds()
        for a, b in gaps
    )
    seconds["no data"] += unwatched
    whole = float(cells["seconds"].sum()) + unwatched
    unseen = servers.filter("unseen").select("instance", "engine").sort("instance", "engine")
    return Blind(
        server_minutes=whole / MINUTE_SECONDS,
        not_judged_ratio=sum(seconds.values()) / whole if whole else None,
        by_reason={r: s / whole for r, s in seconds.items() if s and whole},
        longest_gap_hours=max((b - a for a, b in gaps), default=timedelta(0)) / timedelta(hours=1),
        could_not_fire=tuple(material.could_not_fire),
        doubled_lengths_unseen=tuple(TargetKey(*key).text for key in unseen.iter_rows()),
    )
