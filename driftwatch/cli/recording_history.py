"""A recording: its scrapes and targets, their labels at a moment, and what is found in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.options import Progress, print_problems

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.collect.schema import Collected
    from driftwatch.detect.baselines import Baselines
    from driftwatch.model import Target, TargetKey
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.plan import Plan


def from_recording(
    path: Path, plan: Plan
) -> tuple[pl.DataFrame, pl.DataFrame, Mapping[TargetKey, Target], Window]:
    """Scrapes and GPU readings of a recording, its targets, from the first scrape to the last."""
    from driftwatch.collect.recordings import open_recording
    from driftwatch.pipeline.explain import Window
    from driftwatch.signals.one_process import of_one_process

    progress = Progress("reading")
    source = open_recording(path, progress=progress)
    try:
        since, until = source.span()
        collected = source.collect(since, until)
    finally:
        progress.close()
        source.close()
    print_problems(collected.problems)
    whole = Window(since, until - timedelta(microseconds=1))
    scrapes = of_one_process(collected.scrapes)
    print_other_servers(scrapes)
    return scrapes, collected.gpus, plan.assign(collected.targets), whole


def print_other_servers(scrapes: pl.DataFrame) -> None:
    """Say on stderr which scrapes another server than the target's answered."""
    import polars as pl

    from driftwatch.signals.one_process import ANOTHER_SERVER

    others = scrapes.filter(pl.col("reason").str.starts_with(ANOTHER_SERVER))
    for instance, count, reason in (
        others.group_by("instance", maintain_order=True)
        .agg(pl.struct("engine", "time").n_unique(), pl.col("reason").last())
        .iter_rows()
    ):
        whole = scrapes.filter(pl.col("instance") == instance).height
        text = f"{count:,} of {whole:,} scrapes are not used: {reason}"
        click.echo(f"warning: {instance}: {text}", err=True)


def labelled_at(
    path: Path, plan: Plan, at: datetime, otherwise: Mapping[TargetKey, Target]
) -> Mapping[TargetKey, Target]:
    """Targets with the labels of a moment, where a recording tells how they changed."""
    from driftwatch.collect.recordings import open_recording
    from driftwatch.collect.recordings.compact import CompactRecordingSource

    source = open_recording(path)
    try:
        if isinstance(source, CompactRecordingSource):
            return plan.assign(source.targets_until(at))
    finally:
        source.close()
    return otherwise


@dataclass(frozen=True, slots=True, eq=False)
class PipelineRows:
    """What the pipeline finds of one target where it runs over a recording.

    Attributes:
        reference: :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`: of the baseline and pins.
        detected: its last minute with the detectors' columns; without a row where there is none.
        minutes: its minutes: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, with what ran.
        beside: those of its peers.
    """

    reference: pl.DataFrame
    detected: pl.DataFrame
    minutes: pl.DataFrame
    beside: pl.DataFrame


def evaluate_recording(
    history: Collected,
    chosen: Target,
    plan: Plan,
    span: Window,
    *,
    pins: Baselines | None,
    baseline: Window | None,
    pinned_of: Mapping[TargetKey, Target],
) -> PipelineRows:
    """Run the pipeline over a recording up to the end of the span, as ``replay`` does.

    Says on stderr how far it is, and which proposed pins were taken as nobody could accept them.
    """
    import polars as pl

    from driftwatch.baselines.in_force import in_force
    from driftwatch.baselines.windows import with_more
    from driftwatch.cli.proposal_notice import TakenProposals, with_proposals
    from driftwatch.detect.baselines import Baselines
    from driftwatch.detect.reference import combined, no_reference
    from driftwatch.pipeline.minutes import SPEED_SCHEMA
    from driftwatch.pipeline.question import among, peers_of
    from driftwatch.pipeline.replay import detected_until, of_baseline
    from driftwatch.signals.minutes import minutes as minutes_of
    from driftwatch.signals.minutes import no_minutes

    pins_in_force, measured = pins or Baselines(), no_reference()
    if baseline is not None:
        measured, more = of_baseline(replace(history, targets=pinned_of), baseline, plan)
        pins_in_force = with_more(more, pins_in_force)
    progress, proposals = Progress("replaying"), TakenProposals()
    own = (pl.col("instance") == chosen.key.instance) & (pl.col("engine") == chosen.key.engine)
    recent: list[pl.DataFrame] = []

    def note(rows: pl.DataFrame) -> None:
        proposals.note(rows.filter(own))
        late = rows.filter(pl.col("end") > span.start)
        if len(late):
            beside = late.select("cache_config", "model_name", *SPEED_SCHEMA)
            recent.append(minutes_of(late).hstack(beside))

    try:
        detected = detected_until(
            history,
            chosen,
            replace(with_proposals(plan), replays=0),
            span.end,
            baselines=pins_in_force,
            reference=measured,
            progress=progress,
            on_rows=note,
        )
    finally:
        progress.close()
    proposals.tell()
    here = in_force(pins_in_force, history.targets, plan, history.gpus)
    reference = combined(measured, here.reference)
    minutes = pl.concat(recent) if recent else no_minutes()
    beside = among(minutes, peers_of(chosen, history.targets, plan))
    return PipelineRows(reference, detected, minutes.filter(own), beside)
