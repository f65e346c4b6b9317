"""Evidence of the database's minutes: what a replay of the same scrapes has, where it can tell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from driftwatch.backtest.archive import Archive
from driftwatch.backtest.archive_writer import keep
from driftwatch.backtest.stored_archive import NO_MINUTES, keep_stored
from driftwatch.backtest.stored_rows import UNKNOWN
from driftwatch.collect.recordings import open_recording
from driftwatch.errors import NoVerdict
from driftwatch.evidence import COLUMNS
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import CAPACITY
from driftwatch.service.configuration import plan_of
from driftwatch.service.history import keep_history
from driftwatch.store.store import Store

# Told from all scrapes of a target, of which the database has none.
_OF_SCRAPES = {"capacity_unknown_reason", "seconds_since_last_token", *UNKNOWN, *CAPACITY}


@pytest.fixture(scope="module")
def plan(fleet: Path) -> Plan:
    return plan_of(fleet / "driftwatch.yaml")


@pytest.fixture(scope="module")
def store(fleet: Path, plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    source = open_recording(fleet)
    with Store.open(tmp_path_factory.mktemp("db") / "driftwatch.db") as store:
        keep_history(store, [source], source.span(), plan.without_rules())
        yield store


def every_row(archive: Archive) -> pl.DataFrame:
    rows = [archive.rows(day, archive.columns(day)) for day in archive.days]
    return pl.concat(rows).sort("instance", "engine", "end")


def test_rows_are_those_of_the_scrapes(
    store: Store, fleet: Path, plan: Plan, tmp_path: Path
) -> None:
    source = open_recording(fleet)
    span = source.span()
    of_scrapes = keep([source], span, plan, tmp_path)
    stored = keep_stored(store, span, plan, tmp_path)
    one, other = every_row(of_scrapes), every_row(stored)
    key = ["instance", "engine", "end"]
    assert other.select(key).equals(one.select(key))
    differing = {
        column.name: share
        for column in COLUMNS
        if column.name not in _OF_SCRAPES
        and (share := _differing(one[column.name], other[column.name])) > 0
    }
    # of the minute of a restart the database does not know what was before and what after it
    assert set(differing) == {
        "observed_10m_seconds",
        "ttft_10m_seconds",
        "queue_share_of_ttft_10m_ratio",
    }
    assert max(differing.values()) <= 9 / len(one)
    assert one["ever_seen"].equals(other["ever_seen"])


def test_who_was_there_and_a_span_without_minutes(
    store: Store, fleet: Path, plan: Plan, tmp_path: Path
) -> None:
    first, last = open_recording(fleet).span()
    archive = keep_stored(store, (first, last), plan, tmp_path)
    stretches = [stretch for day in archive.days for stretch in archive.roster(day)]
    retired = [(key.instance, why) for one in stretches for key, why in one.retired.items()]
    assert [why for _, why in retired] == [NO_MINUTES] * 2
    assert {len(one.targets) for one in stretches} == {2, 3}
    for day in archive.days:
        rows = archive.rows(day, [])
        for one in archive.roster(day):
            inside = rows.filter(pl.col("end").is_between(one.first, one.last, closed="right"))
            names = {key.instance for key in one.targets}
            assert set(inside["instance"]) == names
    before = first - timedelta(days=3), first - timedelta(days=2)
    with pytest.raises(NoVerdict) as told:
        keep_stored(store, before, plan, tmp_path)
    assert told.value.help_text == "minutes reach from 2026-11-16 21:30 to 2026-11-17 01:29 UTC"


def _differing(one: pl.Series, other: pl.Series) -> float:
    """Share of the rows in which two columns are not the same, but for what rounding does."""
    if one.dtype == pl.Float64:
        same = ((one - other).abs() <= 1e-3 * one.abs() + 1e-9) | (one.is_null() & other.is_null())
        return 1.0 - float(same.fill_null(False).sum()) / len(one)
    return 1.0 - float(one.eq_missing(other).sum()) / len(one)
