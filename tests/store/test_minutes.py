"""Minutes in the store: written by ticks, packed, rolled up, read again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from recorded_minute_cases import copies, real_minutes
from sqlalchemy import select
from store_cases import NOW, committer, prune

from driftwatch.detect.references import Loss, PoolHour, Reference, TargetDays
from driftwatch.minutes.schema import SUMS
from driftwatch.model import TargetKey
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store.minute_columns import ADDED, STORED_SCHEMA, rolled_up
from driftwatch.store.store import Store
from driftwatch.store.tables import minute_batches

Commit = Callable[..., None]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KEY = ["instance", "engine", "end"]


@pytest.fixture(scope="module")
def minutes(shared_data: Path) -> pl.DataFrame:
    return real_minutes(shared_data / "vllm-0.32" / "run_slow")


def first_of(minutes: pl.DataFrame) -> datetime:
    found = minutes["end"].min()
    assert isinstance(found, datetime)
    return found - timedelta(minutes=1)


def ticked(store: Store, minutes: pl.DataFrame, by: timedelta) -> None:
    """Commit the minutes, so many of them at a time."""
    start, last = first_of(minutes), minutes["end"].max()
    assert isinstance(last, datetime)
    while start < last:
        part = minutes.filter((pl.col("end") > start) & (pl.col("end") <= start + by))
        committer(store)(minutes=part)
        start += by


def minutes_of(store: Store, *asked: Any) -> pl.DataFrame:
    """What is still stored as minutes."""
    return store.past(*asked).filter(pl.col("seconds") == 60).select(*MINUTE_SCHEMA)


def batches(store: Store) -> list[tuple[int, int]]:
    with store._reading() as connection:
        query = select(minute_batches.c.seconds, minute_batches.c.packed)
        return [tuple(row) for row in connection.execute(query)]


@pytest.mark.parametrize("by", [timedelta(minutes=7), 3 * HOUR])
def test_minutes_come_back_half_open_however_they_came(
    store: Store, minutes: pl.DataFrame, by: timedelta
) -> None:
    some = copies(minutes, hours=2, instances=2).filter(pl.col("end").dt.minute() < 12)
    start = first_of(some)
    ticked(store, some, by)
    found = store.past(start, start + 2 * HOUR)
    assert_frame_equal(found.drop("seconds"), some)
    assert set(found["seconds"]) == {60.0}
    # the minute that ends with the span is in it, the one that ends where it begins is not
    part = minutes_of(store, start + timedelta(minutes=3), start + timedelta(minutes=5))
    assert dict(part.schema) == dict(MINUTE_SCHEMA)
    assert part["end"].dt.minute().to_list() == [4, 5, 4, 5]


def test_the_minutes_of_some_targets(store: Store, minutes: pl.DataFrame) -> None:
    ticked(store, copies(minutes, hours=1, instances=40), HOUR)  # more than one batch
    assert len(batches(store)) > 1
    start = first_of(minutes)
    wanted = [TargetKey("s017:8000", "0"), TargetKey("s033:8000", "0")]
    found = minutes_of(store, start, start + HOUR, [*wanted, TargetKey("nobody:1", "0")])
    assert found["instance"].unique(maintain_order=True).to_list() == ["s017:8000", "s033:8000"]
    assert minutes_of(store, start, start + HOUR, []).is_empty()
    assert store.minutes_span(wanted[0]) == (start, found["end"].max())
    assert store.minutes_span(TargetKey("nobody:1", "0")) is None


def test_a_tick_that_ran_again_counts_once(store: Store, minutes: pl.DataFrame) -> None:
    ticked(store, minutes.head(5), timedelta(minutes=1))
    again = minutes.head(5).with_columns(running_requests=pl.lit(7.0))
    ticked(store, again, timedelta(minutes=1))
    assert_frame_equal(store.past(first_of(minutes), NOW + 9999 * DAY).drop("seconds"), again)


def test_hours_are_packed_when_nobody_needs_them(store: Store, minutes: pl.DataFrame) -> None:
    hours = copies(minutes, hours=4)
    start = first_of(hours)
    ticked(store, hours, timedelta(minutes=10))
    assert store.pack_minutes(start + 6 * HOUR) > 0
    assert batches(store) == [(60, 0), (60, 1)]  # three hours are one batch, the fourth waits
    found = store.past(start, start + 4 * HOUR).drop("seconds")
    later = pl.col("end") > start + 3 * HOUR
    assert_frame_equal(found.filter(later), hours.filter(later))
    assert_frame_equal(found.select(*KEY, *SUMS), hours.select(*KEY, *SUMS), rel_tol=5e-5)
    assert found.select(pl.col("^.*_count$").sum()).equals(hours.select(pl.col("^.*_count$").sum()))
    assert store.pack_minutes(start + 6 * HOUR) == 0


def test_days_that_are_over_are_rolled_up(store: Store, minutes: pl.DataFrame) -> None:
    hours = copies(minutes, hours=3, instances=2)
    start = first_of(hours).replace(hour=0, minute=0)
    ticked(store, hours, HOUR)
    now = start + 3 * DAY - timedelta(seconds=1)
    store.pack_minutes(now)
    assert set(store.past(start, now)["seconds"]) == {60.0}
    store.pack_minutes(now + timedelta(seconds=1))
    found = store.past(start, now)
    assert set(found["seconds"]) == {600.0}
    assert minutes_of(store, start, now).is_empty()
    assert_frame_equal(
        found.drop("seconds").select(*KEY, *ADDED),
        rolled_up(hours, 600).select(*KEY, *ADDED),
        rel_tol=5e-5,
    )
    committer(store)()
    prune(store, minutes_before=start + DAY)
    assert store.past(start, now).is_empty()


def test_parts_of_a_rolled_up_span_add_up_and_later_minutes_replace_packed_ones(
    store: Store, minutes: pl.DataFrame
) -> None:
    hours = copies(minutes, hours=2)
    start = first_of(hours).replace(hour=0, minute=0)
    late = (pl.col("end").dt.minute() >= 5) & (pl.col("end").dt.minute() < 8)
    ticked(store, hours.filter(~late), HOUR)
    store.pack_minutes(start + 2 * DAY)
    again = hours.filter(~late).head(3).with_columns(running_requests=pl.lit(7.0))
    ticked(store, again, HOUR)
    seen = store.past(start, start + DAY)
    assert seen["running_requests"][:3].to_list() == [7.0] * 3
    assert len(seen) == len(hours.filter(~late))
    now = start + 3 * DAY
    while store.pack_minutes(now):
        pass
    ticked(store, hours.filter(late), HOUR)  # the day is rolled up already
    while store.pack_minutes(now):
        pass
    found = store.past(start, now)
    assert found.select(KEY).is_duplicated().sum() == 0
    assert found["finished_requests_total"].sum() == pytest.approx(
        hours["finished_requests_total"].sum(), rel=5e-5
    )


def test_a_roll_up_says_what_its_minutes_say(minutes: pl.DataFrame) -> None:
    ten = minutes.filter(pl.col("end") <= first_of(minutes) + timedelta(minutes=10))
    (row,) = rolled_up(ten, 600).to_dicts()
    for name in ADDED:
        if ten[name].is_null().all():  # of what no page shows nothing is known, not 0
            assert row[name] is None, name
        else:
            assert row[name] == pytest.approx(ten[name].sum(), rel=1e-12), name
    for name in ("e2e_seconds_buckets", "prompt_tokens_buckets"):
        by_cell = zip(*ten[name].to_list(), strict=True)
        assert row[name] == [sum(cell) for cell in by_cell]
    weights = ten["duration_seconds"]
    mean = (ten["running_requests"] * weights).sum() / weights.sum()
    assert row["running_requests"] == pytest.approx(mean, rel=1e-12)
    assert row["binding_limit"] == ten["binding_limit"][-1]
    assert row["end"] == first_of(minutes) + timedelta(minutes=10)


def test_unknown_minutes_make_a_roll_up_unknown_unobserved_ones_do_not(
    minutes: pl.DataFrame,
) -> None:
    ten = minutes.head(10).with_row_index("n")
    unknown = ten.with_columns(
        pl.when(pl.col("n") != 4).then("e2e_seconds_sum").alias("e2e_seconds_sum"),
        pl.when(pl.col("n") != 4).then("e2e_seconds_buckets").alias("e2e_seconds_buckets"),
        # a knob change gives other edges: cells of different edges do not add up
        ttft_seconds_edges=pl.when(pl.col("n") != 6)
        .then("ttft_seconds_edges")
        .otherwise(pl.col("ttft_seconds_edges") * 2),
    ).drop("n")
    (row,) = rolled_up(unknown, 600).to_dicts()
    assert row["e2e_seconds_sum"] is row["e2e_seconds_buckets"] is None
    assert row["ttft_seconds_buckets"] is None
    assert row["ttft_seconds_count"] == ten["ttft_seconds_count"].sum()
    nothing = {c: pl.when(pl.col("n") != 4).then(pl.col(c)) for c in STORED_SCHEMA if c not in KEY}
    silent = ten.with_columns(**nothing).with_columns(
        scrapes=pl.col("scrapes").fill_null(0.0),
        duration_seconds=pl.col("duration_seconds").fill_null(0.0),
    )
    (row,) = rolled_up(silent.drop("n"), 600).to_dicts()
    others = ten.filter(pl.col("n") != 4)
    assert row["e2e_seconds_count"] == others["e2e_seconds_count"].sum()
    assert row["running_requests"] is not None
    assert row["restarted"] is False


def test_references_stand_in_the_place_of_older_ones(store: Store, commit: Commit) -> None:
    key = TargetKey("a:8000", "0")
    pool = Reference("chat", None, NOW, PoolHour(slower={"a:8000": Loss(before=0, loss=1)}))
    own = Reference("chat", key, NOW, TargetDays(speed_slope_14d_ratio=-0.01))
    commit(references=[pool, own])
    assert store.references() == [own, pool]
    later = replace(pool, learnt_at=NOW + HOUR, document=PoolHour())
    commit(references=[later])
    assert store.references() == [own, later]
    commit(references_gone=[own.place])
    assert store.references() == [later]
    commit(references=[own])
    prune(store, incidents_before=NOW + HOUR)  # of a target that is long gone
    assert store.references() == [later]
