"""A page that went out without an answer: asked again while it fires, told once, never after."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from service_cases import FrameSource, shipped_plan

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.incidents.incident import Transition
from driftwatch.model import Advice, KnobMove, Reason
from driftwatch.pipeline.state import Outcome, State
from driftwatch.recommend import advise as advising
from driftwatch.recommend.advice import Answer, Gate, Question
from driftwatch.service.replay import Ticks
from driftwatch.store.store import Store

FEW = Gate("busy_windows", False, "7 busy minutes (gate 10)")
UNKNOWN = Gate("settings", False, "unknown: max_num_batched_tokens")


@pytest.fixture(scope="module")
def cap(shared_data: Path) -> FrameSource:
    """The whole recording, three minutes earlier: it fires at 08:27, is full until 08:32 or so."""
    source = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    first, last = source.span()
    collected = source.collect(first, last)
    earlier = pl.col("time").dt.offset_by("-3m")
    return FrameSource(collected.scrapes.with_columns(earlier), collected.targets)


class Engine:
    """In the place of the replay: refused until a time, then a change."""

    def __init__(self, until: datetime | None, *gates: Gate) -> None:
        self.until = until
        self.gates = gates
        self.asked: list[datetime] = []

    def __call__(self, question: Question, **_: Any) -> Answer:
        self.asked.append(question.at)
        if self.until is None or question.at < self.until:
            if not self.gates:
                raise ZeroDivisionError("no requests")
            said = Advice(action="insufficient", reason=Reason("other", self.gates[0].said))
            return Answer(at=question.at, advice=said, gates=self.gates)
        change = Advice(
            action="change",
            reason=Reason("other", "best"),
            moves=(KnobMove("max_num_seqs", 8.0, 40.0, "inferred"),),
            effect=("more",),
            basis="simulation",
        )
        return Answer(at=question.at, advice=change)


def told(
    source: FrameSource, cuts: Sequence[int] = (), after: datetime | None = None
) -> tuple[list[Transition], list[Outcome], State]:
    first, last = source.frame["time"].min(), source.frame["time"].max()
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    simulates = None if after is None else last - after
    ticks = Ticks([source], shipped_plan(1), Store.in_memory(), first, simulates=simulates)
    outcomes = [ticks.tick(now) for now in [*(first + timedelta(minutes=m) for m in cuts), last]]
    return [t for o in outcomes for t in o.transitions], outcomes, ticks.state


@pytest.mark.parametrize("gates", [(FEW,), ()], ids=["too little traffic", "an exception"])
def test_the_answer_that_comes_later_is_told_once_however_minutes_are_split(
    cap: FrameSource, monkeypatch: pytest.MonkeyPatch, gates: tuple[Gate, ...]
) -> None:
    engine = Engine(None, *gates)
    monkeypatch.setattr(advising, "advise", engine)
    happened, _, _ = told(cap)
    fired = happened[0]
    assert [t.event for t in happened] == ["firing", "resolved"]
    grid = [at for at in engine.asked if at != fired.at]
    assert grid
    assert all(at.minute % 10 == 0 and fired.at < at < happened[-1].at for at in grid)
    page = fired.incident.page
    assert page is not None and page.asked_again_at == grid[0]

    engine = Engine(grid[0], *gates)
    monkeypatch.setattr(advising, "advise", engine)
    happened, _, _ = told(cap)
    assert [t.event for t in happened] == ["firing", "updated", "resolved"]
    assert engine.asked == [fired.at, grid[0]]
    told_late, resolved = (t.incident.page for t in happened[1:])
    assert told_late is not None and resolved is not None
    assert happened[1].at == grid[0]
    assert told_late.summary == (
        "UPDATE host:8000: advice now: set max_num_seqs 8 (inferred) → 40; before: none yet"
    )
    assert told_late.asked_again_at is None
    assert told_late.leaf == page.leaf
    assert resolved.advice == told_late.advice
    if not gates:
        return
    again, _, _ = told(cap, (10, 12, 13, 16))
    assert [_said(t) for t in again] == [_said(t) for t in happened]


def _said(transition: Transition) -> tuple[str, datetime, object]:
    return transition.event, transition.at, transition.incident.page


def test_what_time_does_not_cure_is_not_asked_again(
    cap: FrameSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(None, FEW, UNKNOWN)
    monkeypatch.setattr(advising, "advise", engine)
    happened, _, _ = told(cap)
    assert [t.event for t in happened] == ["firing", "resolved"]
    assert engine.asked == [happened[0].at]
    assert "asked_again_at" not in (happened[0].incident.page or {})


@pytest.mark.parametrize("later", ["change", "none"])
def test_that_no_knob_helps_by_the_first_minutes_is_asked_again(
    cap: FrameSource, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """Judged by 4 minutes it is asked once more; by 10 it is the answer. Told where it changed."""
    asked: list[datetime] = []
    change = Engine(datetime.min.replace(tzinfo=UTC))

    def engine(question: Question, **_: Any) -> Answer:
        asked.append(question.at)
        if len(asked) > 1 and later == "change":
            return change(question)
        none = Advice(
            action="none",
            reason=Reason("no_knob_helps", "every limit has room"),
            instead=("+2 replicas",),
        )
        seconds = 240.0 if len(asked) == 1 else 600.0
        return Answer(at=question.at, advice=none, window_seconds=seconds)

    monkeypatch.setattr(advising, "advise", engine)
    happened, _, _ = told(cap)
    first = happened[0].incident.page
    assert first is not None and first.advice is not None
    assert (first.advice.action, first.asked_again_at) == ("none", asked[1])
    assert len(asked) == 2
    is_news = later == "change"
    assert [t.event for t in happened] == ["firing", *["updated"] * is_news, "resolved"]
    last = happened[-1].incident.page
    assert last is not None and last.advice is not None
    assert last.advice.action == later
    assert last.asked_again_at is None
    if is_news:
        page: Any = happened[1].incident.page
        first_line, *others = page.lines
        assert (first_line.label, first_line.at) == ("Problem", happened[1].at)
        told_now = "advice now: set max_num_seqs 8 (inferred) → 40; before: +2 replicas"
        assert page.changed == told_now
        # what was measured is of the page before
        assert "Cause" not in {line.label for line in others}


def test_minutes_that_are_caught_up_replay_nothing_but_are_asked_again_later(
    cap: FrameSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(None, FEW)
    monkeypatch.setattr(advising, "advise", engine)
    (fired, *_), _, _ = told(cap)
    engine.asked.clear()
    happened, _, _ = told(cap, after=fired.at)
    assert fired.at not in engine.asked
    assert engine.asked  # the grid after it
    said = happened[0].incident.page.advice.reason.text
    assert said.startswith("driftwatch caught up with this minute after a stop; run driftwatch")
    engine.asked.clear()
    told(cap, after=happened[-1].at)
    assert engine.asked == []
