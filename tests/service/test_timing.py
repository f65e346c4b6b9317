"""The schedule of a process, and the time that a tick's simulations may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import polars as pl
import pytest

from driftwatch.model import Advice, Reason, Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import Moment
from driftwatch.recommend.advice import Answer
from driftwatch.service.timing import BoundedQuestions, Schedule
from driftwatch.store.history import TargetAdvice

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


AT = datetime(2026, 3, 2, 8, tzinfo=UTC)
PLAN = Plan(rules=(), trees={})
MOMENT = Moment(Target(TargetKey("a:8000", "0"), {}, "a"), AT, pl.DataFrame())


@pytest.fixture
def leave() -> Iterator[threading.Event]:
    """For what simulates slowly: it may end."""
    event = threading.Event()
    yield event
    event.set()


def test_while_one_is_simulated_others_have_no_answer(leave: threading.Event) -> None:
    asked: list[str | None] = []

    def slow(moment: Moment, plan: Plan, *, incident_id: str | None = None) -> TargetAdvice:
        asked.append(incident_id)
        leave.wait(30)
        advice = Answer(at=moment.at, advice=Advice(action="none", reason=Reason("other", "fine")))
        return moment.stored_answer(advice, incident_id)

    questions = BoundedQuestions(0.2, slow)
    questions.begin()
    began = time.monotonic()
    late = [questions(MOMENT, PLAN, incident_id=name) for name in "ab"]
    assert time.monotonic() - began < 5
    questions.begin()
    late.append(questions(MOMENT, PLAN, incident_id="c"))
    assert {one.answer.advice.why for one in late} == {
        "the simulations of this tick took over 0.2 s"
    }
    assert [one.incident_id for one in late] == ["a", "b", "c"]
    assert all(one.failed for one in late)  # so that it is asked again
    assert asked == ["a"]
    leave.set()
    time.sleep(0.1)
    questions.begin()
    answer = questions(MOMENT, PLAN, incident_id="d")
    assert (answer.failed, answer.answer.advice.why) == (None, "fine")
    assert asked == ["a", "d"]
