"""The executor of one process: order, keys, failures, the end; and the same tasks by a worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from structlog.testing import capture_logs
from worker_process import Begin

from driftwatch.service.slow_tasks import COMPACTION, compact, compaction_task
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.store import Store, TickRecord
from driftwatch.tasks.in_process import InProcess
from driftwatch.tasks.queue import WorkerQueue
from driftwatch.tasks.task import QUEUES, Arguments, Queue, QueueCounts, Task

START = datetime(2026, 3, 2, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "driftwatch.db") as opened:
        yield opened


def named(queue: Queue, key: str) -> Task:
    return Task("note", queue, key, {"key": key})


def test_the_most_urgent_goes_first_and_a_key_waits_once(own: Store) -> None:
    leave, order = threading.Event(), list[str]()

    def note(_: Store, arguments: Arguments) -> None:
        assert leave.wait(20)
        order.append(arguments["key"])

    tasks = InProcess({"note": note}, lambda: own)
    assert tasks.defer(own, named("maintenance", "first"))
    while not tasks.counts(own)["maintenance"].running:
        time.sleep(0.01)
    waits: list[tuple[Queue, str]] = [
        ("maintenance", "m"), ("reports", "b"), ("reports", "r"), ("reports", "c"),
    ]  # fmt: skip
    assert all(tasks.defer(own, named(*one)) for one in waits)
    assert not tasks.defer(own, named("reports", "b"))
    # the one that is being done does not keep the next one of its key away
    assert tasks.defer(own, named("maintenance", "first"))
    counts = tasks.counts(own)
    assert (counts["reports"].waiting, counts["reports"].running) == (3, 0)
    assert 0 < counts["reports"].oldest_waiting_seconds < 20
    leave.set()
    tasks.finish()
    assert order == ["first", "b", "r", "c", "m", "first"]
    tasks.close()


def test_a_task_that_fails_three_times_is_given_up_and_the_next_is_done(own: Store) -> None:
    tried: list[Arguments] = []

    def fails(_: Store, arguments: Arguments) -> None:
        tried.append(arguments)
        if len(tried) <= 3:
            raise ValueError("no luck\ntoday")

    tasks = InProcess({"fails": fails}, lambda: own, retry_seconds=0.01)
    task = Task("fails", "reports", "k", {"n": 1})
    with capture_logs() as logs:
        tasks.defer(own, task)
        tasks.finish()
    assert tried == [{"n": 1}] * 3
    assert (logs[-1]["event"], logs[-1]["reason"]) == ("task is dead", "ValueError: no luck today")
    tasks.defer(own, task)
    tasks.finish()
    assert len(tried) == 4
    tasks.close()


def test_what_waits_at_the_end_is_not_begun(own: Store) -> None:
    stopping, order = threading.Event(), list[str]()

    def note(_: Store, arguments: Arguments) -> None:
        assert stopping.wait(20)
        order.append(arguments["key"])

    tasks = InProcess({"note": note}, lambda: own, stopping)
    for key in "ab":
        tasks.defer(own, named("maintenance", key))
    while not tasks.counts(own)["maintenance"].running:
        time.sleep(0.01)
    tasks.close()
    assert order == ["a"]
    assert not tasks.defer(own, named("maintenance", "c"))
    assert all(not one.waiting and not one.running for one in tasks.counts(own).values())
    assert set(tasks.counts(own)) == set(QUEUES)


def fill(store: Store) -> None:
    """Three hours of one server, as ticks write them."""
    for minute in range(1, 181):
        end = START + timedelta(minutes=minute)
        row = {"instance": "a:8000", "engine": "0", "end": end, "running_requests": float(minute)}
        empty = pl.DataFrame(schema=STORED_SCHEMA)
        rows = pl.concat([empty, pl.DataFrame([row])], how="diagonal_relaxed")
        rows = rows.cast(pl.Schema(STORED_SCHEMA))
        store.commit_tick(TickRecord(START, end, minutes=rows))


def test_a_worker_does_what_the_thread_does(own: Store, store: Store, begin: Begin) -> None:
    now = START + 9 * HOUR
    for one in (own, store):
        fill(one)
    before = own.past(START, now)
    thread = InProcess({COMPACTION: compact}, lambda: own)
    thread.defer(own, compaction_task(now, START))
    thread.finish()
    thread.close()
    WorkerQueue().defer(store, compaction_task(now, START))
    begin()
    until = time.monotonic() + 60
    while WorkerQueue().counts(store)["maintenance"] != QueueCounts():
        assert time.monotonic() < until
        time.sleep(0.05)
    for one in (own, store):
        assert one.pack_minutes(now) == 0  # nothing is left to be packed
    assert_frame_equal(own.past(START, now), store.past(START, now))
    assert own.past(START, now).height == before.height == 180
