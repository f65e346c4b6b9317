"""A tick waits for its simulations within a bound; a page goes out without a late answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from service_cases import shipped_plan

from driftwatch.clock import ManualClock
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.model import Advice, Reason, Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import Moment, TargetAdvice
from driftwatch.recommend import advise as advising
from driftwatch.recommend.advice import Answer, Question
from driftwatch.service import run
from driftwatch.service.batches import BoundedQuestions
from driftwatch.service.run import Service
from driftwatch.store import Store

AT = datetime(2026, 3, 2, 8, tzinfo=UTC)
PLAN = Plan(rules=(), trees={})
MOMENT = Moment(Target(TargetKey("a:8000", "0"), {}, "a"), AT, pl.DataFrame())


@pytest.fixture
def leave() -> Iterator[threading.Event]:
    """For what simulates slowly: it may end."""
    event = threading.Event()
    yield event
    event.set()


def test_a_firing_page_is_committed_without_an_answer_that_does_not_come(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave: threading.Event
) -> None:
    def hangs(question: Question, **_: Any) -> Answer:
        leave.wait(60)
        raise ZeroDivisionError

    monkeypatch.setattr(advising, "advise", hangs)
    monkeypatch.setattr(advising, "assess", hangs)
    monkeypatch.setattr(run, "_SIMULATING_SECONDS", 0.5)
    source = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    first, last = source.span()
    with Store.open(tmp_path / "driftwatch.db") as store:
        clock = ManualClock(first)
        service = Service([source], shipped_plan(1), store, [], clock)
        slowest = 0.0
        while clock.now() < last and not any(one.page for one in store.open_incidents().values()):
            clock.advance(5 * (last - first) / 140)
            began = time.monotonic()
            service.tick_once()
            slowest = max(slowest, time.monotonic() - began)
        pages = [one.page for one in store.open_incidents().values() if one.page]
        service.stop()
    assert pages and slowest < 20
    (page, *_) = pages
    assert page.advice.reason.text == "the simulations of this tick took over 0.5 s"
    assert page.asked_again_at


def test_while_one_is_simulated_others_have_no_answer(leave: threading.Event) -> None:
    asked: list[str | None] = []

    def slow(moment: Moment, plan: Plan, *, incident_id: str | None = None) -> TargetAdvice:
        asked.append(incident_id)
        leave.wait(30)
        advice = Answer(at=moment.at, advice=Advice(action="none", reason=Reason("other", "fine")))
        return TargetAdvice(moment.target, moment.at, advice, incident_id)

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
