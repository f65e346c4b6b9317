"""A recording of a test through the whole pipeline, as ``driftwatch replay``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from driftwatch.collect.recordings import open_recording
from driftwatch.collect.schema import Source
from driftwatch.durations import parse_duration
from driftwatch.pipeline.explain import Window
from driftwatch.pipeline.plan import Plan
from driftwatch.rulebook.book import Rulebook
from driftwatch.rulebook.overrides import overridden
from driftwatch.ruletests.cases import RuleTest
from driftwatch.ruletests.timeline import Timeline
from driftwatch.service.configuration import plan_of_rules, plan_of_settings
from driftwatch.service.replay import replay
from driftwatch.settings import load_settings

_SHIPPED = Path(__file__).resolve().parent.parent / "_demo"
_SHIPPED_SUFFIX = ".jsonl.gz"


def recording_path(text: str, folder: Path) -> Path:
    """A recording beside the test, or a shipped one by its name (run_cap)."""
    shipped = _SHIPPED / f"{text}{_SHIPPED_SUFFIX}"
    return shipped if "/" not in text and shipped.exists() else folder / text


def window_of(text: str) -> tuple[float, float] | None:
    """Seconds from and to of ``10m..95m``; None where it is none."""
    first, _, last = text.partition("..")
    with suppress(ValueError):
        start, end = parse_duration(first), parse_duration(last)
        if start < end:
            return start, end
    return None


def recording_played(test: RuleTest, folder: Path, book: Rulebook) -> Timeline:
    """A recording; `at: 0m` is the minute of its first scrape.

    Raises:
        ConfigError: its configuration has problems.
        RecordingError: it cannot be read.
        UsageError: the baseline holds no minute with a scrape.
    """
    settings = None if test.config is None else load_settings(folder / test.config)
    base = plan_of_rules(()) if settings is None else plan_of_settings(settings)
    rules, _, _ = overridden(book.rules, settings)
    plan = replace(base, rules=rules, trees=book.trees)
    source = open_recording(recording_path(test.recording or "", folder))
    try:
        span = source.span()
        start = span[0].replace(second=0, microsecond=0)
        seconds = None if test.baseline is None else window_of(test.baseline)
        baseline = None if seconds is None else _window(start, *seconds)
        return _replayed([source], span, start, plan, book, baseline)
    finally:
        source.close()


def _window(start: datetime, first: float, last: float) -> Window:
    return Window(start + timedelta(seconds=first), start + timedelta(seconds=last))


def _replayed(
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    start: datetime,
    plan: Plan,
    book: Rulebook,
    baseline: Window | None,
) -> Timeline:
    outcomes = list(replay(sources, span, plan, baseline=baseline))
    with_rows = [outcome for outcome in outcomes if outcome.rows.width]
    rows = pl.concat([outcome.rows for outcome in with_rows])
    minutes = int((span[1] - start).total_seconds() // 60) + 1
    return Timeline(
        start,
        book,
        rows,
        pl.concat([outcome.verdicts for outcome in with_rows]),
        tuple(t for outcome in outcomes for t in outcome.transitions),
        minutes,
        plan.enabled,
        has_windows=True,
    )
