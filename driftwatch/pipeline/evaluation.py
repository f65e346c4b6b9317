"""Minutes of all targets: their signals, and everything that findings and pages are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from driftwatch.baselines.in_force import with_releases
from driftwatch.detect.reference import combined
from driftwatch.diagnose.evidence_table import EvidenceTable, evidence_table, minute_windows
from driftwatch.model import TargetKey
from driftwatch.pipeline.departures import absences, target_listing, unseen_rows
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.plan import Plan, TargetFrames
from driftwatch.pipeline.question import TargetAdvice, target_advice
from driftwatch.pipeline.roster import Sources
from driftwatch.pipeline.state import State, together


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """What the scrapes say, also of targets without one.

    ``scrapes`` are those of the minutes and before, with the ``unseen`` ones: made for the
    ``absent`` minutes (:func:`absences`) and for late sources.
    """

    frames: TargetFrames
    reference: pl.DataFrame
    scrapes: pl.DataFrame
    unseen: pl.DataFrame
    absent: pl.DataFrame
    table: EvidenceTable


def signals_of(
    state: State,
    first: datetime,
    last: datetime,
    plan: Plan,
    sources: Sources,
    not_listed: frozenset[TargetKey],
) -> Signals:
    """The evidence of every target in the minutes [first, last)."""
    frames = plan.frames(state.targets, state.frames)
    listing = target_listing(state.targets, state.departures.origins, sources.fixed, not_listed)
    absent = absences(state.scrapes, listing, first, last, state.looks)
    late = {
        name: (why, state.collected_until.get(name, first))
        for name, why in (sources.late or {}).items()
    }
    unseen = unseen_rows(absent, listing, late, (first, last))
    scrapes = together([state.scrapes, unseen]) if len(unseen) else state.scrapes
    reference = combined(state.in_force.reference, frames.declared)
    table = evidence_table(
        scrapes,
        minute_windows(frames.serving, first, last),
        kind="chained",
        cut=False,
        serving=frames.serving,
        reference=reference,
        inputs=plan.inputs,
        carried=state.carried,
        gpus=state.gpus,
        gpu_targets=frames.gpu_targets,
    )
    return Signals(frames, reference, scrapes, unseen, absent, table)


def window_rows(evaluation: Evaluation, windows: pl.DataFrame) -> pl.DataFrame:
    """The evidence rows of windows, read from the scrapes; cut at restarts and knob changes."""
    state, signals = evaluation.state, evaluation.signals
    rows = evidence_table(
        signals.scrapes,
        windows,
        kind="chained",
        cut=True,
        serving=signals.frames.serving,
        reference=signals.reference,
        inputs=evaluation.plan.inputs,
        carried=state.carried,
        gpus=state.gpus,
        gpu_targets=signals.frames.gpu_targets,
    ).rows
    return with_releases(rows, state.in_force.frame, state.releases)


Windows = Callable[["Evaluation", pl.DataFrame], pl.DataFrame]
Ask = Callable[..., TargetAdvice]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Minutes that were evaluated together."""

    state: State  # before the minutes, with the baselines of the first one
    plan: Plan  # rules, trees, pools
    signals: Signals  # what the scrapes say
    # start of the first minute, end of the last one
    first: datetime
    last: datetime
    rows: pl.DataFrame  # evidence rows, with the detectors' columns and the capacity
    verdicts: pl.DataFrame  # one Boolean column per enabled rule id, beside the rows
    past: PastMinutes  # minutes up to these
    # windows (WINDOW_SCHEMA, at most ten minutes) → their evidence rows, in the windows' order
    windows: Windows = window_rows
    ask: Ask = target_advice  # what a simulation is asked by
