"""Weekly reports: what one is made of, and when ``driftwatch run`` makes and sends it.

A week's report and who is to be sent it are written in one transaction, so that a crash leaves both
or neither. What was missed while nobody watched is made at the next start, as long as the week's
minutes are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import polars as pl

from driftwatch.baselines.documents import baseline_of_row
from driftwatch.detect.baselines import Baseline
from driftwatch.errors import NoVerdict
from driftwatch.model import Incident, Slo, TargetKey
from driftwatch.notify.page import web_address
from driftwatch.pipeline.plan import Plan
from driftwatch.recommend.advice import DERIVED_TIMES
from driftwatch.report.cells import cells_of, no_cells
from driftwatch.report.document import week_document
from driftwatch.report.material import (
    AdviceGiven,
    Marked,
    Material,
    Proposed,
    Reference,
    RuleSet,
)
from driftwatch.report.tallies import TRACK_WEEKS
from driftwatch.report.timeline import drawn_pools
from driftwatch.report.week import Week, last_whole, week_named
from driftwatch.rulebook.rules import Rule
from driftwatch.settings import Settings
from driftwatch.settings.receivers.taken_events import takes
from driftwatch.store.incidents import USEFUL
from driftwatch.store.store import Store

_DAY = timedelta(days=1)
# A report reads so many incidents of its two weeks; a fleet that pages more has another problem.
MOST_INCIDENTS = 10_000
# Of a day of more targets the rows do not fit into memory at a time.
_TARGETS_AT_ONCE = 200
# A band of a longer window says no more.
_BASELINE_REACH = timedelta(days=2)


class Folded:
    """Rows folded into cells, a part of a day at a time.

    Args:
        slos: pool → latency targets.
    """

    def __init__(self, slos: Mapping[str, Slo]) -> None:
        self._slos = slos
        self._cells: list[pl.DataFrame] = []
        self.span: tuple[datetime, datetime] | None = None  # first row's start, last one's end

    def add(self, rows: pl.DataFrame) -> None:
        """Rows of whole cells."""
        if len(rows):
            self._cells.append(cells_of(rows, self._slos))
            first = rows.select(pl.col("end") - pl.duration(seconds="seconds")).to_series().min()
            last = rows["end"].max()
            assert isinstance(first, datetime) and isinstance(last, datetime)  # noqa: S101
            self.span = (
                (first, last)
                if self.span is None
                else (min(first, self.span[0]), max(last, self.span[1]))
            )

    @property
    def cells(self) -> pl.DataFrame:
        """All of them, by instance, engine and end."""
        every = pl.concat([no_cells(), *self._cells])
        return every.sort("instance", "engine", "end")


def slos_of(plan: Plan) -> dict[str, Slo]:
    """Pool → its latency targets; those without any are not among them."""
    return {
        pool.name: pool.slo
        for pool in plan.pools
        if pool.slo.ttft_seconds is not None or pool.slo.tpot_seconds is not None
    }


def _derived(references: Iterable[Reference], configured: Mapping[str, Slo]) -> dict[str, Slo]:
    """Pool → twice the p95 of its baseline (the mean of its targets'), where nobody set targets.

    As recommendations are judged (:func:`driftwatch.recommend.advice.targets_of`).
    """
    slos: dict[str, Slo] = {}
    by_pool: dict[str, list[Reference]] = {}
    for one in references:
        if one.pool not in configured:
            by_pool.setdefault(one.pool, []).append(one)
    for pool, several in by_pool.items():
        whole = [one for one in several if one.instance is None] or several
        means = []
        for name in ("ttft_seconds_p95", "tpot_seconds_p95"):
            values = [value for one in whole if (value := one.values.get(name))]
            means.append(DERIVED_TIMES * sum(values) / len(values) if values else None)
        if any(means):
            slos[pool] = Slo(ttft_seconds=means[0], tpot_seconds=means[1])
    return slos


def gather(store: Store, plan: Plan, week: Week, *, until: datetime | None = None) -> Material:
    """Everything of one week in the store.

    Args:
        until: up to when it is told; None = its end.

    Raises:
        NoVerdict: not a minute of the week is stored.
        StoreError: the store does not serve, or one of its documents cannot be read.
    """
    end = week.end if until is None else min(until, week.end)
    references = [*_of_baselines(store, end), *_declared(plan)]
    configured = slos_of(plan)
    derived = _derived(references, configured)
    slos = {**derived, **configured}
    folded = Folded(slos)
    for day in _days_between(week.start, end):
        _fold_day(store, folded, day, min(day + _DAY, end))
    cells = folded.cells
    if cells.is_empty():
        raise NoVerdict(
            f"not a minute of {week.name} ({week.title}) is stored",
            help_text="minutes are kept 35 days; driftwatch report --week names another week",
        )
    if end < week.end and folded.span is not None:
        # not by whose clock it is told, but by what is known: the last minute's end belongs to it
        end = min(end, folded.span[1] + timedelta(microseconds=1))
    incidents = store.incidents(since=week.before.start, limit=MOST_INCIDENTS)
    first = end - timedelta(weeks=TRACK_WEEKS)
    material = Material(
        week=week,
        until=end,
        cells=cells,
        span=folded.span,
        incidents=_incidents_until(incidents, end),
        verifications=store.verifications(first, end),
        advice=_advice(store, first, end),
        references=references,
        proposed=list(_proposed(store, end)),
        marks=_marks(store, incidents),
        slos=slos,
        derived=frozenset(derived),
        rules=rules_of(plan),
        false_episodes_per_server_month=plan.detection.false_episodes_per_server_month,
    )
    return replace(material, baseline_cells=_baseline_cells(store, material))


def _baseline_cells(store: Store, material: Material) -> pl.DataFrame:
    """Cells of the newest baseline of each drawn pool, the pool's own before its servers'."""
    folded = Folded(material.slos)
    targets = (
        material.cells.select("pool", "instance", "engine").unique().sort("instance", "engine")
    )
    for pool in drawn_pools(material):
        windows = [
            (one.instance is None, one.until, one.since)
            for one in material.references
            if one.pool == pool and one.since is not None and one.until is not None
        ]
        if not windows:
            continue
        _, until, since = max(windows)
        keys = targets.filter(pl.col("pool") == pool).select("instance", "engine").iter_rows()
        folded.add(
            store.past(max(since, until - _BASELINE_REACH), until, [TargetKey(*k) for k in keys])
        )
    return folded.cells


def _advice(store: Store, since: datetime, until: datetime) -> list[AdviceGiven]:
    return [
        AdviceGiven(
            TargetKey(one.instance, one.engine),
            one.pool,
            one.at,
            one.document.get("recommendation") or {},
            one.incident_id,
        )
        for one in store.advices(since, until)
    ]


def _days_between(start: datetime, end: datetime) -> Iterator[datetime]:
    while start < end:
        yield start
        start += _DAY


def _fold_day(store: Store, folded: Folded, day: datetime, end: datetime) -> None:
    """One day into cells, so many targets at a time."""
    first = store.past(day, day + timedelta(minutes=10))
    last = store.past(end - timedelta(minutes=10), end)
    keys = [
        TargetKey(*key)
        for key in pl.concat([first, last])
        .select("instance", "engine")
        .unique()
        .sort("instance", "engine")
        .iter_rows()
    ]
    if len(keys) <= _TARGETS_AT_ONCE:  # who came and left between is found as well
        rows = store.past(day, end)
        folded.add(rows)
        return
    for some in range(0, len(keys), _TARGETS_AT_ONCE):
        rows = store.past(day, end, keys[some : some + _TARGETS_AT_ONCE])
        folded.add(rows)


def _incidents_until(incidents: Iterable[Incident], until: datetime) -> list[Incident]:
    return [_as_of(one, until) for one in incidents if one.started_at < until]


def _as_of(incident: Incident, at: datetime) -> Incident:
    if incident.acknowledged_at is not None and incident.acknowledged_at >= at:
        incident = replace(incident, acknowledged_at=None, acknowledged_by=None)
    return incident


def _marks(store: Store, incidents: Iterable[Incident]) -> dict[str, Marked]:
    """Whenever they were made: a page is judged after it, often on Monday."""
    mark_of = store.marks([one.id for one in incidents])
    return {id_: Marked(m.mark == USEFUL, m.by, m.because) for id_, m in mark_of.items()}


def _of_baselines(store: Store, at: datetime) -> Iterator[Reference]:
    for row in store.baselines(retired=True):
        if row.accepted_at > at or (row.retired_at is not None and row.retired_at <= at):
            continue
        yield reference_of_baseline(baseline_of_row(row))


def reference_of_baseline(baseline: Baseline) -> Reference:
    """What a baseline says was good."""
    hours = (baseline.until - baseline.since).total_seconds() / 3600
    text = f"baseline {baseline.since:%Y-%m-%d} {hours:.0f} h"
    values = _reference_values(baseline.reference)
    window = baseline.since, baseline.until
    return Reference(baseline.pool, baseline.instance, text, values, *window)


def _reference_values(reference: pl.DataFrame) -> dict[str, float]:
    if reference.is_empty():
        return {}
    row = reference.row(0, named=True)
    return {
        name.removeprefix("reference_"): float(value)
        for name, value in row.items()
        if isinstance(value, int | float)
    }


def _declared(plan: Plan) -> Iterator[Reference]:
    """Lengths that pools declare; where a pool has a baseline, that comes first."""
    for pool in plan.pools:
        tuned = pool.tuned_for
        values = {
            f"{name}_mean": value
            for name, value in (
                ("prompt_tokens", tuned.prompt_tokens),
                ("generation_tokens", tuned.generation_tokens),
            )
            if value is not None
        }
        if values:
            yield Reference(pool.name, "", "tuned_for", values)


def _proposed(store: Store, until: datetime) -> Iterator[Proposed]:
    """Baselines that were proposed, that pin takes, and that no baseline was made of."""
    proposals = store.proposals()
    if proposals is None:
        return
    in_force = {
        (baseline.since, baseline.until)
        for row in store.baselines(retired=True)
        for baseline in [baseline_of_row(row)]
    }
    for one in orjson.loads(proposals):
        since, end = (datetime.fromisoformat(one[n]).astimezone(UTC) for n in ("since", "until"))
        if end <= until and (since, end) not in in_force and not one.get("lacking"):
            yield Proposed(str(one["id"]), str(one["name"]), since, end)


def _overrides(rule: Rule) -> list[dict[str, Any]]:
    return [{"pools": list(one.pools), **_deciding(one.rule)} for one in rule.overrides]


def _deciding(rule: Rule) -> dict[str, Any]:
    return {
        "enabled": rule.enabled,
        "severity": rule.severity,
        "conditions": [c and c.text for c in (rule.when, rule.precondition, rule.until)],
        "for": rule.for_seconds,
        "keep_firing_for": rule.keep_firing_for_seconds,
    }


def rules_of(plan: Plan) -> RuleSet:
    """What was watched for, as a hash of every rule and tree: texts, never files' names."""
    rules = [
        {
            "id": rule.id,
            **_deciding(rule),
            "per": rule.per,
            "together": rule.together
            and [rule.together.wait_seconds, rule.together.within_seconds],
            "inhibited_by": list(rule.inhibited_by),
            "tree": rule.tree,
            "receivers": list(rule.receivers),
            **({"overrides": _overrides(rule)} if rule.overrides else {}),
        }
        for rule in plan.rules
    ]
    trees = {
        name: {
            "nodes": [[n.name, n.when.text, n.lenient.text, n.yes, n.no] for n in t.nodes.values()],
            "leaves": [[x.name, x.kind, x.knob, x.advice] for x in t.leaves.values()],
        }
        for name, t in plan.trees.items()
    }
    content: dict[str, Any] = {"rules": rules, "trees": trees}
    digest = hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()
    enabled = len(plan.enabled)
    return RuleSet(digest, enabled, len(plan.rules) - enabled)


WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# minutes are kept 35 days: of an older week little is left to tell
MOST_MISSED = 4
# The last minutes of a week come late, and its last day is written down by the next prune.
SETTLED_MINUTE = 10
SETTLED = timedelta(minutes=SETTLED_MINUTE)
# Without any report yet, only one that is due now: nobody asked for those before the first start.
FIRST_WITHIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When reports are made and who gets them."""

    weekday: str = "monday"  # of :data:`WEEKDAYS`
    hour: int = 7  # 0 to 23, UTC
    receivers: tuple[str, ...] = ()
    external_url: str | None = None

    def due_at(self, week: Week) -> datetime:
        """When the report of a week is due: the first such day and hour after it, and settled."""
        return week.end + timedelta(days=WEEKDAYS.index(self.weekday), hours=self.hour) + SETTLED


def schedule_of(settings: Settings) -> Schedule | None:
    """What a configuration says of reports; None where it wants none."""
    report = settings.report
    if report is None:
        return None
    return Schedule(
        weekday=report.weekday,
        hour=report.hour,
        receivers=tuple(
            one.name
            for one in settings.receivers
            if takes(one.form, "report") and (not report.receivers or one.name in report.receivers)
        ),
        external_url=settings.external_url,
    )


def due_weeks(schedule: Schedule, names: Sequence[str], now: datetime) -> list[Week]:
    """Weeks whose report is due and was not made, oldest first."""
    newest = last_whole(now)
    if schedule.due_at(newest) > now:
        newest = newest.before
    starts = [week_named(name).start for name in names]
    if not starts:
        recent = now - schedule.due_at(newest) < FIRST_WITHIN
        return [newest] if recent else []
    weeks: list[Week] = []
    while newest.start > max(starts) and len(weeks) < MOST_MISSED:
        weeks.append(newest)
        newest = newest.before
    return weeks[::-1]


def make_due(store: Store, plan: Plan, schedule: Schedule, now: datetime) -> list[Week]:
    """Make every report that is due, and say of which weeks; a week without a minute has none.

    Raises:
        StoreError: the store does not serve; what was made before is kept.
    """
    made = []
    for week in due_weeks(schedule, store.report_weeks(), now):
        try:
            material = gather(store, plan, week)
        except NoVerdict:
            continue
        document = week_document(material)
        linked = {**document, "links": _links(schedule, week)}
        if store.write_report(week.name, linked, schedule.receivers, now):
            made.append(week)
    return made


def _links(schedule: Schedule, week: Week) -> dict[str, str | None]:
    return {
        "driftwatch": web_address(schedule.external_url, f"/reports/{week.name}"),
        "command": f"driftwatch report --week {week.name}",
    }
