"""Evidence of a tick's minutes, with the input of findings and pages; evidence of stored rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY, TIME
from driftwatch.detect.days import with_usual
from driftwatch.detect.reference import no_reference
from driftwatch.diagnose.evidence_table import (
    HISTORY,
    WINDOW_SCHEMA,
    evidence_table,
    no_rows,
    with_inherited,
)
from driftwatch.minutes.rows import minute_grid, minute_rows
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.plan import Plan, TargetFrames
from driftwatch.pipeline.question import target_advice
from driftwatch.pipeline.roster import TickInput, with_unlisted
from driftwatch.pipeline.state import FIRST_LOOK, State, last_scrapes
from driftwatch.signals.gpus import GPU_COLUMNS, gpu_columns
from driftwatch.store.history import TargetAdvice
from driftwatch.store.minutes import MINUTE


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """Evidence of minutes; targets without a scrape included."""

    frames: TargetFrames
    rows: pl.DataFrame  # evidence rows of the minutes
    reference: pl.DataFrame = field(default_factory=no_reference)
    # :data:`driftwatch.diagnose.evidence_table.ROW_SCHEMA`, beside ``rows``; empty for evidence
    # from elsewhere
    minutes: pl.DataFrame = field(default_factory=no_rows)


def signals_of(
    state: State, first: datetime, last: datetime, plan: Plan, given: TickInput
) -> tuple[Signals, State]:
    """Evidence of all targets in the minutes [first, last), and the state after them."""
    frames = plan.frames(state.targets, state.frames)
    serving = frames.serving
    made = minute_rows(state.scrapes, serving, first, last, state.samples)
    inside = pl.col("time").is_between(first, last, closed="left")
    new = with_unlisted(made.rows, state.scrapes.filter(inside), state, given)
    grid = minute_grid(serving, first, last)
    on_gpus = gpu_minutes(state, frames, first, last).drop(*KEY, "end")
    before = state.minutes.join(serving, on=KEY, how="semi", maintain_order="left")
    found = with_inherited(before, new.hstack(on_gpus), serving, plan.inputs, state.inputs_seen)
    learnt = state.detection.references
    reference = with_usual(state.in_force.reference, frames.declared, learnt, last.date())
    rows = evidence_table(
        found.rows, grid, serving=serving, reference=reference, recent=found.recent
    )
    after = replace(
        state,
        scrapes=last_scrapes(state.scrapes, last),
        gpus=state.gpus.filter(pl.col("time") >= last - FIRST_LOOK),
        minutes=found.recent.filter(pl.col("end") > last - HISTORY),
        inputs_seen=found.inputs_seen,
        samples=made.samples,
        evaluated_until=last,
        frames=frames,
    )
    return Signals(frames, rows, reference, found.rows), after


def gpu_minutes(
    state: State, frames: TargetFrames, first: datetime, last: datetime
) -> pl.DataFrame:
    """Instance, engine, end and :data:`driftwatch.signals.gpus.GPU_COLUMNS` of [first, last)."""
    grid = minute_grid(frames.serving, first, last)
    columns = gpu_columns(grid, state.gpus, frames.gpu_targets).select(*GPU_COLUMNS)
    return grid.select(*KEY, "end").hstack(columns)


def window_rows(evaluation: Evaluation, windows: pl.DataFrame) -> pl.DataFrame:
    """Evidence rows of windows, cut at restarts and knob changes."""
    signals, since, until = evaluation.signals, windows["start"].min(), windows["end"].max()
    assert isinstance(since, datetime) and isinstance(until, datetime)  # noqa: S101 - there are some
    keys = {TargetKey(*key) for key in windows.select(KEY).iter_rows()}
    rows = evaluation.past.rows(keys, since, until)
    return evidence_table(
        rows, windows, serving=signals.frames.serving, reference=signals.reference
    )


Windows = Callable[["Evaluation", pl.DataFrame], pl.DataFrame]
Ask = Callable[..., TargetAdvice]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Minutes evaluated together."""

    state: State  # before the minutes, with the baselines of the first one
    plan: Plan  # rules, trees, pools
    signals: Signals  # of the minutes
    # start of the first minute, end of the last one
    first: datetime
    last: datetime
    rows: pl.DataFrame  # evidence rows, with the detectors' columns
    verdicts: pl.DataFrame  # one Boolean column per enabled rule id, beside the rows
    past: PastMinutes  # minutes up to these
    # windows (WINDOW_SCHEMA, at most ten minutes) → their evidence rows, in the windows' order
    windows: Windows = window_rows
    ask: Ask = target_advice  # runs a simulation


# --- evidence of stored rows: minutes, or the longer rows made of them

TEN_MINUTES = timedelta(minutes=10)


def stored_evidence(
    rows: pl.DataFrame,
    windows: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    reference: pl.DataFrame,
    recent: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Evidence rows of windows, in the windows' order, with the other columns of ``windows``.

    Args:
        rows: of :meth:`driftwatch.store.store.Store.past`.
        windows: :data:`driftwatch.diagnose.evidence_table.WINDOW_SCHEMA`, then other columns.
        reference: :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`.
        recent: these rows and those of ten minutes before; None = ``rows`` has them.
    """
    serving = plan.serving_frame(targets.values())
    own = windows.select(*WINDOW_SCHEMA)
    evidence = evidence_table(rows, own, serving=serving, reference=reference, recent=recent)
    return evidence.hstack(windows.drop(*WINDOW_SCHEMA))


def minute_windows(rows: pl.DataFrame) -> pl.DataFrame:
    """Each row of a minute as a window."""
    minutes = rows.filter(pl.col("seconds") == MINUTE)
    start = (pl.col("end") - timedelta(minutes=1)).cast(TIME)
    return minutes.select(*KEY, start.alias("start"), "end")


def in_window(rows: pl.DataFrame, start: datetime, end: datetime) -> pl.DataFrame:
    """Stored rows at least half inside (start, end]; else the row that contains ``end``."""
    length = pl.duration(seconds=pl.col("seconds"))
    begins = pl.col("end") - length
    inside = pl.min_horizontal("end", pl.lit(end, dtype=TIME)) - pl.max_horizontal(
        begins, pl.lit(start, dtype=TIME)
    )
    near = rows.filter(inside * 2 >= length)
    return near if len(near) else rows.filter((begins < end) & (pl.col("end") >= end))
