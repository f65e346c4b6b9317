"""Minutes of a window → baselines: load model, values, and fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import polars as pl

from driftwatch.baselines.in_force import fingerprint, gpus_of
from driftwatch.collect.fingerprint import common
from driftwatch.collect.schema import KEY, keys_frame
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.reference import baseline_of_minutes
from driftwatch.detect.speed.model import StepTimeModel, TooFewMinutes, fit
from driftwatch.diagnose.evidence_table import evidence_table, rows_of_scrapes
from driftwatch.minutes.rows import minute_grid
from driftwatch.model import Fingerprint, Target, TargetKey
from driftwatch.pipeline.explain import Window
from driftwatch.pipeline.plan import Plan
from driftwatch.signals.minutes import minutes

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Who accepts a baseline."""

    by: str  # a person, or "provisional"
    at: datetime  # when
    why: str  # why this stretch is good


@dataclass(frozen=True, slots=True)
class WindowMinutes:
    """The minutes of a window, and what ran in it."""

    # :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`; minutes unfit for a baseline are left out
    minutes: pl.DataFrame
    ran: Mapping[TargetKey, Fingerprint] = field(default_factory=dict)  # settings and releases


def measured(
    scrapes: pl.DataFrame,
    window: Window,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    gpus: pl.DataFrame | None = None,
) -> WindowMinutes:
    """The whole minutes of a window.

    ``scrapes``: they begin a little before it; ``targets``: every target, with its pool; ``gpus``:
    GPU readings of the window.
    """
    frames = plan.frames(targets)
    scrapes = scrapes.filter(pl.col("time") <= window.end)
    first = window.start.replace(second=0, microsecond=0)
    first += _MINUTE if first < window.start else timedelta()
    last = (window.end + timedelta(microseconds=1)).replace(second=0, microsecond=0)
    last = max(first, last)
    serving, on_gpus = frames.serving, (gpus, frames.gpu_targets)
    made = rows_of_scrapes(scrapes, serving, first, last, plan.inputs, *on_gpus)
    grid = minute_grid(serving, first, last)
    rows = evidence_table(made, grid, serving=serving, reference=frames.declared)
    return WindowMinutes(minutes(rows), fingerprints_of(made, targets, plan))


def fingerprints_of(
    rows: pl.DataFrame, targets: Mapping[TargetKey, Target], plan: Plan
) -> dict[TargetKey, Fingerprint]:
    """Target → its fingerprint, with the flags of its newest scrape.

    ``rows``: minutes in order of time, with ``cache_config`` and ``gpu_model``.
    """
    newest = rows.drop_nulls("cache_config").unique(KEY, keep="last", maintain_order=True)
    configs = {TargetKey(i, e): text for i, e, text in newest.select(*KEY, "cache_config").rows()}
    gpu_of = gpus_of(rows)
    return {
        key: fingerprint(target, plan, gpu_of.get(key.instance), configs.get(key))
        for key, target in targets.items()
    }


def baselines_of(
    measured: WindowMinutes, window: Window, targets: Iterable[Target], accepted: Acceptance
) -> Baselines:
    """A baseline for each target, with the load model of its pool."""
    pools: dict[str, list[Target]] = {}
    for target in targets:
        pools.setdefault(target.pool or "", []).append(target)
    found = []
    for members in pools.values():
        keys = keys_frame([target.key for target in members])
        fitted = fit(measured.minutes.join(keys, on=KEY, how="semi", maintain_order="left"))
        for target in members:
            own = accepted_baseline(measured, window, (target,), accepted, "target", fitted)
            if own is not None:
                found.append(own)
    return Baselines(tuple(found))


def accepted_baseline(
    measured: WindowMinutes,
    window: Window,
    members: Sequence[Target],
    accepted: Acceptance,
    scope: str,
    fitted: StepTimeModel | TooFewMinutes | None = None,
) -> Baseline | None:
    """The baseline of one target, or of a pool; None where the window shows none of them.

    ``fitted``: the load model; None = fit one on these targets.
    """
    one, of_pool = members[0], scope == "pool"
    pool = one.pool or ""
    keys = keys_frame([t.key for t in members])
    rows = measured.minutes.join(keys, on=KEY, how="semi", maintain_order="left")
    rows = rows.filter(pl.col("scrapes") > 0)
    if rows.is_empty():
        return None
    fitted = fitted or fit(rows)
    row = baseline_of_minutes(rows, pool if of_pool else None).drop(KEY).row(0, named=True)
    return Baseline(
        id=baseline_id(scope, one, window),
        scope="pool" if of_pool else "target",
        instance=None if of_pool else one.key.instance,
        engine=None if of_pool else one.key.engine,
        pool=pool,
        since=window.start,
        until=window.end,
        accepted_by=accepted.by,
        accepted_at=accepted.at,
        why=accepted.why,
        fingerprint=common([measured.ran.get(t.key, Fingerprint()) for t in members]),
        load_model=None if isinstance(fitted, TooFewMinutes) else fitted,
        arming=fitted.reason if isinstance(fitted, TooFewMinutes) else None,
        reference={k: v for k, v in row.items() if v is not None} | {"kind": "baseline"},
    )


def baseline_id(scope: str, target: Target, window: Window) -> str:
    """Eight hex digits: the same for the same window of the same target or pool."""
    names = (target.pool or "", "") if scope == "pool" else target.key
    text = "\0".join((scope, *names, window.start.isoformat(), window.end.isoformat()))
    return hashlib.sha256(text.encode()).hexdigest()[:8]
