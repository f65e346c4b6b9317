"""A target in one window, from a store: evidence, baseline, path, limits, advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

import polars as pl

from driftwatch.baselines.in_force import gpus_of, in_force
from driftwatch.collect.schema import KEY
from driftwatch.detect.days import with_usual
from driftwatch.detect.reference import baseline_of_minutes, combined
from driftwatch.detect.references import References
from driftwatch.diagnose.evidence_table import WINDOW_SCHEMA
from driftwatch.diagnose.tree import UNDETERMINED, walk
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.model import Finding, Target, TargetKey
from driftwatch.numbers import clean, moment
from driftwatch.pipeline.advice import advise_finding
from driftwatch.pipeline.evaluation import in_window, stored_evidence
from driftwatch.pipeline.findings import finding_of
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.recent_change import COLUMNS, RELEASE_WITHIN, recent_change
from driftwatch.rulebook.book import shipped_trees
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store.store import Store

DEFAULT_TREE = "batch-size-drift"
# symptom → the tree that begins with it; all trees end in the same causes
SYMPTOMS: Mapping[str, str] = {
    "batch": DEFAULT_TREE,
    "latency": "latency-high",
    "throughput": "throughput-low",
    "gpu-idle": "gpu-idle",
}


def with_shipped_trees(plan: Plan) -> Plan:
    """The plan with the shipped trees and those of its rules."""
    return replace(plan, trees={**shipped_trees(), **plan.trees})


@dataclass(frozen=True, slots=True)
class Window:
    """A span that includes both ends."""

    start: datetime
    end: datetime


# In less than two usual scrape intervals (15 s) a rate is the difference of only two scrapes.
OBSERVED_SECONDS = 30.0


def explain(
    store: Store,
    target: Target,
    window: Window,
    plan: Plan,
    reference: pl.DataFrame,
    *,
    source: str | None = None,
    today: date | None = None,
    tree: str = DEFAULT_TREE,
) -> tuple[Finding, Window]:
    """Explain one window of one target: evidence, diagnosis, advice, recent change.

    Args:
        reference: measured, :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`.
        source: name of the source that listed the target last; None = unknown.
        today: its times have no date.

    Returns:
        The finding, and the window that the nearest whole rows make.

    Raises:
        NoVerdict: the store has no minute of the target in the window, or none with a scrape.
    """
    row = _evidence(store, {target.key: target}, window, plan, reference)
    if row.is_empty():
        why, reach = _no_minutes_error(store, target.key, window, source, today)
        raise NoVerdict(why, help_text=reach)
    plan, last = with_shipped_trees(plan), row["end"][0]
    diagnosis, values = walk(plan.trees[tree], row)[0], row.row(0, named=True)
    finding = advise_finding(finding_of("explain", target, values, diagnosis), values, plan)
    explained_window = Window(row["start"][0], last)
    minutes = store.past(last - RELEASE_WITHIN, last, [target.key], COLUMNS)
    change = recent_change(minutes, 1, (), None, finding.evidence.get("release_change"), today)
    finding = replace(finding, recent_change=change)
    return _with_enough_observed(finding, explained_window), explained_window


def findings_in(
    store: Store,
    targets: Mapping[TargetKey, Target],
    window: Window,
    plan: Plan,
    reference: pl.DataFrame,
) -> dict[TargetKey, Finding]:
    """The findings of servers in a window, without diagnosis and advice; none of those without a
    usable scrape.
    """
    rows = _evidence(store, targets, window, plan, reference).iter_rows(named=True)
    found = ((TargetKey(row["instance"], row["engine"]), row) for row in rows)
    return {key: finding_of("explain", targets[key], row, None) for key, row in found}


def _evidence(
    store: Store,
    targets: Mapping[TargetKey, Target],
    window: Window,
    plan: Plan,
    reference: pl.DataFrame,
) -> pl.DataFrame:
    """An evidence row of each server with a usable scrape in the whole minutes of a window."""
    around = timedelta(minutes=10)
    rows = store.past(window.start - around, window.end + around, targets)
    rows = in_window(rows, window.start, window.end)
    begins = (pl.col("end") - pl.duration(seconds="seconds")).first().alias("start")
    of_server = rows.group_by(*KEY, maintain_order=True)
    whole = of_server.agg(begins, pl.col("end").last(), pl.col("scrapes").sum())
    whole = whole.filter(pl.col("scrapes") > 0).select(
        pl.col(name).cast(dtype) for name, dtype in WINDOW_SCHEMA.items()
    )
    learnt = References().with_newer(store.references())
    declared = plan.declared_reference([*targets.values()])
    known = with_usual(reference, declared, learnt, window.end.date())
    return stored_evidence(rows, whole, targets, plan, known)


def _no_minutes_error(
    store: Store, key: TargetKey, window: Window, source: str | None, today: date | None
) -> tuple[str, str]:
    """Message and hint for a window without a scrape; the hint names the stored span."""
    span = f"from {moment(window.start, today)} to {moment(window.end, today)}"
    why = why_not_scraped(store, key, window.end, source, today)
    why = why or f"no minute with a usable scrape {span}"
    stored = store.minutes_span(key)
    if stored is None:
        return f"{key.text}: {why}", "nothing of this target is stored"
    first, last = (moment(at, today) for at in stored)
    scraped_at = _last_scraped(store, key, window.end) or stored[1]
    reach = f"its minutes reach from {first} to {last}"
    return f"{key.text}: {why}", f"{reach}; look at the last with --at {scraped_at:%Y-%m-%dT%H:%MZ}"


def _last_scraped(store: Store, key: TargetKey, at: datetime) -> datetime | None:
    rows = store.past(at - _LOOKS_BACK, at, [key], ("end", "scrapes"))
    last = rows.filter(pl.col("scrapes") > 0)["end"].max()
    return last if isinstance(last, datetime) else None


def reference_of(
    store: Store,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    at: datetime,
    baseline: Window | None = None,
) -> pl.DataFrame:
    """Measured reference rows: of ``--baseline`` if given, completed by the baselines in force.

    ``at``: the GPUs of the ten minutes before it decide which baselines are in force.

    Raises:
        UsageError: the window of ``--baseline`` has no minute with a scrape.
    """
    recent = store.past(at - timedelta(minutes=10), at, targets, ("gpu_model",))
    of_baselines = in_force(store.baselines(), targets, plan, gpus_of(recent)).reference
    if baseline is None:
        return of_baselines
    rows = in_window(store.past(baseline.start, baseline.end, targets), *whole_minutes(baseline))
    if not (rows["scrapes"] > 0).any():
        raise no_baseline(baseline, store.minutes_reach())
    measured = baseline_of_minutes(rows.select(*MINUTE_SCHEMA))
    return combined(measured, of_baselines)


def no_baseline(window: Window, reach: tuple[datetime, datetime] | None) -> UsageError:
    """The error for a baseline window without data; its hint names the stored span."""
    form = "%Y-%m-%dT%H:%M:%SZ"
    return UsageError(
        f"the baseline {window.start:{form}}..{window.end:{form}} holds no minute with a scrape",
        help_text="there are no scrapes at all"
        if reach is None
        else f"scrapes reach from {reach[0]:{form}} to {reach[1]:{form}}",
    )


def whole_minutes(window: Window) -> tuple[datetime, datetime]:
    """The whole minutes inside a window, else the nearest minute."""
    start, end = (at.replace(second=0, microsecond=0) for at in (window.start, window.end))
    if start < window.start:
        start += timedelta(minutes=1)
    return (start, end) if start < end else (end, end + timedelta(minutes=1))


def _with_enough_observed(finding: Finding, window: Window) -> Finding:
    """The finding; without a cause where scrapes cover too little of the window."""
    seconds, diagnosis = finding.evidence.get("duration_seconds"), finding.diagnosis
    if seconds is None or seconds >= OBSERVED_SECONDS or diagnosis is None:
        return finding
    whole, column = (window.end - window.start).total_seconds(), "observed_10m_seconds"
    why = (
        f"scrapes of one process cover {seconds:.3g} of {whole:.4g} s, a cause needs "
        f"{OBSERVED_SECONDS:g} s"
    )
    unknown = replace(
        diagnosis,
        leaf=UNDETERMINED,
        cause=None,
        advice=None,
        meaning=None,
        missing=(column,),
    )
    return replace(finding, diagnosis=unknown, reasons={**finding.reasons, column: why})


# a younger minute without a scrape may be late
_LATE = timedelta(minutes=2)
_LOOKS_BACK = timedelta(hours=25)


def why_not_scraped(
    store: Store, key: TargetKey, at: datetime, source: str | None = None, today: date | None = None
) -> str | None:
    """``last scraped 15:20 UTC; not scraped by prometheus 0 since``; None if it is scraped.

    A target is not scraped if its newest minute has no usable scrape or is older than two minutes.

    Args:
        source: name of the source that listed it last; None = unknown.
        today: its times have no date.
    """
    reach = store.minutes_reach()
    rows = store.past(at - _LOOKS_BACK, at, [key])
    scraped_at = _last_scraped(store, key, at)
    failed = rows.filter(pl.col("scrapes") == 0)
    if scraped_at is not None:
        failed = failed.filter(pl.col("end") > scraped_at)
        if failed.is_empty() and at - scraped_at < _LATE:
            return None
        text = f"last scraped {moment(scraped_at, today)}"
    elif reach is not None:
        text = f"not scraped since {moment(reach[0], today)}, where the minutes begin"
    else:
        text = "never scraped"
    whys = failed["failure"].drop_nulls()
    if len(whys):
        is_alone = whys[-1].startswith(("not listed", "not scraped"))
        why = f"{whys[-1]} since" if is_alone else f"scrapes fail: {whys[-1]}"
    elif reach is not None and at - reach[1] >= _LATE:
        why = "nothing is scraped since"
    else:
        why = f"not scraped{'' if source is None else f' by {source}'} since"
    return f"{text}; {clean(why)}"
