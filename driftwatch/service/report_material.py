"""Weekly reports: what one is made of, and when ``driftwatch run`` makes and sends it.

A week's report and who is to be sent it are written in one transaction, so that a crash leaves both
or neither. What was missed while nobody watched is made at the next start, as long as the week's
minutes are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from driftwatch.errors import NoVerdict
from driftwatch.incidents.incident import Incident
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.pipeline.plan import Plan
from driftwatch.report.cells import cells_of, no_cells
from driftwatch.report.changes import TRACK
from driftwatch.report.make import report_of
from driftwatch.report.material import Material, Usual
from driftwatch.report.week import Week, last_whole
from driftwatch.settings import Settings
from driftwatch.settings.receivers import takes
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.store import Store

_DAY = timedelta(days=1)
_EDGE = timedelta(hours=1)  # of a week: its first scrape does not lie on its start
# A report reads so many incidents of its two weeks; a fleet that pages more has another problem.
MOST_INCIDENTS = 10_000
# Minutes of 200 targets' day: more do not fit into memory at a time.
_ROWS_AT_ONCE = 200 * 1440


def gather(
    store: Store,
    plan: Plan,
    week: Week,
    *,
    until: datetime | None = None,
    external_url: str | None = None,
) -> Material:
    """Everything of one week in the store.

    ``until``: the report ends there; None = at the week's end; ``external_url``: of the web.

    Raises NoVerdict: not a minute of the week is stored; StoreError: the store does not serve, or
    one of its documents cannot be read.
    """
    end = week.end if until is None else min(until, week.end)
    slos = {
        pool.name: pool.slo
        for pool in plan.every_pool
        if pool.slo.ttft_seconds is not None or pool.slo.tpot_seconds is not None
    }
    spans: list[tuple[datetime, datetime]] = []
    cells = [no_cells()]
    for rows in _rows(store, week.start, end):
        begins = pl.col("end") - pl.duration(seconds="seconds")
        spans.append(rows.select(begins.min(), last=pl.col("end").max()).row(0))
        cells.append(cells_of(rows, slos))
    if not spans:
        raise NoVerdict(
            f"not a minute of {week.name} ({week.title}) is stored",
            help_text="minutes are kept 35 days; driftwatch report --week names another week",
        )
    reach = min(first for first, _ in spans), max(last for _, last in spans)
    # the clock may be ahead of what is stored: the last minute's end belongs to the report
    end = min(end, reach[1] + timedelta(microseconds=1))
    stored = store.minutes_reach()
    incidents = store.incidents(since=week.before.start, limit=MOST_INCIDENTS)
    verifications = store.verifications(end - TRACK, end)
    known = [stored[0] if stored else reach[0], *(one.opened_at for one in verifications)]
    known += [one.since for one, _ in store.baselines_ever()]
    return Material(
        week=week,
        until=end,
        cells=pl.concat(cells).sort("instance", "engine", "end"),
        span=reach,
        incidents=[_until(one, end) for one in incidents if one.started_at < end],
        verifications=verifications,
        advice=store.advices(end - TRACK, end),
        usual=_usual(store, plan, end),
        confirmed={
            (one.pool, name): (one.since, now)
            for one in sorted(store.confirmed_settings(), key=lambda note: note.since)
            for name, (_, now) in one.values.items()
        },
        configured={
            (pool.name, name): setting.value
            for pool in plan.every_pool
            for name in COLUMN_KNOBS
            if (setting := pool.serving.setting(name)) is not None
        },
        # whenever they were made: a page is judged after it, often on Monday
        marks=store.marks([one.id for one in incidents]),
        slos=slos,
        external_url=external_url,
        known_since=min(known),
        knows_last_week=stored is not None and stored[0] <= week.before.start + _EDGE,
    )


def _rows(store: Store, since: datetime, until: datetime) -> Iterator[pl.DataFrame]:
    """Stored rows, a day and some targets at a time."""
    while since < until:
        day = since, min(since + _DAY, until)
        yield from (r for r in store.past_in_parts(*day, STORED_SCHEMA, _ROWS_AT_ONCE) if len(r))
        since += _DAY


def _until(one: Incident, end: datetime) -> Incident:
    """An incident with the acknowledgement of that time."""
    if one.acknowledgement is None or one.acknowledgement.at < end:
        return one
    return one.model_copy(update={"acknowledgement": None})


def _usual(store: Store, plan: Plan, at: datetime) -> dict[str, Usual]:
    """What each pool was tuned for: its newest baseline, else its servers', else what it declares.

    Of several servers' baselines each column's mean.
    """
    usual = {}
    for pool in plan.every_pool:
        tuned = pool.tuned_for
        lengths = {
            f"{name}_mean": value
            for name in ("prompt_tokens", "generation_tokens")
            if (value := getattr(tuned, name)) is not None
        }
        if lengths:
            usual[pool.name] = Usual("tuned_for", lengths)
    found: dict[str, dict[str | None, Usual]] = {}
    for one, retired_at in store.baselines_ever():
        if one.accepted_at > at or (retired_at is not None and retired_at <= at):
            continue
        hours = (one.until - one.since).total_seconds() / 3600
        values = {
            name.removeprefix("reference_"): float(value)
            for name, value in (one.reference or {}).items()
            if isinstance(value, int | float)
        }
        source = f"baseline of {one.since:%Y-%m-%d}, {hours:.0f} h"
        found.setdefault(one.pool, {})[one.instance] = Usual(source, values)
    for name, several in found.items():
        usual[name] = several.get(None) or _mean(list(several.values()))
    return usual


def _mean(several: Sequence[Usual]) -> Usual:
    if len(several) == 1:
        return several[0]
    values = {
        name: sum(known) / len(known)
        for name in sorted({name for one in several for name in one.values})
        if (known := [one.values[name] for one in several if name in one.values])
    }
    return Usual(f"{len(several)} baselines of its servers", values)


# The last minutes of a week come late, and its last day is written down by the next prune.
SETTLED_MINUTE = 10
# A week's report is due so long after the week: on Monday at 07:10 UTC.
DUE_AFTER = timedelta(hours=7, minutes=SETTLED_MINUTE)
# Without any report yet, only one that is due now: nobody asked for those before the first start.
_FIRST_WITHIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ReportSchedule:
    """Who gets reports."""

    receivers: tuple[str, ...] = ()
    external_url: str | None = None


def schedule_of(settings: Settings) -> ReportSchedule | None:
    """The reports of a configuration; None where it wants none."""
    report = settings.report
    if report is None:
        return None
    return ReportSchedule(
        receivers=tuple(
            one.name
            for one in settings.receivers
            if takes(one.form, "report") and (not report.receivers or one.name in report.receivers)
        ),
        external_url=settings.external_url,
    )


def due_week(names: Sequence[str], now: datetime) -> Week | None:
    """The newest week with a report due; ``names``: weeks that have one."""
    week = last_whole(now - DUE_AFTER)
    is_late = now - week.end - DUE_AFTER >= _FIRST_WITHIN
    return None if week.name in names or (not names and is_late) else week


def make_due(store: Store, plan: Plan, schedule: ReportSchedule, now: datetime) -> Week | None:
    """Make the report that is due; returns its week. A week without a minute has none.

    Raises StoreError: the store does not serve.
    """
    week = due_week(store.report_weeks(), now)
    if week is None:
        return None
    try:
        report = report_of(gather(store, plan, week, external_url=schedule.external_url))
    except NoVerdict:
        return None
    made = store.write_report(week.name, report.document(), schedule.receivers, now)
    return week if made else None
