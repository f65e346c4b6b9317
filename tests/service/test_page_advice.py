"""Pages ask the replay: in time, again while they fire, and never after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from made_incidents import incident_of
from service_cases import FrameSource, shipped_plan

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.diagnose.tree import Leaf
from driftwatch.incidents.incident import Transition
from driftwatch.model import Advice, Diagnosis, Finding, KnobMove, Limit, Reason, Target, TargetKey
from driftwatch.notify.page import Page
from driftwatch.pipeline.advice import advise, of_notice, own_advice
from driftwatch.pipeline.evaluation import Evaluation
from driftwatch.pipeline.findings import with_last_load
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.news import message_facts
from driftwatch.pipeline.question import Moment
from driftwatch.pipeline.state import Outcome, State
from driftwatch.recommend import advise as advising
from driftwatch.recommend.advice import Answer, Candidate, Gate, Question
from driftwatch.service.replay import Ticks
from driftwatch.signals.minutes import minutes
from driftwatch.store.history import TargetAdvice
from driftwatch.store.minute_columns import STORED_SCHEMA, no_minutes
from driftwatch.store.store import Store


@pytest.fixture(scope="module")
def cap(shared_data: Path) -> FrameSource:
    """The cap's first phase, with the page at minute 11."""
    source = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    first, _ = source.span()
    collected = source.collect(first, first + timedelta(minutes=13))
    return FrameSource(collected.scrapes, collected.targets)


def _span(source: FrameSource) -> tuple[datetime, datetime]:
    first, last = source.frame["time"].min(), source.frame["time"].max()
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    return first, last + timedelta(seconds=1)


def told(
    source: FrameSource,
    cuts: Sequence[int] = (),
    store: Store | None = None,
    simulations: int = 1,
    after: datetime | None = None,
) -> list[Outcome]:
    """Every outcome of the recording, cut after these minutes; no simulation until ``after``."""
    first, last = _span(source)
    simulates = None if after is None else last - after
    plan, store = shipped_plan(simulations), store or Store.in_memory()
    ticks = Ticks([source], plan, store, first, simulates=simulates)
    return [ticks.tick(now) for now in [*(first + timedelta(minutes=m) for m in cuts), last]]


def happenings(*given: Any, **options: Any) -> list[Transition]:
    """What became of the incidents of the recording."""
    return [t for outcome in told(*given, **options) for t in outcome.transitions]


def evaluated(
    rows: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    simulations: int,
    past: pl.DataFrame | None = None,
) -> Evaluation:
    """Rows as a tick has evaluated them."""
    plan = shipped_plan(simulations)
    return Evaluation(
        state=State(targets=targets),
        plan=plan,
        signals=None,  # type: ignore[arg-type]  # nothing is asked of them
        first=rows["start"].min(),  # type: ignore[arg-type]
        last=rows["end"].max(),  # type: ignore[arg-type]
        rows=rows,
        verdicts=pl.DataFrame(),
        past=PastMinutes(None, [_stored(minutes(rows) if past is None else past)]),
    )


def _stored(minutes: pl.DataFrame) -> pl.DataFrame:
    """Stored rows that know of nothing else."""
    known = [name for name in STORED_SCHEMA if name in minutes.columns]
    return pl.concat([no_minutes(), minutes.select(known)], how="diagonal_relaxed")


def pages(outcomes: Sequence[Outcome]) -> list[Page]:
    return [t.incident.page for o in outcomes for t in o.transitions]


def test_the_page_is_that_of_the_replay_however_minutes_are_split_and_wherever_they_are_kept(
    cap: FrameSource, tmp_path: Path
) -> None:
    at_once = told(cap)
    (page,) = pages(at_once)
    advice = page.advice
    assert (advice.action, advice.moves[0].knob, advice.basis) == (
        "change",
        "max_num_seqs",
        "simulation",
    )
    assert 16 <= advice.moves[0].to_value <= 64
    assert advice.effect
    assert advice.forecast["today"]
    with Store.open(tmp_path / "kept.db") as store:
        assert pages(told(cap, (4, 9, 10), store)) == [page]
        first, last = _span(cap)
        (kept,) = store.advices(first, last + timedelta(minutes=1))
        assert kept.incident_id == page.incident
        assert kept.answer.advice == advice
        assert kept.answer.step_time.coefficients


@pytest.mark.parametrize("simulations", [0, 1])
def test_a_page_never_waits_for_an_answer_that_does_not_come(
    cap: FrameSource, monkeypatch: pytest.MonkeyPatch, simulations: int
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise ZeroDivisionError("no requests")

    monkeypatch.setattr(advising, "advise", broken)
    outcomes = told(cap, simulations=simulations)
    (page,) = pages(outcomes)
    advice = page.advice
    assert advice.action == "insufficient"
    assert "Advice at " in page.summary or "No advice" in page.summary
    answers = [answer for o in outcomes for answer in o.advices]
    if simulations:
        assert "ZeroDivisionError: no requests" in advice.reason.text
        assert "ZeroDivisionError" in (answers[0].failed or "")
    else:
        assert advice.reason.text.endswith("; run driftwatch recommend host:8000")
        assert answers == []


CHANGE = Leaf("concurrency_cap_binding", "change", "full", knob="max_num_seqs")
ENGINE = Leaf("replica_slow", "none", "slow", advice="Drain it")
KV = Leaf("kv_pressure", "none", "full", advice="Add a replica")


def _walked(leaf: str, *limits: Limit) -> Diagnosis:
    return Diagnosis("batch-size-drift", leaf, (), limits=limits, missing=("binding_limit",))


@pytest.mark.parametrize(
    ("leaf", "evidence", "reason"),
    [
        (CHANGE, {}, None),
        (KV, {}, None),
        (ENGINE, {}, "Drain it"),
        (None, {}, "the cause is not determined"),
        (CHANGE, {"gpus_lost": 1.0}, "1 GPU is lost"),
    ],
)
def test_who_is_asked_and_who_answers_by_himself(
    leaf: Leaf | None, evidence: dict[str, float], reason: str | None
) -> None:
    own = own_advice(leaf, evidence)
    assert (own and (own.action, own.reason.text)) == (reason and ("none", reason))


def test_pages_before_tickets_long_waits_first_and_notices_last(cap: FrameSource) -> None:
    (outcome,) = told(cap, simulations=0)
    (key,) = cap.targets
    at = outcome.rows["end"].max()
    assert isinstance(at, datetime)
    asked: list[str] = []

    def replay(*_: object, incident_id: str, **__: object) -> TargetAdvice:
        asked.append(incident_id)
        said = Advice(action="no_action", reason=Reason("other", "in target"))
        return TargetAdvice(key, "", at, Answer(at=at, advice=said), incident_id)

    row = outcome.rows.row(-1, named=True)
    firing, found = [], {}
    for name, severity, wait in (
        ("notice", "notice", 99.0),
        ("ticket", "ticket", 9.0),
        ("short", "page", 1.0),
        ("long", "page", 5.0),
    ):
        incident = incident_of(name, rule="BatchDrift", at=at, severity=severity)
        walked = _walked(CHANGE.name)
        found[name] = (
            Finding("BatchDrift", cap.targets[key], at, {}, diagnosis=walked),
            {**row, "queue_wait_estimate_10m_seconds": wait},
        )
        firing.append(Transition(incident, "firing", at))
    evaluation = replace(evaluated(outcome.rows, cap.targets, 2), ask=replay)
    said, _ = advise(evaluation, firing, found, ())
    assert asked == ["long", "short"]
    assert said["ticket"].asked_again
    assert (said["ticket"].advice or CHANGE_NOTHING).action == "insufficient"
    assert not said["notice"].asked_again
    asked.clear()
    evaluation = replace(evaluation, plan=replace(evaluation.plan, simulations=8))
    advise(evaluation, firing, found, ())
    assert asked == ["long", "short", "ticket", "notice"]
    said, _ = advise(evaluation, firing, found, [t.incident for t in firing])
    assert asked[4:] == ["long", "short", "ticket"]
    assert said["notice"].advice.reason.text == "follow page long (BatchDrift)"


@pytest.mark.parametrize("again", [False, True])
def test_what_drains_a_server_asks_for_the_room_of_the_others(
    cap: FrameSource, *, again: bool
) -> None:
    (outcome,) = told(cap, simulations=0)
    (key,) = cap.targets
    other, target = TargetKey("other:1", "0"), replace(cap.targets[key], pool="p")
    rows = outcome.rows.with_columns(pool=pl.lit("p"))
    rows = pl.concat([rows, rows.with_columns(instance=pl.lit(other.instance))])
    at = rows["end"].max()
    assert isinstance(at, datetime)
    now = SimpleNamespace(utilization_ratio=0.6)
    ask = lambda *_, **__: SimpleNamespace(answer=now)  # noqa: E731
    targets = {key: target, other: replace(target, key=other)}
    evaluation = replace(evaluated(rows, targets, 2), ask=ask)
    full = {"slower_at_equal_load": True, "limit_full": "max_num_seqs"}
    finding = Finding("SlowerAtEqualLoad", target, at, full, diagnosis=_walked(ENGINE.name))
    finding = replace(finding, concerned=(key,))
    firing = [Transition(incident_of("a", rule="SlowerAtEqualLoad", at=at), "firing", at)]
    advices, _ = advise(evaluation, firing, {"a" * 12: (finding, rows.row(0, named=True))}, (),
                         again=again)  # fmt: skip
    room = {"of_targets": 2.0, "utilization_ratio": 0.6, "utilization_at_seconds": at.timestamp()}
    assert advices["a" * 12].peers == room
    # what another look at the speeds does not know stays
    assert with_last_load({"of_targets": 2.0, "slower": 1}, room) == {**room, "slower": 1}
    assert (with_last_load(None, room), with_last_load(None, {"of_targets": 2.0})) == (room, None)
    # a slow engine fills its batch: that a limit is full is no cause beside it
    assert message_facts(firing[0].incident, finding, at).cause == "replica_slow "


AT = datetime(2026, 3, 2, 8, tzinfo=UTC)
MOMENT = Moment(Target(TargetKey("a:8000", "0"), {}, "a"), AT, pl.DataFrame())


@pytest.mark.parametrize(
    ("least", "action", "capacity"),
    [(0.93, "no_action", None), (0.7, "change", 6.48), (None, "change", 6.48)],
)
def test_a_notice_claims_no_overload_that_the_measured_share_contradicts(
    least: float | None, action: str, capacity: float | None
) -> None:
    """It said "1.2 % above what 5 servers serve" (74 % in target) where 93 to 98 % were."""
    said = CHANGE_NOTHING.model_copy(update={"capacity_requests_per_second": 6.48})
    seen = {"slo_missed": None, "ttft_in_target_10m_ratio": least, "tpot_in_target_10m_ratio": None}
    finding = Finding("LengthDrift", MOMENT.target, AT, seen, advice=said)
    today = Candidate({}, in_target_ratio=0.74, capacity_requests_per_second=6.48)
    answer = Answer(at=AT, advice=said, today=today, offered_requests_per_second=6.56)
    advice = of_notice(finding, answer).advice
    assert advice is not None
    assert (advice.action, advice.capacity_requests_per_second) == (action, capacity)


CHANGE_NOTHING = Advice(action="change", reason=Reason("other", "nothing was said"))


FEW = Gate("busy_windows", False, "7 busy minutes (gate 10)")


@pytest.fixture(scope="module")
def long_cap(shared_data: Path) -> FrameSource:
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


@pytest.mark.parametrize("gates", [(FEW,), ()], ids=["too little traffic", "an exception"])
def test_the_answer_that_comes_later_is_told_once_however_minutes_are_split(
    long_cap: FrameSource, monkeypatch: pytest.MonkeyPatch, gates: tuple[Gate, ...]
) -> None:
    engine = Engine(None, *gates)
    monkeypatch.setattr(advising, "advise", engine)
    happened = happenings(long_cap)
    fired = happened[0]
    assert [t.event for t in happened] == ["firing", "resolved"]
    grid = [at for at in engine.asked if at != fired.at]
    assert grid
    assert all(at.minute % 10 == 0 and fired.at < at < happened[-1].at for at in grid)
    page = fired.incident.page
    assert page is not None and page.asked_again_at == grid[0]

    engine = Engine(grid[0], *gates)
    monkeypatch.setattr(advising, "advise", engine)
    happened = happenings(long_cap)
    assert [t.event for t in happened] == ["firing", "updated", "resolved"]
    assert engine.asked == [fired.at, grid[0]]
    told_late, resolved = (t.incident.page for t in happened[1:])
    assert told_late is not None and resolved is not None
    assert happened[1].at == grid[0]
    assert told_late.summary == (
        "UPDATE host:8000: advice now: set max_num_seqs 8 → 40, before none yet; "
        "first token takes 3.0 s, all of it queueing"
    )
    assert told_late.asked_again_at is None
    assert told_late.leaf == page.leaf
    assert resolved.advice == told_late.advice
    if not gates:
        return
    again = happenings(long_cap, (10, 12, 13, 16))
    assert [_said(t) for t in again] == [_said(t) for t in happened]


def _said(transition: Transition) -> tuple[str, datetime, object]:
    return transition.event, transition.at, transition.incident.page


def test_minutes_that_are_caught_up_replay_nothing_but_are_asked_again_later(
    long_cap: FrameSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(None, FEW)
    monkeypatch.setattr(advising, "advise", engine)
    fired, *_ = happenings(long_cap)
    engine.asked.clear()
    happened = happenings(long_cap, after=fired.at)
    assert fired.at not in engine.asked
    assert engine.asked  # the grid after it
    said = happened[0].incident.page.advice.reason.text
    assert said.startswith("driftwatch caught up with this minute after a stop; run driftwatch")
    engine.asked.clear()
    happenings(long_cap, after=happened[-1].at)
    assert engine.asked == []
