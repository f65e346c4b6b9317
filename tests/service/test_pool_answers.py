"""One pool, one question and one answer: for servers that are configured and loaded alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from made_incidents import incident_of, with_values
from small_page import small_page

from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Advice, Finding, KnobMove, Reason, Target, TargetKey
from driftwatch.notify.headline import lines
from driftwatch.notify.page import Page, Servers, Times
from driftwatch.pipeline.advice import answer_of_pool, answer_stands, configured_alike
from driftwatch.pipeline.build_page import build_page
from driftwatch.pipeline.question import Moment, peers_of, pooled, question_for
from driftwatch.service.configuration import plan_of_rules
from driftwatch.signals.minutes import MINUTE_SCHEMA, no_minutes

AT = datetime(2026, 11, 18, 3, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
A, B, C, D = (TargetKey(f"{name}:8000", "0") for name in "abcd")
FLEET = {
    **{key: Target(key, {"model_name": "m"}, pool="p") for key in (A, B)},
    C: Target(C, {"model_name": "m"}, pool="q"),
}
MOVE = KnobMove("max_num_batched_tokens", 512.0, 1024.0)
CHANGE = Advice(
    action="change",
    reason=Reason("other", "1 % → 99 %"),
    moves=(MOVE,),
    effect=("in target 1 % → 99 %",),
    forecast={"in_target_ratio": 0.99},
    basis="simulation",
)


def minutes(key: TargetKey, first: float, prompt: float = 400.0) -> pl.DataFrame:
    rows = [
        {
            "instance": key.instance,
            "engine": key.engine,
            "end": AT - n * MINUTE,
            "ttft_seconds_count": first,
            "prompt_tokens_total": first * prompt,
            "generation_tokens_total": first * 150.0,
        }
        for n in range(30)
    ]
    known = pl.concat([no_minutes(), pl.DataFrame(rows)], how="diagonal_relaxed")
    return known.select(*MINUTE_SCHEMA)


@pytest.mark.parametrize("asked", [A, B])
def test_two_servers_of_one_pool_ask_the_same_question(asked: TargetKey) -> None:
    """Each by itself would be given its own capacity and its own setting for one cause."""
    plan = plan_of_rules(())
    frames = {A: minutes(A, 100.0), B: minutes(B, 110.0)}
    (twin,) = peers_of(FLEET[asked], FLEET, plan)
    question = question_for(Moment(FLEET[asked], AT, frames[asked], beside=frames[twin]), plan)
    # the busiest of them, whoever is asked about
    assert question.minutes["instance"].unique().to_list() == [B.instance]
    assert [one["instance"].unique().to_list() for one in question.beside] == [[A.instance]]
    assert peers_of(FLEET[C], FLEET, plan) == ()


@pytest.mark.parametrize(
    ("other", "alike"),
    [(minutes(B, 110.0), True), (minutes(B, 200.0), False), (minutes(B, 100.0, 900.0), False)],
)
def test_a_server_with_another_load_is_asked_about_by_itself(
    other: pl.DataFrame, alike: bool
) -> None:
    both = pl.concat([minutes(A, 100.0), other])
    assert set(pooled(A, both, AT)) == ({A, B} if alike else {A})


def paged(key: TargetKey, minutes_ago: float, advice: Advice | None = None) -> Incident:
    at = AT - minutes_ago * MINUTE
    times = Times(started_at=at, evaluated_at=at, measured_at=at)
    servers = Servers(concerned=1, of=1, first=(key.text,))
    page = small_page(times=times, servers=servers, advice=advice)
    return incident_of("x", rule="BatchDrift", servers=(key.instance,), at=at, page=page)


# incidents before, settings now → is their answer given
@pytest.mark.parametrize(
    ("before", "settings", "same"),
    [
        ([paged(A, 2, CHANGE)], {}, True),
        ([paged(A, 20, CHANGE)], {}, True),  # as long as that page is open
        ([paged(A, 2, CHANGE)], {MOVE.knob: MOVE.from_value}, True),
        ([paged(A, 2, CHANGE)], {MOVE.knob: MOVE.to_value}, False),  # the change was made
        ([paged(C, 2, CHANGE)], {}, False),  # not of those asked about
        ([paged(A, 2, CHANGE.model_copy(update={"basis": None}))], {}, False),
        ([paged(A, 2)], {}, False),
        ([with_values(paged(A, 2, CHANGE), firing_at=None)], {}, False),
        ([], {}, False),
    ],
)
def test_the_answer_on_another_page_of_the_pool(
    before: Sequence[Incident], settings: dict[str, float], same: bool
) -> None:
    found = answer_of_pool({A, B}, AT, {}, (), before, settings)
    assert found == ((CHANGE, before[0]) if same else None)


def test_pages_of_one_minute_share_an_answer() -> None:
    incident = paged(A, 0)
    answered = {incident.id: Finding("r", FLEET[A], AT, {}, advice=CHANGE)}
    firing = [Transition(incident, "firing", AT)]
    assert answer_of_pool({A, B}, AT, answered, firing, (), {}) == (CHANGE, incident)
    assert answer_of_pool((), AT, answered, firing, (), {}) is None


def test_an_answer_stands_for_the_hour_that_it_was_computed_of() -> None:
    assert answer_stands(paged(A, 59), AT)
    assert not answer_stands(paged(A, 61), AT)
    assert not answer_stands(with_values(paged(A, 1), told=None), AT)


def page_of(concerned: tuple[TargetKey, ...], alike: tuple[TargetKey, ...]) -> Page:
    limit = "BatchLimitBinding"
    finding = Finding(limit, FLEET[A], AT, {}, advice=CHANGE, concerned=concerned, of_targets=6)
    finding = replace(finding, configured_alike=configured_alike(finding, alike))
    pool = with_values(paged(A, 0), page=None)
    return build_page(finding, pool, "firing", AT, annotations={"summary": "a limit binds"})


@pytest.mark.parametrize(
    ("concerned", "alike", "ends", "settings"),
    [
        (
            *((A, B, C, D), (A, B), "512 → 1024 on 2 of 4"),
            "the advice is for a:8000 and b:8000; c:8000 and d:8000 have other settings: "
            "run driftwatch recommend c:8000",
        ),
        (
            *((A, B), (), "512 → 1024 on 1 of 2"),
            "the advice is for a:8000; b:8000 has other settings: run driftwatch recommend b:8000",
        ),
        ((A, B), (A, B), "512 → 1024", None),
    ],
)
def test_a_page_names_the_servers_that_its_answer_is_for(
    concerned: tuple[TargetKey, ...], alike: tuple[TargetKey, ...], ends: str, settings: str | None
) -> None:
    page = page_of(concerned, alike)
    assert page.summary.endswith(ends)
    found = [one.text for one in lines(page) if one.label == "Settings"]
    assert found == ([] if settings is None else [settings])
