"""One pool, one question: servers that are configured and loaded alike are asked about together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from small_page import small_page

from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Advice, Finding, KnobMove, Reason, Target, TargetKey
from driftwatch.notify.page import Servers, Times
from driftwatch.pipeline.advice import answer_of_pool
from driftwatch.pipeline.question import Moment, peers_of, pooled, question_for
from driftwatch.service.configuration import plan_of_rules
from driftwatch.signals.minutes import MINUTE_SCHEMA, no_minutes

AT = datetime(2026, 11, 18, 3, tzinfo=UTC)
A, B, C = (TargetKey(f"{name}:8000", "0") for name in "abc")
CHANGE = Advice(
    action="change",
    reason=Reason("other", "1 % → 99 %"),
    moves=(
        KnobMove("max_num_batched_tokens", 512.0, 1024.0),
        *(KnobMove("max_num_seqs", 64.0, 128.0, "config"),),
    ),
    effect=("in target 1 % → 99 %",),
    forecast={"in_target_ratio": 0.99},
    basis="simulation",
)


def _minutes(key: TargetKey, first: float, prompt: float = 400.0) -> pl.DataFrame:
    rows = [
        {
            "instance": key.instance,
            "engine": key.engine,
            "end": AT - timedelta(minutes=n),
            "ttft_seconds_count": first,
            "prompt_tokens_total": first * prompt,
            "generation_tokens_total": first * 150.0,
        }
        for n in range(30)
    ]
    return pl.concat([no_minutes(), pl.DataFrame(rows)], how="diagonal_relaxed").select(
        *MINUTE_SCHEMA
    )


def _fleet(*keys: TargetKey) -> dict[TargetKey, Target]:
    return {key: Target(key, {"model_name": "m"}, pool="p") for key in keys}


@pytest.mark.parametrize("asked", [A, B])
def test_two_servers_of_one_pool_ask_the_same_question(asked: TargetKey) -> None:
    """Each by itself would be given its own capacity and its own setting for one cause."""
    plan, fleet = plan_of_rules(()), _fleet(A, B)
    frames = {A: _minutes(A, 100.0), B: _minutes(B, 110.0)}
    (twin,) = peers_of(fleet[asked], fleet, plan)
    question = question_for(Moment(fleet[asked], AT, frames[asked], beside=frames[twin]), plan)
    # the busiest of them, whoever is asked about
    assert question.minutes["instance"].unique().to_list() == [B.instance]
    assert [one["instance"].unique().to_list() for one in question.beside] == [[A.instance]]


@pytest.mark.parametrize(
    ("other", "alike"),
    [(_minutes(B, 110.0), True), (_minutes(B, 200.0), False), (_minutes(B, 100.0, 900.0), False)],
)
def test_a_server_with_another_load_is_asked_about_by_itself(
    other: pl.DataFrame, alike: bool
) -> None:
    both = pl.concat([_minutes(A, 100.0), other])
    assert set(pooled(A, both, AT)) == ({A, B} if alike else {A})


def test_servers_of_another_pool_are_no_twins() -> None:
    fleet = {**_fleet(A, B), C: Target(C, {"model_name": "m"}, pool="q")}
    plan = plan_of_rules(())
    assert peers_of(fleet[A], fleet, plan) == (B,)
    assert peers_of(fleet[C], fleet, plan) == ()


def _page(key: TargetKey, at: datetime, said: Advice | None) -> Incident:
    times = Times(started_at=at, evaluated_at=at, measured_at=at)
    servers = Servers(concerned=1, of=1, first=(key.text,))
    page = small_page(times=times, servers=servers, advice=said)
    return Incident(
        id="x",
        key="x",
        rule="r",
        alert="BatchDrift",
        severity="page",
        target={"instance": key.instance, "engine": key.engine, "pool": "p"},
        state="firing",
        started_at=at,
        last_true_at=at,
        page=page,
    )


@pytest.mark.parametrize(
    ("before", "same"),
    [
        ([_page(A, AT - timedelta(minutes=2), CHANGE)], True),
        ([_page(C, AT - timedelta(minutes=2), CHANGE)], False),  # not of those asked about
        ([_page(A, AT - timedelta(minutes=20), CHANGE)], True),  # as long as that page is open
        ([_page(A, AT - timedelta(minutes=2), CHANGE.model_copy(update={"basis": None}))], False),
        ([_page(A, AT - timedelta(minutes=2), None)], False),
        ([replace(_page(A, AT - timedelta(minutes=2), CHANGE), state="pending")], False),
        ([], False),
    ],
)
def test_a_page_says_what_its_twins_page_said_minutes_before(
    before: Sequence[Incident], same: bool
) -> None:
    found = answer_of_pool({A, B}, AT, {}, (), before, {})
    assert found == ((CHANGE, before[0]) if same else None)


def test_a_change_that_was_made_meanwhile_is_not_said_again() -> None:
    before = [_page(A, AT - timedelta(minutes=2), CHANGE)]
    assert (
        answer_of_pool({A, B}, AT, {}, (), before, {CHANGE.moves[0].knob: CHANGE.moves[0].to_value})
        is None
    )
    same = {CHANGE.moves[0].knob: CHANGE.moves[0].from_value}
    assert answer_of_pool({A, B}, AT, {}, (), before, same) == (CHANGE, before[0])


def test_pages_of_one_minute_share_an_answer() -> None:
    incident = _page(A, AT, None)
    told = {incident.id: Finding("r", _fleet(A)[A], AT, {}, advice=CHANGE)}
    firing = [Transition(incident, "firing", AT)]
    assert answer_of_pool({A, B}, AT, told, firing, (), {}) == (CHANGE, incident)
    assert answer_of_pool((), AT, told, firing, (), {}) is None
