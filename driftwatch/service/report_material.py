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

from driftwatch.detect.baselines import Baseline
from driftwatch.errors import NoVerdict
from driftwatch.incidents.incident import Incident
from driftwatch.model import Slo, TargetKey
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
)
from driftwatch.report.tallies import TRACK_WEEKS
from driftwatch.report.timeline import drawn_pools
from driftwatch.report.week import Week, last_whole, week_named
from driftwatch.rulebook.rules import Rule
from driftwatch.settings import Settings
from driftwatch.settings.receivers import takes
from driftwatch.store.baselines import PROPOSALS
from driftwatch.store.incidents import USEFUL
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.store import Store

_DAY = timedelta(days=1)
# A report reads so many incidents of its two weeks; a fleet that pages more has another problem.
MOST_INCIDENTS = 10_000
# Minutes of 200 targets' day: more do not fit into memory at a time.
_ROWS_AT_ONCE = 200 * 1440
# A band of a longer window says no more.
_BASELINE_REACH = timedelta(days=2)


def _folded(rows: Iterable[pl.DataFrame], slos: Mapping[str, Slo]) -> pl.DataFrame:
    """Rows of whole cells, some at a time → their cells, by instance, engine and end."""
    cells = [no_cells(), *(cells_of(some, slos) for some in rows if len(some))]
    return pl.concat(cells).sort("instance", "engine", "end")


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
    spans: list[tuple[datetime, datetime]] = []
    cells = _folded(_rows(store, week.start, end, spans), slos)
    if not spans:
        raise NoVerdict(
            f"not a minute of {week.name} ({week.title}) is stored",
            help_text="minutes are kept 35 days; driftwatch report --week names another week",
        )
    reach = min(first for first, _ in spans), max(last for _, last in spans)
    # not by whose clock it is told, but by what is known: the last minute's end belongs to it
    end = end if end == week.end else min(end, reach[1] + timedelta(microseconds=1))
    incidents = store.incidents(since=week.before.start, limit=MOST_INCIDENTS)
    first = end - timedelta(weeks=TRACK_WEEKS)
    material = Material(
        week=week,
        until=end,
        cells=cells,
        span=reach,
        incidents=_incidents_until(incidents, end),
        verifications=store.verifications(first, end),
        advice=_advice(store, first, end),
        references=references,
        proposed=list(_proposed(store, end)),
        marks=_marks(store, incidents),
        slos=slos,
        derived=frozenset(derived),
    )
    return replace(material, baseline_cells=_baseline_cells(store, material))


def _baseline_cells(store: Store, material: Material) -> pl.DataFrame:
    """Cells of the newest baseline of each drawn pool, the pool's own before its servers'."""
    rows = []
    targets = material.cells.select("pool", "instance", "engine").unique()
    for pool in drawn_pools(material):
        windows = [
            (one.instance is None, one.until, one.since)
            for one in material.references
            if one.pool == pool and one.since is not None and one.until is not None
        ]
        if windows:
            _, until, since = max(windows)
            keys = targets.filter(pl.col("pool") == pool).select("instance", "engine").iter_rows()
            since = max(since, until - _BASELINE_REACH)
            rows.append(store.past(since, until, sorted(TargetKey(*key) for key in keys)))
    return _folded(rows, material.slos)


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


def _rows(
    store: Store, since: datetime, until: datetime, spans: list[tuple[datetime, datetime]]
) -> Iterator[pl.DataFrame]:
    """Stored rows, a day and some targets at a time; ``spans``: gets start and end of each part."""
    while since < until:
        day = since, min(since + _DAY, until)
        for rows in store.past_in_parts(*day, STORED_SCHEMA, _ROWS_AT_ONCE):
            if len(rows):
                begins = pl.col("end") - pl.duration(seconds="seconds")
                spans.append(rows.select(begins.min(), last=pl.col("end").max()).row(0))
                yield rows
        since += _DAY


def _incidents_until(incidents: Iterable[Incident], until: datetime) -> list[Incident]:
    """Incidents that had begun by a time, with the acknowledgements of that time."""
    return [
        one
        if one.acknowledged_at is None or one.acknowledged_at < until
        else replace(one, acknowledged_at=None, acknowledged_by=None)
        for one in incidents
        if one.started_at < until
    ]


def _marks(store: Store, incidents: Iterable[Incident]) -> dict[str, Marked]:
    """Whenever they were made: a page is judged after it, often on Monday."""
    mark_of = store.marks([one.id for one in incidents])
    return {id_: Marked(m.mark == USEFUL, m.by, m.because) for id_, m in mark_of.items()}


def _of_baselines(store: Store, at: datetime) -> Iterator[Reference]:
    for one, retired_at in store.baselines_ever():
        if one.accepted_at <= at and (retired_at is None or retired_at > at):
            yield reference_of_baseline(one)


def reference_of_baseline(baseline: Baseline) -> Reference:
    """What a baseline says was good."""
    hours = (baseline.until - baseline.since).total_seconds() / 3600
    text = f"baseline {baseline.since:%Y-%m-%d} {hours:.0f} h"
    values = {
        name.removeprefix("reference_"): float(value)
        for name, value in (baseline.reference or {}).items()
        if isinstance(value, int | float)
    }
    window = baseline.since, baseline.until
    return Reference(baseline.pool, baseline.instance, text, values, *window)


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
    """Baselines that were proposed, that can be accepted, and that no baseline was made of."""
    proposals = store.remembered(PROPOSALS)
    if proposals is None:
        return
    accepted = {(one.since, one.until) for one, _ in store.baselines_ever()}
    for one in orjson.loads(proposals):
        since, end = (datetime.fromisoformat(one[n]).astimezone(UTC) for n in ("since", "until"))
        if end <= until and (since, end) not in accepted and not one.get("lacking"):
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


def rules_of(plan: Plan) -> str:
    """What is watched for, as a hash of every rule and tree: texts, never files' names."""
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
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()


# minutes are kept 35 days: of an older week little is left to tell
MOST_MISSED = 4
# The last minutes of a week come late, and its last day is written down by the next prune.
_DUE_HOUR = 7  # UTC, of the Monday after the week
SETTLED_MINUTE = 10
SETTLED = timedelta(minutes=SETTLED_MINUTE)
# Without any report yet, only one that is due now: nobody asked for those before the first start.
FIRST_WITHIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who gets reports."""

    receivers: tuple[str, ...] = ()
    external_url: str | None = None

    def due_at(self, week: Week) -> datetime:
        """When the report of a week is due: on Monday at 07:00 UTC, and settled."""
        return week.end + timedelta(hours=_DUE_HOUR) + SETTLED


def schedule_of(settings: Settings) -> Schedule | None:
    """What a configuration says of reports; None where it wants none."""
    report = settings.report
    if report is None:
        return None
    return Schedule(
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
