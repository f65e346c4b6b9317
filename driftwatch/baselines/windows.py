"""From the minutes of a window to pins: the load model, the reference row, and what ran."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.baselines.in_force import fingerprint, gpu_models
from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.fingerprints import common
from driftwatch.detect.reference_minutes import baseline_of_minutes
from driftwatch.detect.speed.load_model import LoadModel, TooLittle, fit
from driftwatch.diagnose.evidence_table import evidence_table, minute_windows
from driftwatch.model import Fingerprint, Target, TargetKey
from driftwatch.pipeline.explain import Window
from driftwatch.pipeline.plan import Plan
from driftwatch.signals.minutes import minutes

_KEY = list(KEY_COLUMNS)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Who accepts a pin."""

    by: str  # a person, or "provisional"
    at: datetime  # when
    why: str  # why this stretch is good


@dataclass(frozen=True, slots=True)
class Measured:
    """What a window showed."""

    # :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`; what is no baseline has been left out
    minutes: pl.DataFrame
    # target → what is known of what ran
    ran: Mapping[TargetKey, Fingerprint] = field(default_factory=dict)


def measured(
    scrapes: pl.DataFrame,
    window: Window,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    gpus: pl.DataFrame | None = None,
) -> Measured:
    """The whole minutes of a window of scrapes.

    ``scrapes``: of the window, and for its first minute a little before it; ``window``: which span;
    ``targets``: every target, with its pool; ``plan``: pools and their settings; ``gpus``: GPU
    readings of the window; None = none read.
    """
    frames = plan.frames(targets)
    scrapes = scrapes.filter(pl.col("time") <= window.end)
    first = window.start.replace(second=0, microsecond=0)
    first += _MINUTE if first < window.start else timedelta()
    last = (window.end + timedelta(microseconds=1)).replace(second=0, microsecond=0)
    rows = evidence_table(
        scrapes,
        minute_windows(frames.serving.select(*_KEY, "pool"), first, max(first, last)),
        kind="chained",
        cut=False,
        serving=frames.serving,
        reference=frames.declared,
        inputs=plan.inputs,
        gpus=gpus,
        gpu_targets=frames.gpu_targets,
    ).rows
    return Measured(minutes(rows), what_ran(scrapes, targets, plan, gpus))


def what_ran(
    scrapes: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    gpus: pl.DataFrame | None = None,
) -> dict[TargetKey, Fingerprint]:
    """Target → its fingerprint, the flags of its newest page among it."""
    configured = scrapes.filter(pl.col("cache_config").is_not_null())
    newest = configured.group_by(_KEY, maintain_order=True).agg(pl.col("cache_config").last())
    configs = {TargetKey(i, e): config for i, e, config in newest.iter_rows()}
    models = gpu_models(targets, plan, gpus)
    return {
        key: fingerprint(target, plan, models.get(key.instance, ()), configs.get(key))
        for key, target in targets.items()
    }


def baselines_of(
    measured: Measured, window: Window, targets: Iterable[Target], accepted: Acceptance
) -> Baselines:
    """A pin for each target, or one for its pool where a target has too little for a law.

    ``measured``: what the window showed; ``window``: which span; ``targets``: those to be pinned,
    with their pools; ``accepted``: who accepts them.
    """
    baselines: list[Baseline] = []
    pools: dict[str, list[Target]] = {}
    for target in targets:
        baseline = baseline_of_target(measured, window, target, accepted)
        if baseline is not None:
            baselines.append(baseline)
            pools.setdefault(baseline.pool, []).append(target)
    lacking = {baseline.pool for baseline in baselines if baseline.model is None}
    pooled = [
        baseline
        for pool, members in pools.items()
        if pool in lacking
        and len(members) > 1
        and (baseline := baseline_of_pool(measured, window, members, accepted)) is not None
        and baseline.model is not None
    ]
    # a target's pin without a law would stand before its pool's
    have = {baseline.pool for baseline in pooled}
    return Baselines(
        (*(p for p in baselines if p.model is not None or p.pool not in have), *pooled)
    )


def baseline_of_target(
    measured: Measured, window: Window, target: Target, accepted: Acceptance
) -> Baseline | None:
    """The pin of one target; None where the window does not show it at all."""
    key = target.key
    own = measured.minutes.filter(
        (pl.col("instance") == key.instance) & (pl.col("engine") == key.engine)
    )
    return _pin(own, [measured.ran.get(key, Fingerprint())], window, target, key, accepted)


def baseline_of_pool(
    measured: Measured, window: Window, members: Sequence[Target], accepted: Acceptance
) -> Baseline | None:
    """The pin of a pool: a law fitted on all of its targets; None where none of them is seen."""
    keys = pl.DataFrame(
        [tuple(t.key) for t in members], schema=dict.fromkeys(_KEY, pl.String), orient="row"
    )
    rows = measured.minutes.join(keys, on=_KEY, how="semi", maintain_order="left")
    ran = [measured.ran.get(t.key, Fingerprint()) for t in members]
    return _pin(rows, ran, window, members[0], None, accepted)


def _pin(
    rows: pl.DataFrame,
    ran: list[Fingerprint],
    window: Window,
    target: Target,
    key: TargetKey | None,
    accepted: Acceptance,
) -> Baseline | None:
    pool = target.pool or ""
    rows = rows.filter(pl.col("scrapes") > 0)
    if rows.is_empty():
        return None
    model, arming = _fitted(rows)
    reference = baseline_of_minutes(rows, pool if key is None else None)
    reference = reference.with_columns(kind=pl.lit("pin"))
    return Baseline(
        id=baseline_id("pool" if key is None else "target", *(key or (pool, "")), window),
        scope="pool" if key is None else "target",
        instance=None if key is None else key.instance,
        engine=None if key is None else key.engine,
        pool=pool,
        since=window.start,
        until=window.end,
        accepted_by=accepted.by,
        accepted_at=accepted.at,
        why=accepted.why,
        fingerprint=common(ran),
        model=model,
        arming=arming,
        reference=reference,
    )


def baseline_id(scope: str, name: str, engine: str, window: Window) -> str:
    """The same eight digits for the same window of the same target or pool."""
    text = "\0".join((scope, name, engine, window.start.isoformat(), window.end.isoformat()))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def with_more(baselines: Baselines, more: Baselines) -> Baselines:
    """Pins and others accepted after them, which hold where both name the same target."""
    return replace(baselines, every=(*baselines.every, *more.every))


def _fitted(rows: pl.DataFrame) -> tuple[LoadModel | None, str | None]:
    """The law of these minutes, or what is missing for one."""
    fitted = fit(rows)
    return (None, fitted.reason) if isinstance(fitted, TooLittle) else (fitted, None)
