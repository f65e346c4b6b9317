"""A week's report of recorded history, through the same tick as a live one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import Source
from driftwatch.detect.pins import Pins
from driftwatch.errors import NoVerdict
from driftwatch.model import Incident
from driftwatch.report.material import Material, Price, Reference
from driftwatch.report.week import Week
from driftwatch.service.plan import Plan
from driftwatch.service.replay import replay
from driftwatch.service.reporting import Folded, of_history, reference_of_pin, slos_of
from driftwatch.store.minute_columns import stored_rows

_DAY = timedelta(days=1)


def history_of(
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    plan: Plan,
    week: Week,
    *,
    pins: Pins | None = None,
    price: Price | None = None,
    note: Callable[[pl.DataFrame], None] | None = None,
) -> Material:
    """Everything of one week of recordings; what came before the week teaches the detectors.

    Args:
        sources: recordings that hold the span.
        span: from, to; may begin before the week.
        plan: rules, trees, pools.
        week: which.
        pins: in force.
        price: of a GPU for an hour.
        note: told of every stretch's evidence rows.

    Raises:
        NoVerdict: no minute of the week could be evaluated.
    """
    folded = Folded(slos_of(plan))
    incidents: dict[str, Incident] = {}
    waiting: list[pl.DataFrame] = []
    for outcome in replay(sources, span, plan, pins=pins):
        if note is not None:
            note(outcome.rows)
        incidents |= {t.incident.id: t.incident for t in outcome.transitions}
        rows = stored_rows(outcome.rows).with_columns(seconds=pl.lit(60.0))
        waiting.append(rows.filter(pl.col("end") > week.start))
        waiting = _fold_whole_days(folded, pl.concat(waiting))
    _fold(folded, pl.concat(waiting) if waiting else None)
    if folded.cells.is_empty():
        raise NoVerdict(f"no minute of {week.name} could be evaluated")
    return of_history(
        plan,
        week,
        folded,
        list(incidents.values()),
        until=span[1],
        references=_references(pins),
        price=price,
    )


def _references(pins: Pins | None) -> list[Reference]:
    return [] if pins is None else [reference_of_pin(pin) for pin in pins.pins]


def _fold_whole_days(folded: Folded, rows: pl.DataFrame) -> list[pl.DataFrame]:
    """Fold the days that are over; what is left of the last one."""
    last = rows["end"].max()
    if not isinstance(last, datetime):
        return []
    midnight = last.replace(hour=0, minute=0, second=0, microsecond=0)
    done = rows.filter(pl.col("end") <= midnight).sort("end")
    for day in _by_day(done):
        _fold(folded, day)
    return [rows.filter(pl.col("end") > midnight)]


def _by_day(rows: pl.DataFrame) -> list[pl.DataFrame]:
    if rows.is_empty():
        return []
    told = rows.with_columns(day=(pl.col("end") - pl.duration(microseconds=1)).dt.truncate("1d"))
    return told.partition_by("day", include_key=False, maintain_order=True)


def _fold(folded: Folded, rows: pl.DataFrame | None) -> None:
    if rows is None or rows.is_empty():
        return
    ordered = rows.sort("instance", "engine", "end")
    folded.add(ordered)
    folded.add_day(ordered)
