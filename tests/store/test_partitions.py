"""Batches of PostgreSQL: one partition per day, made before they are needed, dropped whole."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from sqlalchemy import text
from store_cases import NOW, committer, readings, rows

from driftwatch.errors import StoreError
from driftwatch.store import Store, TickRecord
from driftwatch.store.partitions import PARTITIONED, days_of

DAY = timedelta(days=1)
TODAY = date(2026, 3, 1)


def days(store: Store) -> dict[str, list[date]]:
    with store._reading() as connection:
        return {table.name: days_of(connection, table) for table in PARTITIONED}


def without_a_day(store: Store) -> int:
    """Rows in the default partitions."""
    with store._reading() as connection:
        return sum(
            int(connection.execute(text(f"SELECT count(*) FROM {t.name}_default")).scalar_one())
            for t in PARTITIONED
        )


def test_a_write_makes_the_day_that_it_needs_and_no_other(postgres_store: Store) -> None:
    assert days(postgres_store) == {table.name: [] for table in PARTITIONED}
    committer(postgres_store)(scrapes=rows(4), gpus=readings(4, NOW - 40 * DAY))
    # the tick's readings are old, but the batch ends with the tick
    assert days(postgres_store) == {
        "scrape_batches": [TODAY],
        "gpu_batches": [TODAY],
        "minute_batches": [],
    }
    assert without_a_day(postgres_store) == 0


def test_a_batch_that_grows_past_midnight_moves_to_the_next_day(postgres_store: Store) -> None:
    midnight = NOW.replace(hour=0) + DAY

    def tick(start: timedelta) -> None:
        since = midnight + start
        until = since + timedelta(minutes=1)
        record = TickRecord(since=since, until=until, scrapes=rows(4, since))
        postgres_store.commit_tick(record)

    tick(timedelta(minutes=-2))
    assert days(postgres_store)["scrape_batches"] == [TODAY]
    tick(timedelta(minutes=1))
    assert days(postgres_store)["scrape_batches"] == [TODAY, TODAY + DAY]
    assert postgres_store.scrapes(midnight - DAY, midnight + DAY).height == 8
    assert postgres_store.prune(midnight + timedelta(hours=1)) == 0  # it ends on the second day
    assert days(postgres_store)["scrape_batches"] == [TODAY + DAY]
    assert postgres_store.scrapes(midnight - DAY, midnight + DAY).height == 8


def test_days_ahead_are_made_once(postgres_store: Store) -> None:
    for _ in range(2):
        postgres_store.make_room(NOW)
    expected = [TODAY, TODAY + DAY, TODAY + 2 * DAY]
    assert days(postgres_store) == {table.name: expected for table in PARTITIONED}


def test_making_room_in_sqlite_is_nothing(sqlite_store: Store) -> None:
    sqlite_store.make_room(NOW)
    assert sqlite_store.scrapes(NOW, NOW + DAY).is_empty()


def test_pruning_drops_the_days_that_are_over(postgres_store: Store) -> None:
    for day in range(5):
        committer(postgres_store)(
            scrapes=rows(4, NOW + day * DAY), gpus=readings(4, NOW + day * DAY)
        )
    assert postgres_store.prune(NOW + 2 * DAY) == 2
    assert days(postgres_store)["scrape_batches"] == [TODAY + n * DAY for n in (2, 3, 4)]
    assert days(postgres_store)["gpu_batches"] == [TODAY + n * DAY for n in (2, 3, 4)]
    kept = postgres_store.scrapes(NOW - DAY, NOW + 9 * DAY)
    assert kept["time"].dt.date().unique().sort().to_list() == [TODAY + n * DAY for n in (2, 3, 4)]
    assert postgres_store.prune(NOW + 2 * DAY) == 0
    assert without_a_day(postgres_store) == 0


def test_pruning_does_not_wait_for_a_long_report(postgres_store: Store, postgres_url: str) -> None:
    """A reader's snapshot holds the days it reads; pruning tells so and is tried again later."""
    committer(postgres_store)(scrapes=rows(4))
    committer(postgres_store)(scrapes=rows(4, NOW + 3 * DAY))
    with Store.open(postgres_url, migrate=False) as other, other._reading() as connection:
        connection.execute(text("SELECT count(*) FROM scrape_batches"))
        with pytest.raises(StoreError) as caught:
            postgres_store.prune(NOW + 2 * DAY)
        assert caught.value.code == "locked"
        committer(postgres_store)(scrapes=rows(4, NOW + 3 * DAY))  # a tick goes on
    assert postgres_store.prune(NOW + 2 * DAY) == 1
