"""Evidence of the database's minutes, kept as that of scrapes is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from driftwatch.backtest.archive import Archive, ArchivedDay, archived_days, days_of, put_down
from driftwatch.backtest.archive_identity import identity_of, name_of
from driftwatch.backtest.archive_lock import locked
from driftwatch.backtest.day_writer import DayWriter
from driftwatch.backtest.stored_rows import REACH, UNKNOWN, evidence_of_minutes
from driftwatch.baselines.in_force import in_force
from driftwatch.baselines.rows import baselines_from_store
from driftwatch.collect.schema import KEY
from driftwatch.database_place import Place, SqliteFile
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.reference import combined, no_reference
from driftwatch.errors import NoVerdict
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.departures import RETIRED_AFTER
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import Stretch
from driftwatch.pipeline.stored_state import newest, stored_targets
from driftwatch.service.replay import midnight
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store

NO_MINUTES = "the server is gone (no minute of it is stored)"
NOTE = (
    "of the database's minutes: "
    f"{' and '.join(UNKNOWN)} are unknown, and a target counts as missing, not lost, in its last "
    f"{RETIRED_AFTER // timedelta(minutes=1)} min without a scrape"
)
# Rows that are made evidence at a time: a day of 70 targets has 100,000.
_MOST_ROWS = 50_000


def keep_stored(
    store: Store,
    span: tuple[datetime, datetime],
    plan: Plan,
    folder: Path,
    *,
    progress: Callable[[float, float], None] | None = None,
) -> Archive:
    """Evidence of the minutes that a database has of a span; those that are rolled up have none.

    Detectors' columns are as they were then; latency targets and references as they are now.

    Args:
        folder: of all kept evidence; each identity has a folder in it.

    Raises:
        NoVerdict: no minute of the span is stored.
        UsageError: the folder cannot be written.
    """
    plan, baselines = plan.without_rules(), baselines_from_store(store)
    last = newest(store)
    start = midnight(span[0])
    end = min(span[1], last or span[1]).replace(second=0, microsecond=0)
    identity = _identity(store.place, start, plan, baselines)
    here = folder / name_of(identity)
    with locked(here):
        days = archived_days(here)
        for day, until in days_of(start, end):
            there = days.get(day.date())
            if there is None or there.end < until:
                days[day.date()] = _written(store, here, (day, until), plan, baselines)
                put_down(here, identity, days)
            if progress is not None:
                progress((until - start).total_seconds(), (end - start).total_seconds())
    first = span[0].replace(second=0, microsecond=0)
    inside = [one for when, one in sorted(days.items()) if first.date() <= when <= end.date()]
    archive = Archive(here, (first, end), inside, (NOTE,))
    if not archive.has_data:
        raise _nothing(store, (first, span[1]))
    return archive


def _identity(database: Place, start: datetime, plan: Plan, baselines: Baselines) -> dict[str, Any]:
    identity = identity_of([], start, plan, baselines, no_reference())
    name = str(database.path.resolve()) if isinstance(database, SqliteFile) else database.typed
    return {**identity, "sources": [{"database": name}]}


def _written(
    store: Store,
    folder: Path,
    day: tuple[datetime, datetime],
    plan: Plan,
    baselines: Baselines,
) -> ArchivedDay:
    """A day's files, targets after targets."""
    writer = DayWriter(folder, day[0])
    try:
        gpus = store.gpus(*day)
        writer.add_gpus(gpus)
        labels = stored_targets(store)
        runs: list[pl.DataFrame] = []
        for minutes in _parts(store, day):
            targets = plan.assign(_targets(minutes, labels))
            of_pins = in_force(baselines, targets, plan, gpus).reference
            reference = combined(of_pins, plan.declared_reference(targets.values()))
            rows = evidence_of_minutes(minutes, targets, plan, reference)
            rows = rows.hstack(_judged(minutes, day[1]))
            rows = rows.filter(pl.col("end") > day[0])
            writer.add_rows(rows, int((rows["scrapes"] > 0).sum()))
            runs.append(rows.select(*KEY, "pool", "model_name", "end"))
        if runs:
            writer.add_stretches(_stretches(pl.concat(runs), labels, day[1]))
        return writer.close(day[1])
    finally:
        writer.forget()


def _parts(store: Store, day: tuple[datetime, datetime]) -> Iterator[pl.DataFrame]:
    """The minutes of a day and of those before it that its first ones reach back to."""
    every = store.past(day[0] - REACH, day[1]).filter(pl.col("seconds") == MINUTE)
    every = every.drop("seconds").sort(*KEY, "end")
    targets = every.select(KEY).unique(maintain_order=True)
    most = max(1, _MOST_ROWS * len(targets) // max(1, len(every)))
    for first in range(0, len(targets), most):
        some = targets.slice(first, most)
        yield every.join(some, on=KEY, how="semi", maintain_order="left")


def _targets(minutes: pl.DataFrame, labels: Mapping[TargetKey, Target]) -> dict[TargetKey, Target]:
    """Targets with the labels that they were known by last."""
    last = minutes.group_by(KEY, maintain_order=True).agg(pl.col("model_name").drop_nulls().last())
    targets = {}
    for instance, engine, model in last.iter_rows():
        key = TargetKey(instance, engine)
        own = {"instance": instance, "engine": engine} | ({"model_name": model} if model else {})
        targets[key] = labels.get(key) or Target(key, own)
    return targets


def _judged(minutes: pl.DataFrame, end: datetime) -> pl.DataFrame:
    """Whether a target ever answered, and whether it is missing: where its minutes end before the
    day does, those since its last scrape.
    """
    scraped = pl.col("scrapes") > 0
    next_scrape = pl.when(scraped).then(pl.col("end")).backward_fill().over(KEY)
    leaves = pl.col("end").max().over(KEY) < end
    last = pl.col("end") > pl.col("end").max().over(KEY) - RETIRED_AFTER
    return minutes.select(
        ever_seen=(scraped | pl.col("coverage_missing_seconds").is_not_null()).cum_max().over(KEY),
        inputs_missing=(next_scrape.is_null() & leaves & last).fill_null(False),
    )


def _stretches(
    rows: pl.DataFrame, labels: Mapping[TargetKey, Target], end: datetime
) -> list[Stretch]:
    """Who had minutes when: one who has none any more is retired with the last."""
    minute = pl.duration(minutes=1)
    begins = (pl.col("end").diff().over(KEY) != minute).fill_null(True)
    runs = (
        rows.sort(*KEY, "end")
        .with_columns(run=(begins | (pl.col("pool") != pl.col("pool").shift(1))).cum_sum())
        .group_by(*KEY, "pool", "run", maintain_order=True)
        .agg(first=pl.col("end").min() - minute, last=pl.col("end").max(), of=pl.len())
    )
    model = _targets(rows, labels)
    edges = sorted({*runs["first"], *runs["last"]})
    stretches = []
    for first, last in pairwise(edges):
        here = runs.filter((pl.col("first") <= first) & (pl.col("last") >= last))
        if here.is_empty():
            continue
        targets, retired = {}, {}
        rows_here = here.sort(KEY).select(*KEY, "pool", "last").iter_rows()
        for instance, engine, pool, until in rows_here:
            key = TargetKey(instance, engine)
            targets[key] = replace(model[key], pool=pool)
            if until == last and last < end:
                retired[key] = NO_MINUTES
        stretches.append(Stretch(first, last, targets, retired=retired))
    return stretches


def _nothing(store: Store, span: tuple[datetime, datetime]) -> NoVerdict:
    """That no minute is there, and from when to when some are."""
    there, reach = store.minutes_reach(), None
    if there is not None:
        first, last = there
        reach = f"minutes reach from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
    return NoVerdict(
        f"no minute with a usable scrape between {span[0]:%Y-%m-%d %H:%M} and "
        f"{span[1]:%Y-%m-%d %H:%M} UTC is in the database",
        help_text=reach or "nothing is stored yet: driftwatch run -c driftwatch.yaml",
    )
