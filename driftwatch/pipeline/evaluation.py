"""Minutes of all targets: their signals, and the input of findings and pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from driftwatch.detect.days import with_usual
from driftwatch.detect.reference import no_reference
from driftwatch.diagnose.evidence_table import (
    evidence_table,
    no_inputs_seen,
    no_recent,
    no_rows,
    with_inherited,
)
from driftwatch.minutes.rows import minute_grid, minute_rows
from driftwatch.minutes.scheduler import no_samples
from driftwatch.pipeline.departures import with_looks
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.plan import Plan, TargetFrames
from driftwatch.pipeline.question import TargetAdvice, target_advice
from driftwatch.pipeline.roster import Sources
from driftwatch.pipeline.state import State
from driftwatch.signals.gpus import GPU_COLUMNS, gpu_columns


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """Evidence of minutes, also of targets without a scrape."""

    frames: TargetFrames
    reference: pl.DataFrame
    # :data:`driftwatch.diagnose.evidence_table.ROW_SCHEMA`, row for row of ``rows``
    minutes: pl.DataFrame
    recent: pl.DataFrame  # :data:`driftwatch.diagnose.evidence_table.RECENT`, with those before
    rows: pl.DataFrame  # evidence rows of the minutes
    inputs_seen: pl.DataFrame  # for the next minutes
    samples: (
        pl.DataFrame
    )  # of the last scrapes (:data:`driftwatch.minutes.scheduler.SAMPLE_SCHEMA`)


def signals_from_rows(
    frames: TargetFrames, rows: pl.DataFrame, reference: pl.DataFrame | None = None
) -> Signals:
    """Signals of minutes whose evidence rows exist."""
    measured = no_reference() if reference is None else reference
    return Signals(frames, measured, no_rows(), no_recent(), rows, no_inputs_seen(), no_samples())


def signals_of(
    state: State, first: datetime, last: datetime, plan: Plan, sources: Sources
) -> Signals:
    """The evidence of every target in the minutes [first, last)."""
    frames = plan.frames(state.targets, state.frames)
    made = minute_rows(state.scrapes, frames.serving, first, last, state.samples)
    late = {
        name: (why, state.collected_until.get(name, first))
        for name, why in (sources.late or {}).items()
    }
    scrapes = state.scrapes.filter(pl.col("time").is_between(first, last, closed="left"))
    origins = state.departures.origins
    asked = (origins, sources.fixed, late, state.looks, sources.doubtful, sources.not_listed)
    new = with_looks(made.rows, scrapes, *asked)
    grid = minute_grid(frames.serving, first, last)
    on_gpus = gpu_columns(grid, state.gpus, frames.gpu_targets).select(*GPU_COLUMNS)
    before = state.minutes.join(
        frames.serving, on=["instance", "engine"], how="semi", maintain_order="left"
    )
    found = with_inherited(
        before, new.hstack(on_gpus), frames.serving, plan.inputs, state.inputs_seen
    )
    learnt = state.detection.references
    reference = with_usual(state.in_force.reference, frames.declared, learnt, last.date())
    serving, recent = frames.serving, found.recent
    rows = evidence_table(found.rows, grid, serving=serving, reference=reference, recent=recent)
    return Signals(frames, reference, found.rows, recent, rows, found.inputs_seen, made.samples)


def window_rows(evaluation: Evaluation, windows: pl.DataFrame) -> pl.DataFrame:
    """The evidence rows of windows; cut at restarts and knob changes."""
    signals, since, until = evaluation.signals, windows["start"].min(), windows["end"].max()
    assert isinstance(since, datetime) and isinstance(until, datetime)  # noqa: S101 - there are some
    rows = evaluation.past.rows(windows, since, until)
    return evidence_table(
        rows, windows, serving=signals.frames.serving, reference=signals.reference
    )


Windows = Callable[["Evaluation", pl.DataFrame], pl.DataFrame]
Ask = Callable[..., TargetAdvice]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Minutes that were evaluated together."""

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
    ask: Ask = target_advice  # what a simulation is asked by
