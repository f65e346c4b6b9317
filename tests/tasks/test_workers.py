"""Workers on a real PostgreSQL: killed, stopped, failing, and in what order."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from worker_process import Begin

from driftwatch.service.task_metrics import TaskMetrics
from driftwatch.store.store import Store
from driftwatch.tasks.queue import WorkerQueue
from driftwatch.tasks.task import Queue, Task
from tests.outbox import due_deliveries

NOW = datetime(2026, 3, 2, 8, tzinfo=UTC)
QUEUE = WorkerQueue()
SLOW = Task("slow", "reports", "slow", {"week": "2026-W09", "now": NOW.isoformat()})


def until(true: Callable[[], object], folder: Path, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s\n{logged(folder)}"
        time.sleep(0.02)


def logged(folder: Path) -> str:
    """What the workers logged."""
    return "\n".join(log.read_text()[-3000:] for log in sorted(folder.glob("log-*")))


def told(folder: Path, what: str) -> list[int]:
    """Processes that told it."""
    return sorted(int(path.name.rpartition("-")[2]) for path in folder.glob(f"{what}-*"))


def note(queue: Queue, line: str) -> Task:
    return Task("note", queue, line, {"line": line})


def is_idle(store: Store) -> bool:
    return not any(one.waiting or one.running for one in QUEUE.counts(store).values())


def reports_to_send(store: Store) -> list[str]:
    return [one.receiver for one in due_deliveries(store, datetime.now(UTC))]


def test_a_task_is_deferred_with_what_else_is_written_or_not_at_all(store: Store) -> None:
    try:
        with store.one_transaction():
            assert QUEUE.defer(store, SLOW)
            assert not QUEUE.defer(store, SLOW)
            assert QUEUE.counts(store)["reports"].waiting == 1
            raise RuntimeError
    except RuntimeError:
        assert QUEUE.counts(store)["reports"].waiting == 0
    with store.one_transaction():
        assert QUEUE.defer(store, SLOW)
        # what is refused takes nothing else of the transaction with it
        assert not QUEUE.defer(store, SLOW)
        assert QUEUE.defer(store, note("maintenance", "other"))
    assert QUEUE.counts(store)["reports"].waiting == 1
    assert QUEUE.counts(store)["maintenance"].waiting == 1


def test_the_most_urgent_goes_first(store: Store, folder: Path, begin: Begin) -> None:
    for queue in ("maintenance", "reports", "maintenance"):
        line = f"{queue} {QUEUE.counts(store)[queue].waiting}"  # type: ignore[arg-type]
        assert QUEUE.defer(store, note(queue, line))  # type: ignore[arg-type]
    time.sleep(0.05)
    assert 0 < QUEUE.counts(store)["maintenance"].oldest_waiting_seconds < 20
    begin()
    until(lambda: is_idle(store), folder)
    assert (folder / "order").read_text().splitlines() == [
        "reports 0",
        "maintenance 0",
        "maintenance 1",
    ]


@pytest.mark.kill
def test_another_worker_does_the_task_of_a_killed_one(
    store: Store, folder: Path, begin: Begin
) -> None:
    QUEUE.defer(store, SLOW)
    first = begin()
    until(lambda: told(folder, "began"), folder)
    assert QUEUE.counts(store)["reports"].running == 1
    second = begin()
    until(lambda: second.pid in told(folder, "ready"), folder)
    first.kill()
    until(lambda: len(told(folder, "began")) == 2, folder)
    (folder / "go").touch()
    until(lambda: is_idle(store), folder)
    assert store.report("2026-W09") == {"by": second.pid}
    assert reports_to_send(store) == ["out"]


@pytest.mark.kill
def test_a_stopped_worker_that_goes_on_writes_nothing_again(
    store: Store, folder: Path, begin: Begin
) -> None:
    QUEUE.defer(store, SLOW)
    first = begin()
    until(lambda: told(folder, "began"), folder)
    os.kill(first.pid, signal.SIGSTOP)
    second = begin()
    until(lambda: second.pid in told(folder, "began"), folder)
    (folder / "go").touch()
    until(lambda: told(folder, "wrote"), folder)
    os.kill(first.pid, signal.SIGCONT)
    until(lambda: told(folder, "was-late"), folder)
    assert (told(folder, "wrote"), told(folder, "was-late")) == ([second.pid], [first.pid])
    assert store.report("2026-W09") == {"by": second.pid}
    assert reports_to_send(store) == ["out"]
    # and the queue goes on
    QUEUE.defer(store, note("reports", "next"))
    until(lambda: is_idle(store), folder)
    assert (folder / "order").read_text() == "next\n"


@pytest.mark.kill
def test_a_task_that_ends_every_worker_is_dead(store: Store, folder: Path, begin: Begin) -> None:
    QUEUE.defer(store, SLOW)
    for tried in range(1, 4):
        worker = begin()
        until(lambda tried=tried: len(told(folder, "began")) == tried, folder)
        worker.kill()
    begin()
    until(lambda: "its worker went silent, as 2 tries before failed too" in logged(folder), folder)
    until(lambda: is_idle(store), folder)
    assert len(told(folder, "began")) == 3


def test_a_task_that_fails_three_times_is_given_up_and_what_waits_is_counted(
    store: Store, folder: Path, begin: Begin
) -> None:
    QUEUE.defer(store, Task("fails", "reports", "k1"))
    metrics, registry = TaskMetrics(), CollectorRegistry()
    metrics.read(lambda: QUEUE.counts(store))
    registry.register(metrics)
    labels = {"queue": "reports", "state": "waiting"}
    assert registry.get_sample_value("driftwatch_tasks", labels) == 1.0
    begin()
    until(lambda: "task is dead" in logged(folder), folder)
    until(lambda: is_idle(store), folder)
    assert (folder / "order").read_text() == "tried\n" * 3
    assert "ValueError: no luck today" in logged(folder)
    assert registry.get_sample_value("driftwatch_tasks", labels) == 0.0


def test_sigterm_lets_the_task_finish(store: Store, folder: Path, begin: Begin) -> None:
    QUEUE.defer(store, SLOW)
    worker = begin()
    until(lambda: told(folder, "began"), folder)
    QUEUE.defer(store, note("maintenance", "left"))
    worker.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    (folder / "go").touch()
    assert worker.wait(10) == 0
    assert told(folder, "wrote") == [worker.pid]
    assert QUEUE.counts(store)["maintenance"].waiting == 1
    assert not (folder / "order").exists()
