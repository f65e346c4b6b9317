"""Pages ask the replay: the real server's page, whatever goes wrong in it, and who is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from made_incidents import incident_of
from service_cases import FrameSource, shipped_plan

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.diagnose.tree import Leaf
from driftwatch.incidents.incident import Transition
from driftwatch.model import Advice, Diagnosis, Finding, Limit, Reason, Target, TargetKey
from driftwatch.notify.page import Page
from driftwatch.pipeline.advice import advised, own_advice
from driftwatch.pipeline.evaluation import Evaluation
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.question import TargetAdvice
from driftwatch.pipeline.state import Outcome, State
from driftwatch.recommend import advise as advising
from driftwatch.recommend.advice import Answer
from driftwatch.service.replay import Ticks
from driftwatch.signals.minutes import minutes
from driftwatch.store import Store
from driftwatch.store.minute_columns import STORED_SCHEMA, no_minutes


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
) -> list[Outcome]:
    """Every outcome of the recording, cut after these minutes."""
    first, last = _span(source)
    ticks = Ticks([source], shipped_plan(simulations), store or Store.in_memory(), first)
    return [ticks.tick(now) for now in [*(first + timedelta(minutes=m) for m in cuts), last]]


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
ENGINE = Leaf("replica_slow", "none", "slow", advice="Do not change a knob; drain it")
KV = Leaf("kv_pressure", "none", "full", advice="Do not change a knob; add a replica")


def _walked(leaf: str, *limits: Limit) -> Diagnosis:
    return Diagnosis("batch-size-drift", leaf, (), limits=limits, missing=("binding_limit",))


def test_who_is_asked_and_who_answers_by_himself() -> None:
    binds = Limit("max_num_seqs", 8.0, 8.0, 0.0, True)
    free = replace(binds, binds=False)
    assert own_advice(CHANGE, _walked(CHANGE.name), {}) is None
    assert own_advice(KV, _walked(KV.name), {}) is None
    for leaf, limits, evidence, said in (
        (ENGINE, (binds,), {}, "Do not change a knob; drain it"),
        (None, (free,), {}, "undetermined: binding_limit unknown"),
        (None, (binds,), {}, "undetermined: binding_limit unknown"),
        (CHANGE, (binds,), {"gpus_lost": 1.0}, "do not change a knob: 1 GPU is lost"),
    ):
        own = own_advice(leaf, _walked("x", *limits), evidence)
        assert own is not None
        assert (own.action, own.why) == ("none", said)


def test_a_server_to_be_drained_says_how_busy_its_busiest_twin_is(cap: FrameSource) -> None:
    (outcome,) = told(cap, simulations=0)
    own = outcome.rows.with_columns(pool=pl.lit("chat"))
    rows = pl.concat([own, own.with_columns(instance=pl.lit("twin:8000"))])
    (key,) = cap.targets
    here = replace(cap.targets[key], pool="chat")
    twin = replace(here, key=TargetKey("twin:8000", "0"))
    at = rows["end"].max()
    assert isinstance(at, datetime)
    slow = replace(_walked("replica_slow"), advice="Do not change a knob; drain it")
    twins = {"of_targets": 2, "slower": 1, "speed_low_ratio": 1.0, "speed_high_ratio": 1.0}
    finding = Finding("ReplicaSlow", here, at, {}, diagnosis=slow, peers=twins)
    firing = incident_of(rule="ReplicaSlow", at=at)
    found, answers = advised(
        evaluated(rows, {key: here, twin.key: twin}, 1),
        [Transition(firing, "firing", at)],
        {firing.id: (finding, rows.row(0, named=True))},
    )
    drained = found[firing.id]
    assert answers == ()
    assert drained.advice is not None
    assert drained.advice.why == "Do not change a knob; drain it"
    assert drained.peers is not None
    assert 0.3 < drained.peers["utilization_ratio"] < 3.0


def test_pages_before_tickets_long_waits_first_and_notices_never(cap: FrameSource) -> None:
    (outcome,) = told(cap, simulations=0)
    (key,) = cap.targets
    at = outcome.rows["end"].max()
    assert isinstance(at, datetime)
    asked: list[str] = []

    def replay(*_: object, incident_id: str, **__: object) -> TargetAdvice:
        asked.append(incident_id)
        said = Advice(action="no_action", reason=Reason("other", "in target"))
        return TargetAdvice(cap.targets[key], at, Answer(at=at, advice=said), incident_id)

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
    said, _ = advised(evaluation, firing, found)
    assert asked == ["long", "short"]
    assert said["ticket"].asked_again
    assert (said["ticket"].advice or CHANGE_NOTHING).action == "insufficient"
    assert not said["notice"].asked_again
    assert (said["notice"].advice or CHANGE_NOTHING).action == "none"


CHANGE_NOTHING = Advice(action="change", reason=Reason("other", "nothing was said"))


def test_a_slow_engine_whose_batch_left_its_pin_is_told_no_knob(cap: FrameSource) -> None:
    """Its batch is full, so the limit binds; how slow it is was known until five minutes ago."""
    (outcome,) = told(cap, simulations=0)
    (key,) = cap.targets
    row = {**outcome.rows.row(-1, named=True), "slower_at_equal_load": None}
    at = row["end"]
    known = minutes(outcome.rows).with_columns(
        slower_at_equal_load=pl.when(pl.col("end") < at - timedelta(minutes=5)).then(True),
        speed_at_equal_load_ratio=pl.lit(0.7),
    )
    incident = incident_of("b", rule="BatchDrift", at=at)
    finding = Finding("BatchDrift", cap.targets[key], at, {}, diagnosis=_walked(CHANGE.name))
    found, _ = advised(
        evaluated(outcome.rows, cap.targets, 1, known),
        [Transition(incident, "firing", at)],
        {incident.id: (finding, row)},
    )
    said = found[incident.id].advice
    assert said is not None
    assert (said.action, said.moves) == ("none", ())
    assert "slower at equal load" in said.why
