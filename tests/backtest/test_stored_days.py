"""Evidence of the minutes of a store: what the tick said of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from driftwatch.backtest.stored import NO_MINUTES, StoredDays
from driftwatch.collect.recordings import open_recording
from driftwatch.errors import NoVerdict
from driftwatch.evidence import COLUMNS
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.window_evidence import minute_evidence
from driftwatch.service.configuration import plan_of
from driftwatch.service.replay import replay
from driftwatch.store.store import Store

KEY = ["instance", "engine", "end"]


@pytest.fixture(scope="module")
def plan(fleet: Path) -> Plan:
    return plan_of(fleet / "driftwatch.yaml")


@pytest.fixture(scope="module")
def replayed(fleet: Path, plan: Plan) -> Iterator[tuple[Store, pl.DataFrame]]:
    """A store, and the evidence rows that the ticks wrote of."""
    source = open_recording(fleet)
    with Store.in_memory() as store:
        ticks = replay([source], source.span(), plan.without_rules(), store=store)
        rows = [one.rows for one in ticks if len(one.rows)]
        yield store, pl.concat(rows).sort(KEY)


def test_rows_are_those_of_the_tick(
    replayed: tuple[Store, pl.DataFrame], plan: Plan, tmp_path: Path
) -> None:
    store, one = replayed
    reach = store.minutes_reach()
    assert reach is not None
    days = StoredDays(store, reach, plan, plan.enabled, tmp_path)
    minutes = store.past(*reach).drop("seconds")
    targets = plan.assign(days.targets(minutes))
    other = minute_evidence(minutes, targets, plan, days.reference(targets))
    assert other.select(KEY).equals(one.select(KEY))
    differing = {
        column.name: share
        for column in COLUMNS
        if column.name != "seconds_since_last_token"
        and (share := _differing(one[column.name], other[column.name])) > 0
    }
    assert differing == {}


def test_who_was_there_and_a_span_without_minutes(
    replayed: tuple[Store, pl.DataFrame], plan: Plan, tmp_path: Path
) -> None:
    store, _ = replayed
    reach = store.minutes_reach()
    assert reach is not None
    days = StoredDays(store, reach, plan, plan.enabled, tmp_path / "a")
    stretches = [one for day in days.days for one in days.stretches(day, days.rows(day))]
    retired = [(key.instance, why) for one in stretches for key, why in one.retired.items()]
    assert [why for _, why in retired] == [NO_MINUTES] * 2
    assert {len(one.targets) for one in stretches} == {2, 3}
    for day in days.days:
        rows = days.rows(day)
        for one in days.stretches(day, rows):
            inside = rows.filter(pl.col("end").is_between(one.first, one.last, closed="right"))
            assert set(inside["instance"]) == {key.instance for key in one.targets}
    before = reach[0] - timedelta(days=3), reach[0] - timedelta(days=2)
    with pytest.raises(NoVerdict) as told:
        StoredDays(store, before, plan, plan.enabled, tmp_path / "b")
    assert told.value.help_text == "minutes reach from 2026-11-16 21:30 to 2026-11-17 01:29 UTC"


def _differing(one: pl.Series, other: pl.Series) -> float:
    """Share of the rows in which two columns are not the same, but for what rounding does."""
    if one.dtype == pl.Float64:
        same = ((one - other).abs() <= 1e-3 * one.abs() + 1e-9) | (one.is_null() & other.is_null())
        return 1.0 - float(same.fill_null(False).sum()) / len(one)
    return 1.0 - float(one.eq_missing(other).sum()) / len(one)
