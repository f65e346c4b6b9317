"""The schedule of a process: calls, errors and skipped calls, a clock that steps back."""

from __future__ import annotations

import threading

from driftwatch.service.timing import Schedule

WAIT_SECONDS = 20.0


def test_each_job_is_called_at_once_and_a_failure_or_a_skipped_call_is_named() -> None:
    failed: dict[str, BaseException | None] = {}
    told, go_on = {"bad": threading.Event(), "slow": threading.Event()}, threading.Event()

    def note(job: str, error: BaseException | None) -> None:
        failed[job] = error
        told[job].set()

    def bad() -> None:
        raise ValueError("no")

    schedule = Schedule(note)
    schedule.every(3600, "bad", bad)
    schedule.every(0.1, "slow", lambda: go_on.wait(WAIT_SECONDS))
    schedule.start()
    assert all(one.wait(WAIT_SECONDS) for one in told.values())
    go_on.set()
    schedule.stop()
    assert isinstance(failed["bad"], ValueError) and failed["slow"] is None


def test_after_a_step_back_of_the_clock_every_job_is_called_at_once() -> None:
    calls = threading.Semaphore(0)
    schedule = Schedule(lambda job, error: None)
    schedule.every(3600, "tick", calls.release)
    schedule.start()
    assert calls.acquire(timeout=WAIT_SECONDS)
    assert not calls.acquire(blocking=False)  # the next call is in an hour
    schedule.call_all()
    assert calls.acquire(timeout=WAIT_SECONDS)
    schedule.stop()


def test_a_schedule_that_never_began_can_be_stopped() -> None:
    Schedule(lambda job, error: None).stop()
