"""What is known of a target in one window: evidence, reference, path, limits, advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, TIME
from driftwatch.detect.reference import baseline, combined, no_reference
from driftwatch.diagnose.evidence_table import (
    WINDOW_SCHEMA,
    Carried,
    evidence_table,
    minute_windows,
)
from driftwatch.diagnose.tree import UNDETERMINED, walk
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.model import Diagnosis, Finding, Target, TargetKey
from driftwatch.notify.numbers import moment
from driftwatch.pipeline.findings import as_detected, finding
from driftwatch.pipeline.last_seen import last_seen
from driftwatch.pipeline.plan import Plan
from driftwatch.rulebook.book import shipped_trees

_KEY = list(KEY_COLUMNS)
DEFAULT_TREE = "batch-size-drift"
# What a person sees first → the tree that begins there; all of them end in the same causes.
SYMPTOMS: Mapping[str, str] = {
    "batch": DEFAULT_TREE,
    "latency": "latency-high",
    "throughput": "throughput-low",
    "gpu-idle": "gpu-idle",
}


def with_shipped_trees(plan: Plan) -> Plan:
    """The plan with the shipped trees beside those that its rules name."""
    return replace(plan, trees={**shipped_trees(), **plan.trees})


@dataclass(frozen=True, slots=True)
class Window:
    """A span somebody asked about; both ends belong to it."""

    start: datetime
    end: datetime


def target_named(
    name: str | None, targets: Mapping[TargetKey, Target], limit: int | None = 8
) -> Target:
    """The target a person means: ``host:8000``, ``host:8000/1``, a pool of one, or none named.

    Args:
        name: what the person wrote.
        targets: every target.
        limit: how many candidates are listed; None = all.

    Raises:
        UsageError: nothing, or more than one target, answers to it; names the candidates.
        NoVerdict: there is no target at all.
    """
    known = [targets[key] for key in sorted(targets)]
    if name is None:
        found = known
    else:
        exact = [t for t in known if name in (t.key.text, f"{t.key.instance}/{t.key.engine}")]
        found = exact or [
            t for t in known if name in (t.key.instance, t.pool, t.labels.get("model_name"))
        ]
    if len(found) == 1:
        return found[0]
    if not known:
        raise NoVerdict("there is no target here", help_text="is the recording or store empty?")
    if not found:
        listing = _listing(known, limit)
        raise UsageError(f"no target {name!r}", help_text=f"known targets: {listing}")
    raise UsageError(
        "name one target" if name is None else f"{name!r} names {len(found)} targets",
        help_text=f"one of: {_listing(found, limit)}",
    )


def _listing(targets: Sequence[Target], limit: int | None) -> str:
    shown = ", ".join(target.key.text for target in targets[:limit])
    more = 0 if limit is None else len(targets) - limit
    return f"{shown} and {more} more" if more > 0 else shown


def measured_reference(
    scrapes: pl.DataFrame,
    window: Window | None,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    gpus: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Reference rows measured in a baseline window; none without a window.

    Args:
        scrapes: scrapes of the window.
        window: which span; None = no reference.
        targets: every target.
        plan: pools and their settings.
        gpus: GPU readings of the window; None = none read.

    Raises:
        UsageError: the window holds no usable scrape of any target.
    """
    if window is None:
        return no_reference()
    rows = _rows(scrapes, window, targets, plan, no_reference(), Carried(), gpus)
    rows = rows.filter(pl.col("duration_seconds") > 0)
    if rows.is_empty():
        raise UsageError(
            f"the baseline {window.start:%Y-%m-%dT%H:%M:%SZ}..{window.end:%Y-%m-%dT%H:%M:%SZ} "
            "holds no two scrapes",
            help_text=_span_help(scrapes, None, exact=True),
        )
    return baseline(rows)


# Rates of less than two usual scrape intervals (15 s) are one difference of two scrapes.
OBSERVED_SECONDS = 30.0


def explain(
    scrapes: pl.DataFrame,
    target: Target,
    window: Window,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    measured: pl.DataFrame,
    gpus: pl.DataFrame | None = None,
    *,
    source: str | None = None,
    today: date | None = None,
    detected: pl.DataFrame | None = None,
    tree: str = DEFAULT_TREE,
) -> Finding:
    """Evidence of one window of one target, with the walk through the tree.

    Args:
        scrapes: everything known up to the window's end (what came earlier settles an inferred
            max_num_seqs and how long nothing was seen).
        target: which one.
        window: which span.
        targets: every target, for comparisons in a pool.
        plan: trees and pools.
        measured: reference rows of a baseline, or none.
        gpus: GPU readings up to the window's end; None = none read.
        source: name of the source that listed the target last; None = not known.
        today: the day whose times are told without a date.
        detected: the evidence row of the window's last whole minute, for what detectors with a
            past say of it; None or empty = not known.
        tree: which of the plan's trees, or of the shipped ones.

    Raises:
        NoVerdict: no usable scrape of the target lies in the window.
    """
    upto = scrapes.filter(pl.col("time") <= window.end)
    reference = combined(measured, plan.declared_reference(targets.values()))
    carried = _carried_until(upto, window, targets, plan, reference)
    rows = _rows(upto, window, targets, plan, reference, carried, gpus)
    rows = rows.filter(
        (pl.col("instance") == target.key.instance) & (pl.col("engine") == target.key.engine)
    )
    if rows["scrapes"][0] == 0:
        silent = last_seen(scrapes, target.key, window.end, source)
        why = "no usable scrape in the window" if silent is None else silent.text(today)
        raise NoVerdict(f"{target.key.text}: {why}", help_text=_span_help(scrapes, today))
    if detected is not None and len(detected):
        rows = as_detected(rows, detected.with_columns(end=pl.lit(rows["end"][0], dtype=TIME)))
    plan = with_shipped_trees(plan)
    diagnosis: Diagnosis = walk(plan.trees[tree], rows)[0]
    return _observed(finding("explain", target, rows.row(0, named=True), diagnosis, plan), window)


def _observed(found: Finding, window: Window) -> Finding:
    """The finding; without a cause where too little of the window was observed for one."""
    seconds, diagnosis = found.evidence.get("duration_seconds"), found.diagnosis
    if seconds is None or seconds >= OBSERVED_SECONDS or diagnosis is None:
        return found
    whole = (window.end - window.start).total_seconds()
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
        missing=("duration_seconds",),
    )
    return replace(found, diagnosis=unknown, reasons={**found.reasons, "duration_seconds": why})


def _carried_until(
    scrapes: pl.DataFrame,
    window: Window,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    reference: pl.DataFrame,
) -> Carried:
    """What the minutes before the window's end teach."""
    first = scrapes["time"].min()
    last = window.end.replace(second=0, microsecond=0)
    if not isinstance(first, datetime) or first >= last:
        return Carried()
    return evidence_table(
        scrapes,
        minute_windows(
            pl.DataFrame([tuple(k) for k in sorted(targets)], schema=_KEY, orient="row"),
            first.replace(second=0, microsecond=0),
            last,
        ),
        kind="chained",
        cut=False,
        serving=plan.serving_frame(targets.values()),
        reference=reference,
        inputs=plan.inputs,
    ).carried


def _rows(
    scrapes: pl.DataFrame,
    window: Window,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    reference: pl.DataFrame,
    carried: Carried,
    gpus: pl.DataFrame | None,
) -> pl.DataFrame:
    windows = pl.DataFrame(
        [(*key, window.start, window.end) for key in sorted(targets)],
        schema=WINDOW_SCHEMA,
        orient="row",
    )
    return evidence_table(
        scrapes,
        windows,
        kind="whole",
        cut=True,
        serving=plan.serving_frame(targets.values()),
        reference=reference,
        inputs=plan.inputs,
        carried=carried,
        gpus=gpus,
        gpu_targets=plan.gpu_targets(targets.values()),
    ).rows


def _span_help(scrapes: pl.DataFrame, today: date | None, *, exact: bool = False) -> str:
    first, last = scrapes["time"].min(), scrapes["time"].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return "there are no scrapes at all"
    if exact:  # as --baseline is written
        return f"scrapes reach from {first:%Y-%m-%dT%H:%M:%SZ} to {last:%Y-%m-%dT%H:%M:%SZ}"
    return f"scrapes reach from {moment(first, today)} to {moment(last, today)}"


def window_ending(at: datetime, length: timedelta) -> Window:
    """The window of ``length`` that ends at ``at``."""
    return Window(at - length, at)
