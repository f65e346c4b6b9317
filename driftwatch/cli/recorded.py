"""A recording as a whole: its scrapes, its targets, and what they were labelled at a moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from driftwatch.cli.options import Progress, print_problems

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.model import Target, TargetKey
    from driftwatch.service.explain import Window
    from driftwatch.service.plan import Plan


def from_recording(
    path: Path, plan: Plan
) -> tuple[pl.DataFrame, pl.DataFrame, Mapping[TargetKey, Target], Window]:
    """Scrapes and GPU readings of a recording, its targets, from the first scrape to the last."""
    from driftwatch.collect.recordings import open_recording
    from driftwatch.service.explain import Window

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
    return collected.scrapes, collected.gpus, plan.assign(collected.targets), whole


def labelled_at(
    path: Path, plan: Plan, at: datetime, otherwise: Mapping[TargetKey, Target]
) -> Mapping[TargetKey, Target]:
    """Targets with the labels of a moment, where a recording tells how they changed."""
    from driftwatch.collect.compact import CompactRecordingSource
    from driftwatch.collect.recordings import open_recording

    source = open_recording(path)
    try:
        if isinstance(source, CompactRecordingSource):
            return plan.assign(source.targets_until(at))
    finally:
        source.close()
    return otherwise
