"""Series of a test through rules, incidents, tree and pages, as a tick's evidence."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import polars as pl

from driftwatch.pipeline.evaluation import Evaluation, signals_from_rows
from driftwatch.pipeline.incidents import advanced
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.pages import with_pages
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.pipeline.state import State
from driftwatch.rulebook.book import Rulebook
from driftwatch.ruletests.series import START, Evidence
from driftwatch.ruletests.timeline import Timeline

_KEY = ["instance", "engine"]


def played(evidence: Evidence, book: Rulebook, at_seconds: Iterable[float | None]) -> Timeline:
    """The series as a tick would take them; no advice is simulated.

    Args:
        at_seconds: the times that are looked at, since the beginning; None = the last minute.
    """
    pools = (Pool("", slo=evidence.slo),)  # of any target: its latency targets
    plan = Plan(rules=book.rules, trees=book.trees, pools=pools, simulations=0)
    rows, targets = evidence.rows(), evidence.targets
    verdicts = rows.select(rule.verdict.alias(rule.id) for rule in plan.enabled)
    incidents, happened, looks = advanced(plan.enabled, {}, targets, rows, verdicts)
    first, last = START - timedelta(minutes=1), START + timedelta(minutes=evidence.minutes - 1)
    state = State(targets=targets)
    signals = signals_from_rows(plan.frames(targets), rows)
    evaluation = Evaluation(
        state, plan, signals, first, last, rows, verdicts, PastMinutes(), windows=_last_minutes
    )
    transitions, _, _ = with_pages(evaluation, happened, incidents, looks)
    at_end = 60.0 * (evidence.minutes - 1)
    looked_at = frozenset(
        START + timedelta(seconds=at_end if one is None else one) for one in at_seconds
    )
    return Timeline(
        START,
        book,
        rows,
        verdicts,
        transitions,
        evidence.minutes,
        plan.enabled,
        has_windows=False,
        looked_at=looked_at,
    )


def _last_minutes(evaluation: Evaluation, windows: pl.DataFrame) -> pl.DataFrame:
    """A series says what a page of the minute shows: its row stands for the ten minutes."""
    rows = evaluation.rows
    return (
        windows.select(*_KEY, "end")
        .join(rows, on=[*_KEY, "end"], how="left", maintain_order="left")
        .select(rows.columns)
    )
