"""Evidence of the minutes of a store: what the tick said of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from driftwatch.backtest.stored import NO_MINUTES, StoredHistory
from driftwatch.collect.recordings import open_recording
from driftwatch.errors import NoVerdict
from driftwatch.evidence import COLUMNS
from driftwatch.pipeline.plan import Plan
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


def test_rows_are_those_of_the_tick(replayed: tuple[Store, pl.DataFrame], plan: Plan) -> None:
    store, one = replayed
    reach = store.minutes_reach()
    assert reach is not None
    history = StoredHistory(store, reach, plan)
    columns = {column.name for column in COLUMNS} - {"seconds_since_last_token"}
    other = pl.concat(rows for _, rows in history.rows()).sort(KEY)
    assert other.select(KEY).equals(one.select(KEY))
    assert _all_differing(one, other, columns) == {}


def test_who_was_there_and_a_span_without_minutes(
    replayed: tuple[Store, pl.DataFrame], plan: Plan
) -> None:
    store, _ = replayed
    reach = store.minutes_reach()
    assert reach is not None
    history = StoredHistory(store, reach, plan)
    days = list(history.rows())
    stretches = [one for day, rows in days for one in history.stretches(day, rows)]
    retired = [(key.instance, why) for one in stretches for key, why in one.retired.items()]
    assert [why for _, why in retired] == [NO_MINUTES] * 2
    assert {len(one.targets) for one in stretches} == {2, 3}
    for day, rows in days:
        for one in history.stretches(day, rows):
            inside = rows.filter(pl.col("end").is_between(one.first, one.last, closed="right"))
            assert set(inside["instance"]) == {key.instance for key in one.targets}
    before = reach[0] - timedelta(days=3), reach[0] - timedelta(days=2)
    with pytest.raises(NoVerdict) as told:
        StoredHistory(store, before, plan)
    assert told.value.help_text == "minutes reach from 2026-11-16 21:30 to 2026-11-17 01:29 UTC"


def _all_differing(one: pl.DataFrame, other: pl.DataFrame, columns: set[str]) -> dict[str, float]:
    shares = {name: _differing(one[name], other[name]) for name in columns}
    return {name: share for name, share in shares.items() if share > 0}


def _differing(one: pl.Series, other: pl.Series) -> float:
    """Share of the rows in which two columns are not the same, but for what rounding does."""
    if one.dtype == pl.Float64:
        same = ((one - other).abs() <= 1e-3 * one.abs() + 1e-9) | (one.is_null() & other.is_null())
        return 1.0 - float(same.fill_null(False).sum()) / len(one)
    return 1.0 - float(one.eq_missing(other).sum()) / len(one)
